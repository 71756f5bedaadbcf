//! # The durable log: what survives a power cut
//!
//! The log does no I/O, so it is driven here by hand, without an engine: a hundred thousand states take seconds. A session is an
//! opening (or a making) and what is done with the log then; its record has every write with its bytes, every end, and everything
//! that somebody was told. Cut at any event, each write that has not ended is lost, torn at its sectors, or there, in any order; a
//! kill leaves them in the device's cache. What is left is opened, and the [`model`] says what must be there. Some states are used
//! further, and cut again: up to four crashes on one medium. In some of the last states one batch or one copy of the header
//! rots or cannot be read.
//!
//! | module | what it is |
//! |---|---|
//! | [`medium`] | bytes, durable and cached; what a crash does to them |
//! | [`rig`] | drives one log, on the record |
//! | [`workload`] | what is done; the states of a record |
//! | [`follow`] | replicas, for which truncation waits |
//! | [`model`] | what was told, and what an opening must give |
//! | [`opens`] | opens a medium, looks at it, opens it where reads fail |
//! | [`rot`] | what must be said, and still be there, when something rots |

pub mod follow;
pub mod medium;
pub mod model;
pub mod opens;
pub mod rig;
pub mod rot;
pub mod workload;

use std::sync::Arc;

use baio_engine::Arena;
use baio_engine::sim::Random;

use crate::report::{Part, no_panic};
use crate::trials::Trials;
use crate::violation::{Kind, Violation};
use medium::{Fall, Medium};
use model::Model;
use rot::Reference;
use workload::{Counts, Numbers, Replay, Session, Shape, State};

/// How often a trial goes on from a crash at most.
const DEPTH_MAX: usize = 4;
/// For the buffers of one log at a time.
const ARENA_BYTES: usize = 4 << 20;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From which all choices follow.
    pub seed: u64,
    /// May batches and headers rot?
    pub rot: bool,
}

/// A log from its making on.
struct Workload {
    arena: Arc<Arena>,
    shape: Shape,
    session: Session,
    numbers: Numbers,
}

impl Workload {
    fn run(plan: &Plan, number: u64, counts: &mut Counts) -> Result<Workload, Violation> {
        let mut random = Random::from(&[plan.seed, 11, number]);
        let shape = Shape::by_chance(&mut random);
        let arena = Arena::new(ARENA_BYTES)
            .map_err(|error| Violation::new(Kind::Failed, format!("no memory for the log: {error}")))?;
        let mut numbers = Numbers(1);
        let mut base = State {
            medium: Medium::stale(shape.size_max, &mut random),
            model: Model::default(),
        };
        if number % 4 == 3 {
            // Over a log that was there before.
            let old = workload::make(&arena, &shape, base, &mut random, 30, &mut numbers, counts)?;
            let how = Fall::PowerCut;
            base = Replay::new(&old).state(old.record.len(), how, &mut random);
            let gone = [base.model.gone, base.model.groups].concat();
            base.model = Model::of_a_log_over(gone);
        }
        let ops = 10 + random.below(60);
        let session = workload::make(&arena, &shape, base, &mut random, ops, &mut numbers, counts)?;
        Ok(Workload {
            arena,
            shape,
            session,
            numbers,
        })
    }
}

impl Trials for Plan {
    const PER_WORKLOAD: u64 = 96;

    const COUNTED: &[&str] = &[
        "trials",
        "continued",
        "kills",
        "rotten",
        "header_rotten",
        "rot_told",
        "rot_cut",
        "rot_gives_again",
        "unreadable_told",
        "unreadable_behind",
        "header_unreadable",
        "misread_openings",
        "misread_told",
        "no_log_yet",
        "records_read",
        "groups",
        "appends",
        "large",
        "would_block",
        "truncates",
        "grows",
        "idles",
        "notes",
        "reads",
        "follows",
        "replicas",
        "held_up",
        "drains",
        "failed_writes",
        "failed_openings",
        "cached_openings",
        "misreads",
        "closes",
    ];

    fn seed(&self) -> u64 {
        self.seed
    }

    fn replay(&self, trial: u64) -> String {
        let rot = if self.rot { "" } else { " --no-rot" };
        format!("log --seed {}{rot} --only {trial}", self.seed)
    }

