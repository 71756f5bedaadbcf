//! Exploration by chance.
//!
//! A workload is a session on a fresh volume; each of its [`trials`](crate::trials) begins at one crash of its
//! record. The state is opened and checked. Some trials go on: the opened volume is used, on the record; that record is cut
//! again, possibly inside the opening, or the process is killed with the power on; and again, at most three times.
//! Once in some trials a metadata page rots before an opening.

use std::time::Duration;

use baio_engine::sim::crash::{Crash, Replay, cuts, states};
use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Flash, Profile, Random};

use crate::cores;
use crate::mutate::Weakening;
use crate::oracle::Expectation;
use crate::order;
use crate::report::{Part, Report, Sum, no_panic};
use crate::trials::Trials;
use crate::violation::Violation;
use crate::workload::{ByChance, Counts, Ids, Session, State, run_session};
use crate::world::World;

mod trial;

use trial::Trial;

/// Operations of a workload.
const WORKLOAD_OPS: usize = 18;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From which all choices follow.
    pub seed: u64,
    /// May metadata pages rot?
    pub rot: bool,
    /// The promise that is not kept, in a test of the explorer.
    pub weakening: Option<&'static Weakening>,
}

impl Plan {
    /// Everything that must hold, from this seed.
    #[must_use]
    pub fn of(seed: u64) -> Plan {
        Plan {
            seed,
            rot: true,
            weakening: None,
        }
    }
}

/// Explores for so long, a new seed for every workload; stops at the first broken promise. The seeds follow from the plan's.
#[must_use]
pub fn soak(plan: &Plan, time: Duration, threads: usize, mut tell: impl FnMut(&Sum)) -> Report {
    let mut sum = Sum::of(Plan::COUNTED);
    cores::in_order(
        threads,
        |number| {
            let seed = Random::from(&[plan.seed, 4, number]).bits();
            Some(Plan { seed, ..*plan }.run_workload(0, None))
        },
        |part| {
            sum.add(part);
            tell(&sum);
            !sum.is_broken() && sum.seconds() < time.as_secs_f64()
        },
    );
    sum.done()
}

impl Trials for Plan {
    const PER_WORKLOAD: u64 = 256;

    const COUNTED: &[&str] = &["trials", "continued", "rotten", "erased", "checked"];

    fn seed(&self) -> u64 {
        self.seed
    }

    fn replay(&self, trial: u64) -> String {
        let rot = if self.rot { "" } else { " --no-rot" };
        let weaken = self
            .weakening
            .map(|w| format!(" --weaken {}", w.name))
            .unwrap_or_default();
        format!("crash --seed {}{rot}{weaken} --only {trial}", self.seed)
    }

    fn run_workload(&self, number: u64, only: Option<u64>) -> Part {
        let mut part = Part::default();
        let workload = match no_panic(|| Workload::run(self, number, part.operations())) {
            Ok(workload) => workload,
            Err(violation) => return part.ended_by(self.failed_before_any_crash(number, violation)),
        };
        let mut replay = Replay::new(&workload.session.base, &workload.session.record);
        self.run_each(&mut part, (number, only), &workload.crashes, |part, number, &crash| {
            let mut trial = Trial::new(&workload, number, part);
            let outcome = no_panic(|| trial.run(crash, replay.disk(crash)));
            let (story, rotten) = trial.end();
            (outcome, story, rotten)
        });
        part
    }
}

/// The event log of one workload of a plan: every write, flush and acknowledgement.
///
/// # Errors
/// The workload cannot be run.
pub fn event_log(plan: &Plan, workload: u64) -> Result<Vec<Record>, Violation> {
    Workload::run(plan, workload, &mut Counts::default()).map(|workload| workload.session.record)
}

/// A session on a fresh volume, and the crashes of it that are tried.
#[derive(Debug)]
struct Workload {
    plan: Plan,
    world: World,
    session: Session,
    crashes: Vec<Crash>,
    ids: Ids,
}

impl Workload {
    fn run(plan: &Plan, number: u64, counts: &mut Counts) -> Result<Workload, Violation> {
        let mut random = Random::from(&[plan.seed, 1, number]);
        let world = match number % 4 {
            3 => World::crowded(random.bits())?,
            _ => World::new(random.bits())?,
        };
        let mut ids = Ids::default();
        let fresh = State::after_power_cut(world.disk.copy(), Expectation::default());
        maybe_reorder(plan, &fresh.disk, &mut random);
        let mut guide = ByChance::new(&mut random, &mut ids, WORKLOAD_OPS, true);
        guide.fill(&world.crowd);
        let mut session = run_session(fresh, &mut guide, counts)?;
        weaken_or_check(plan, &world, &mut session, false)?;
        let crashes = choose_crashes(&session, &mut random);
        Ok(Workload {
            plan: *plan,
            world,
            session,
            crashes,
            ids,
        })
    }
}

/// Half of the disks work on many requests at a time, and end them in any order. (The weakenings know writes by their order.)
fn maybe_reorder(plan: &Plan, disk: &Disk, random: &mut Random) {
    if plan.weakening.is_none() && random.percent(50) {
        let flash = Flash {
            jitter_percent: 400,
            ..Flash::default()
        };
        disk.set_profile(Profile::Flash(flash));
    }
}

/// Edits what a session added to its record; of an honest one the order of its writes is looked at.
fn weaken_or_check(plan: &Plan, world: &World, session: &mut Session, rotten: bool) -> Result<(), Violation> {
    let Some(weakening) = plan.weakening else {
        return order::check(session, &world.layout, rotten);
    };
    let own = session.record.split_off(session.inherited);
    session.record.extend(weakening.apply(own, &session.ops, &world.layout));
    Ok(())
}

/// All crashes of a session's own records.
pub(crate) fn crashes_of(session: &Session) -> impl Iterator<Item = Crash> + '_ {
    let own = states(&session.record).skip_while(|crash| crash.prefix < session.inherited);
    own.filter(|crash| !is_just_before_a_mark(session, *crash))
}

/// A crash at any of the session's own records, each as likely as the others; then any of that one's.
fn pick_crash(session: &Session, random: &mut Random) -> Crash {
    let own = (session.record.len() - session.inherited) as u64;
    let prefix = session.inherited + random.below(own + 1) as usize;
    random
        .pick(&cuts(&session.record, prefix))
        .copied()
        .unwrap_or(Crash::clean(prefix))
}

/// At most as many as have numbers, in the order of the record.
fn choose_crashes(session: &Session, random: &mut Random) -> Vec<Crash> {
    let mut chosen: Vec<Crash> = (0..Plan::PER_WORKLOAD).map(|_| pick_crash(session, random)).collect();
    chosen.retain(|crash| !is_just_before_a_mark(session, *crash));
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Behind a mark are the same bytes, and more is promised.
fn is_just_before_a_mark(session: &Session, crash: Crash) -> bool {
    matches!(session.record.get(crash.prefix), Some(Record::Mark(_)))
}
