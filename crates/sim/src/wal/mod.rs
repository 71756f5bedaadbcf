//! # Pages that wait for a log: what survives a power cut
//!
//! One or two databases in a small volume, each with a log and pages in the buffer pool that are under it. Records are appended, and each
//! changes a page under its LSN; the core turns, syncs, evicts, cleans; a checkpoint makes pages safe and truncates. The disk is on record: cut
//! at any moment with any of the writes in doubt lost or torn, it is opened by another process. Its logs must hold their word
//! ([`crate::log::model`]); **no page holds a change whose record its log does not have**; and log and pages together hold every change that
//! was durable. Some states are redone from their logs, used further, and cut again.
//!
//! | module | what it is |
//! |---|---|
//! | [`scene`] | the volume, its segments, a process that opens it |
//! | [`session`] | what is done, on the record |
//! | [`pages`] | what the pages may hold, and must |
//! | [`database`] | what was promised of a database: its log and its pages |

pub mod database;
pub mod pages;
pub mod scene;
pub mod session;

use baio_engine::sim::Random;
use baio_engine::sim::crash::Crash;

use crate::log::workload::{Counts, Numbers};
use crate::report::{Part, no_panic};
use crate::trials::Trials;
use crate::violation::Violation;
use database::State;
use scene::Scene;
use session::{Driver, Session};

/// How often a trial goes on from a crash at most.
const DEPTH_MAX: usize = 3;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From which all choices follow.
    pub seed: u64,
}

/// A first session on a fresh volume.
#[derive(Debug)]
struct Workload {
    scene: Scene,
    session: Session,
    numbers: Numbers,
}

impl Workload {
    fn run(plan: &Plan, number: u64, counts: &mut Counts) -> Result<Workload, Violation> {
        let mut random = Random::from(&[plan.seed, 21, number]);
        let scene = Scene::by_chance(&mut random);
        let mut numbers = Numbers(1);
        let state = scene.make(random.bits())?;
        let ops = 10 + random.below(80);
        let session = session::go_on(&scene, state, &mut random, ops, &mut numbers, counts)?;
        Ok(Workload {
            scene,
            session,
            numbers,
        })
    }
}

impl Trials for Plan {
    const PER_WORKLOAD: u64 = 48;

    const COUNTED: &[&str] = &[
        "trials",
        "continued",
        "records_read",
        "pages_changed",
        "appends",
        "would_block",
        "waits",
        "syncs",
        "checkpoints",
        "failed_writes",
        "closes",
    ];

    fn seed(&self) -> u64 {
        self.seed
    }

    fn replay(&self, trial: u64) -> String {
        format!("wal --seed {} --only {trial}", self.seed)
    }

    fn run_workload(&self, number: u64, only: Option<u64>) -> Part {
        let mut part = Part::default();
        let mut counts = Counts::new();
        let workload = match no_panic(|| Workload::run(self, number, &mut counts)) {
            Ok(workload) => workload,
            Err(violation) => return part.ended_by(self.failed_before_any_crash(number, violation)),
        };
        let mut random = Random::from(&[self.seed, 22, number]);
        let mut crashes: Vec<Crash> = (0..Self::PER_WORKLOAD)
            .map(|_| workload.session.crash(&mut random))
            .collect();
        crashes.sort_unstable();
        let mut replay = workload.session.replay();
        self.run_each(&mut part, (number, only), crashes, |part, number, crash| {
            let length = workload.session.record.len();
            let mut trial = Trial {
                scene: workload.scene,
                part,
                counts: &mut counts,
                numbers: workload.numbers,
                random: Random::from(&[self.seed, 23, number]),
                story: vec![
                    format!("{:?}", workload.scene),
                    format!("workload of {length} records, {crash:?}"),
                ],
            };
            let state = State {
                disk: replay.disk(crash),
                databases: workload.session.promised(crash.prefix),
            };
            let outcome = no_panic(|| trial.run(state));
            (outcome, trial.story.join("\n  "), false)
        });
        for (what, times) in counts {
            part.add(what, times);
        }
        part
    }
}

/// One trial under way.
#[derive(Debug)]
struct Trial<'a> {
    scene: Scene,
    part: &'a mut Part,
    counts: &'a mut Counts,
    numbers: Numbers,
    random: Random,
    story: Vec<String>,
}

impl Trial<'_> {
    fn run(&mut self, mut state: State) -> Result<(), Violation> {
        for _ in 0..DEPTH_MAX {
            if !self.random.percent(35) {
                break;
            }
            self.part.add("continued", 1);
            self.part.state(state.disk.fingerprint());
            let ops = self.random.below(14);
            let session = session::go_on(
                &self.scene,
                state,
                &mut self.random,
                ops,
                &mut self.numbers,
                self.counts,
            )?;
            let crash = session.crash(&mut self.random);
            self.story
                .push(format!("session of {} records, {crash:?}", session.record.len()));
            state = State {
                disk: session.replay().disk(crash),
                databases: session.promised(crash.prefix),
            };
        }
        self.part.state(state.disk.fingerprint());
        Driver::open(&self.scene, state, &mut self.random, &mut self.numbers, self.counts).map(drop)
    }
}