    fn run_workload(&self, number: u64, only: Option<u64>) -> Part {
        let mut part = Part::default();
        let mut counts = Counts::new();
        let workload = match no_panic(|| Workload::run(self, number, &mut counts)) {
            Ok(workload) => workload,
            Err(violation) => return part.ended_by(self.failed_before_any_crash(number, violation)),
        };
        let mut random = Random::from(&[self.seed, 12, number]);
        let events = workload.session.record.len() as u64;
        let mut cuts: Vec<usize> = (0..Self::PER_WORKLOAD)
            .map(|_| random.below(events + 1) as usize)
            .collect();
        cuts.sort_unstable();
        let mut replay = Replay::new(&workload.session);
        self.run_each(&mut part, (number, only), cuts, |part, number, cut| {
            let mut random = Random::from(&[self.seed, 13, number]);
            let mut trial = Trial {
                plan: self,
                workload: &workload,
                part,
                counts: &mut counts,
                numbers: workload.numbers,
                shape: workload.shape,
                story: Vec::new(),
                random: Random::from(&[random.bits()]),
            };
            let outcome = no_panic(|| {
                let state = trial.fall(&mut replay, cut, events as usize);
                trial.run(state)
            });
            (outcome, trial.story.join("\n  "), false)
        });
        for (what, times) in counts {
            part.add(what, times);
        }
        part
    }
}

/// One trial under way.
struct Trial<'a> {
    plan: &'a Plan,
    workload: &'a Workload,
    part: &'a mut Part,
    counts: &'a mut Counts,
    numbers: Numbers,
    shape: Shape,
    story: Vec<String>,
    random: Random,
}

impl Trial<'_> {
    fn fall(&mut self, replay: &mut Replay<'_>, cut: usize, events: usize) -> State {
        let how = match self.random.below(5) {
            0 => Fall::Kill,
            _ => Fall::PowerCut,
        };
        if how == Fall::Kill {
            self.part.add("kills", 1);
        }
        self.story.push(format!("{how:?} behind event {cut} of {events}"));
        replay.state(cut, how, &mut self.random)
    }

    fn run(&mut self, mut state: State) -> Result<(), Violation> {
        for _ in 0..DEPTH_MAX {
            if !self.random.percent(35) {
                break;
            }
            self.part.add("continued", 1);
            self.part.state(state.medium.fingerprint());
            self.shape = self.shape.reopened(&mut self.random);
            let ops = self.random.below(14);
            let session = workload::go_on(
                &self.workload.arena,
                &self.shape,
                state,
                &mut self.random,
                ops,
                &mut self.numbers,
                self.counts,
            )?;
            let events = session.record.len();
            let cut = self.random.below(events as u64 + 1) as usize;
            state = self.fall(&mut Replay::new(&session), cut, events);
        }
        self.look(&state)
    }

    /// Opens the last state.
    fn look(&mut self, state: &State) -> Result<(), Violation> {
        self.part.state(state.medium.fingerprint());
        let (arena, options) = (&self.workload.arena, &self.shape.options);
        let opened = opens::open(arena, state.medium.clone(), options, &mut self.random)?;
        let (rig, recovered, seen) = match opened {
            Ok(opened) => opened,
            Err(error) if !state.model.is_made && workload::is_no_log(&error) => {
                self.part.add("no_log_yet", 1);
                return Ok(());
            }
            Err(error) => {
                let story = format!("{error}\n  {}", rot::describe(&state.medium));
                return Err(Violation::new(Kind::Refused, story));
            }
        };
        if state.model.is_former(&seen) {
            return Ok(());
        }
        let count = state.model.check(&recovered, &seen, false)?;
        drop(rig);
        if self.random.percent(10) {
            self.part.add("misread_openings", 1);
            if opens::misread(arena, options, state, count, &mut self.random)? {
                self.part.add("misread_told", 1);
            }
        }
        self.part.add("records_read", seen.len() as u64);
        if !self.plan.rot || !state.model.is_made || !self.random.percent(30) {
            return Ok(());
        }
        let begin = state.model.groups.partition_point(|group| group.lsn < recovered.head.0);
        let reference = Reference {
            groups: &state.model.groups[begin.min(count)..count],
            seen: &seen,
            count,
        };
        for _ in 0..2 {
            let rotten = rot::try_rot(arena, options, state, &reference, &mut self.random, self.counts)?;
            if let Some(fingerprint) = rotten {
                self.part.state(fingerprint);
            }
        }
        Ok(())
    }
}
