//! Exploration by chance: numbered trials, each of which follows from the seed and its number.
//!
//! Trial `k` belongs to workload `k / TRIALS_PER_WORKLOAD`, a session on a fresh volume, and begins at one crash of its
//! record. The state is opened and checked. Some trials go on: the opened volume is used, on the record; that record is cut
//! again, possibly inside the opening, or the process is killed with the power on; and again, at most three times.
//! Once in some trials a metadata page rots before an opening.
//!
//! Workloads are shared out among the cores and put together in the order of their numbers, so equal seeds give equal
//! reports on any machine.

use std::time::Duration;

use baio_engine::sim::crash::{Crash, Replay, cuts, states};
use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Flash, Profile};

use crate::cores;
use crate::mutate::Weakening;
use crate::oracle::Expectation;
use crate::order;
use crate::random::Random;
use crate::report::{self, Failure, Part, Report, Sum, no_panic};
use crate::violation::Violation;
use crate::workload::{ByChance, Counts, Ids, Session, State, run_session};
use crate::world::World;

mod trial;

use trial::Trial;

/// Numbers given to each workload; those that its record has no crashes for stay unused.
pub const TRIALS_PER_WORKLOAD: u64 = 256;

/// Operations of a workload.
const WORKLOAD_OPS: usize = 18;

/// What is counted beside the states.
const COUNTED: &[&str] = &["trials", "continued", "rotten", "erased", "checked"];

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

    /// The arguments that run one trial alone.
    #[must_use]
    pub fn replay(&self, trial: u64) -> String {
        let rot = if self.rot { "" } else { " --no-rot" };
        let weaken = self
            .weakening
            .map(|w| format!(" --weaken {}", w.name))
            .unwrap_or_default();
        format!("crash --seed {}{rot}{weaken} --only {trial}", self.seed)
    }
}

/// When to stop: behind the workload in which it comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// So many distinct states were opened.
    Distinct(u64),
    /// The same, or a promise was broken.
    Broken(u64),
}

impl Until {
    pub(crate) fn is_done(self, sum: &Sum) -> bool {
        match self {
            Until::Distinct(states) => sum.distinct() >= states,
            Until::Broken(states) => sum.is_broken() || sum.distinct() >= states,
        }
    }
}

/// Runs trials in order until told to stop, on so many threads.
#[must_use]
pub fn run(plan: &Plan, until: Until, threads: usize) -> Report {
    let mut sum = Sum::of(COUNTED);
    if !until.is_done(&sum) {
        cores::in_order(
            threads,
            |number| Some(run_workload(plan, number, None)),
            |part| {
                sum.add(part);
                !until.is_done(&sum)
            },
        );
    }
    sum.done()
}

/// Explores for so long, a new seed for every workload; stops at the first broken promise. The seeds follow from the plan's.
#[must_use]
pub fn soak(plan: &Plan, time: Duration, threads: usize, mut tell: impl FnMut(&Sum)) -> Report {
    let mut sum = Sum::of(COUNTED);
    cores::in_order(
        threads,
        |number| {
            let seed = Random::from(&[plan.seed, 4, number]).bits();
            Some(run_workload(&Plan { seed, ..*plan }, 0, None))
        },
        |part| {
            sum.add(part);
            tell(&sum);
            !sum.is_broken() && sum.seconds() < time.as_secs_f64()
        },
    );
    sum.done()
}

/// Runs one trial alone.
#[must_use]
pub fn run_only(plan: &Plan, trial: u64) -> Report {
    let (workload, nth) = (trial / TRIALS_PER_WORKLOAD, trial % TRIALS_PER_WORKLOAD);
    report::of_one(COUNTED, || run_workload(plan, workload, Some(nth as usize)))
}

fn run_workload(plan: &Plan, number: u64, only: Option<usize>) -> Part {
    let mut part = Part::default();
    let first = number * TRIALS_PER_WORKLOAD;
    let failure = |number, violation, rotten| Failure {
        number,
        replay: plan.replay(number),
        violation,
        rotten,
    };
    let workload = match no_panic(|| Workload::run(plan, number, part.operations())) {
        Ok(workload) => workload,
        Err(violation) => {
            let violation = violation.after(format!("workload {number} of seed {}, before any crash", plan.seed));
            return part.ended_by(failure(first, violation, false));
        }
    };
    let mut replay = Replay::new(&workload.session.base, &workload.session.record);
    for (nth, &crash) in workload.crashes.iter().enumerate() {
        if only.is_some_and(|only| only != nth) {
            continue;
        }
        part.add("trials", 1);
        let number = first + nth as u64;
        let mut trial = Trial::new(&workload, number, &mut part);
        let outcome = no_panic(|| trial.run(crash, replay.disk(crash)));
        let (story, rotten) = trial.end();
        if let Err(violation) = outcome {
            part.failed(failure(number, violation.after(story), rotten));
        }
    }
    part
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
    let mut chosen: Vec<Crash> = (0..TRIALS_PER_WORKLOAD).map(|_| pick_crash(session, random)).collect();
    chosen.retain(|crash| !is_just_before_a_mark(session, *crash));
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Behind a mark are the same bytes, and more is promised.
fn is_just_before_a_mark(session: &Session, crash: Crash) -> bool {
    matches!(session.record.get(crash.prefix), Some(Record::Mark(_)))
}
