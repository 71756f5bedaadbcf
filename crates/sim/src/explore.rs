//! Exploration: numbered trials, each of which follows from the seed and its number.
//!
//! Trial `k` belongs to workload `k / TRIALS_PER_WORKLOAD`, a session on a fresh volume, and begins at one crash of its
//! record. The state is opened and checked. Some trials go on: the opened volume is used, on the record; that record is cut
//! again, possibly inside the opening, or the process is killed with the power on; and again, at most `DEPTH_MAX` times.
//! Once in some trials a metadata page rots before an opening.

use std::collections::HashSet;
use std::time::Instant;

use baio_engine::sim::Disk;
use baio_engine::sim::crash::{Crash, Replay, covered, states};
use baio_engine::sim::log::Record;
use serde::Serialize;

use crate::mutate::{Weakening, volatile};
use crate::observe::observe;
use crate::oracle::{Expectation, Kind, Violation};
use crate::random::Random;
use crate::rot::Rot;
use crate::workload::{Counts, Ids, Session, State, run_session};
use crate::world::{self, World};

/// Numbers given to each workload; those that its record has no crashes for stay unused.
pub const TRIALS_PER_WORKLOAD: u64 = 256;

/// Operations of a workload.
const WORKLOAD_OPS: usize = 18;

/// How often a trial goes on from a crash at most.
const DEPTH_MAX: usize = 3;

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

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// So many distinct states were opened.
    Distinct(u64),
    /// The same, or a promise was broken.
    Broken(u64),
}

/// A trial that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its number.
    pub trial: u64,
    /// What is wrong, and how it came about.
    pub violation: Violation,
    /// Did a page rot?
    pub rotten: bool,
    /// How many sessions followed the workload.
    pub depth: usize,
}

/// What came out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Of this object.
    pub schema_version: u32,
    /// States that were opened and checked.
    pub states: u64,
    /// Of these, with different bytes on the disk.
    pub distinct: u64,
    /// States in which something acknowledged, or once served, was lost.
    pub acknowledged_lost: u64,
    /// States that did not open.
    pub mounts_refused: u64,
    /// States with two segments on one block.
    pub overlaps: u64,
    /// States whose free space did not add up.
    pub leaks: u64,
    /// States that showed bytes never written to the segment.
    pub stale_bytes: u64,
    /// States in which an operation failed that should not.
    pub operations_failed: u64,
    /// How long it took.
    pub seconds: f64,
    /// States with one rotten page.
    pub rotten: u64,
    /// Sessions that went on from a crash.
    pub continued: u64,
    /// Trials run.
    pub trials: u64,
    /// Operations run to make the states.
    pub operations: Counts,
    /// The first trials that failed.
    #[serde(skip)]
    pub failures: Vec<Failure>,
}

impl Report {
    /// Was any promise broken?
    #[must_use]
    pub fn is_broken(&self) -> bool {
        !self.failures.is_empty()
    }

    fn count(&mut self, kind: Kind) {
        *match kind {
            Kind::Refused => &mut self.mounts_refused,
            Kind::Lost => &mut self.acknowledged_lost,
            Kind::Overlap => &mut self.overlaps,
            Kind::Leak => &mut self.leaks,
            Kind::Stale => &mut self.stale_bytes,
            Kind::Failed => &mut self.operations_failed,
        } += 1;
    }
}

/// Failures that are kept with their story.
const FAILURES_KEPT: usize = 16;

/// Runs trials.
#[derive(Debug)]
pub struct Explorer {
    plan: Plan,
    report: Report,
    fingerprints: HashSet<u64>,
}

impl Explorer {
    /// An explorer that has seen nothing yet.
    #[must_use]
    pub fn new(plan: Plan) -> Explorer {
        Explorer {
            plan,
            report: Report {
                schema_version: 1,
                ..Report::default()
            },
            fingerprints: HashSet::new(),
        }
    }

    /// Runs trials in order until told to stop.
    ///
    /// # Errors
    /// A workload cannot even be run without a crash.
    pub fn run(mut self, until: Until) -> Result<Report, Violation> {
        let begin = Instant::now();
        let mut workload = 0;
        while !self.is_done(until) {
            self.run_workload(workload, until)?;
            workload += 1;
        }
        self.report.seconds = begin.elapsed().as_secs_f64();
        Ok(self.report)
    }

    /// Runs one trial alone.
    ///
    /// # Errors
    /// As [`Explorer::run`].
    pub fn run_only(mut self, trial: u64) -> Result<Report, Violation> {
        let begin = Instant::now();
        let workload = self.workload(trial / TRIALS_PER_WORKLOAD)?;
        let crash = workload.crashes.get((trial % TRIALS_PER_WORKLOAD) as usize);
        if let Some(&crash) = crash {
            let disk = Replay::new(&workload.session.base, &workload.session.record).disk(crash);
            self.try_state(&workload, trial, crash, disk);
        }
        self.report.seconds = begin.elapsed().as_secs_f64();
        Ok(self.report)
    }

    fn is_done(&self, until: Until) -> bool {
        match until {
            Until::Distinct(states) => self.report.distinct >= states,
            Until::Broken(states) => self.report.is_broken() || self.report.distinct >= states,
        }
    }

    fn run_workload(&mut self, number: u64, until: Until) -> Result<(), Violation> {
        let workload = self.workload(number)?;
        let mut replay = Replay::new(&workload.session.base, &workload.session.record);
        for (nth, &crash) in workload.crashes.iter().enumerate() {
            if self.is_done(until) {
                break;
            }
            let disk = replay.disk(crash);
            self.try_state(&workload, number * TRIALS_PER_WORKLOAD + nth as u64, crash, disk);
        }
        Ok(())
    }

    fn workload(&mut self, number: u64) -> Result<Workload, Violation> {
        Workload::run(&self.plan, number, &mut self.report.operations)
            .map_err(|violation| violation.after(format!("workload {number} of seed {}", self.plan.seed)))
    }

    fn try_state(&mut self, workload: &Workload, number: u64, crash: Crash, disk: Disk) {
        self.report.trials += 1;
        let mut trial = Trial {
            explorer: self,
            workload,
            random: Random::from(&[workload.plan.seed, 2, number]),
            ids: workload.ids,
            story: Vec::new(),
            rotten: false,
            depth: 0,
        };
        if let Err(violation) = trial.run(crash, disk) {
            let failure = Failure {
                trial: number,
                violation: violation.after(trial.story.join("\n  ")),
                rotten: trial.rotten,
                depth: trial.depth,
            };
            self.report.count(failure.violation.kind);
            if self.report.failures.len() < FAILURES_KEPT {
                self.report.failures.push(failure);
            }
        }
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
        let world = World::new(random.bits())?;
        let mut ids = Ids::default();
        let fresh = State::after_power_cut(world.disk.copy(), Expectation::default());
        let mut session = run_session(fresh, WORKLOAD_OPS, &mut random, &mut ids, counts)?;
        weaken(plan, &world, &mut session);
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

/// Edits what a session added to its record.
fn weaken(plan: &Plan, world: &World, session: &mut Session) {
    if let Some(weakening) = plan.weakening {
        let own = session.record.split_off(session.inherited);
        session.record.extend(weakening.apply(own, &session.ops, &world.layout));
    }
}

/// Crashes of a session: of those just before a mark, the ones behind it have the same bytes and promise more.
fn crashes_of(session: &Session) -> impl Iterator<Item = Crash> + '_ {
    states(&session.record).filter(|crash| {
        crash.prefix >= session.inherited && !matches!(session.record.get(crash.prefix), Some(Record::Mark(_)))
    })
}

/// At most as many as have numbers, in the order of the record.
fn choose_crashes(session: &Session, random: &mut Random) -> Vec<Crash> {
    let mut left: u64 = crashes_of(session).count() as u64;
    let mut wanted = TRIALS_PER_WORKLOAD.min(left);
    let mut chosen = Vec::with_capacity(wanted as usize);
    for crash in crashes_of(session) {
        if random.below(left) < wanted {
            chosen.push(crash);
            wanted -= 1;
        }
        left -= 1;
    }
    chosen
}

/// One trial under way.
struct Trial<'a> {
    explorer: &'a mut Explorer,
    workload: &'a Workload,
    random: Random,
    ids: Ids,
    story: Vec<String>,
    rotten: bool,
    depth: usize,
}

impl Trial<'_> {
    fn run(&mut self, crash: Crash, disk: Disk) -> Result<(), Violation> {
        let length = self.workload.session.record.len();
        self.story.push(format!("workload of {length} records, {crash:?}"));
        let mut state = self.fall(&self.workload.session, crash, Some(disk));
        while self.goes_on(&state) {
            self.depth += 1;
            self.explorer.report.continued += 1;
            let session = self.session(state)?;
            let crashes: Vec<Crash> = crashes_of(&session).collect();
            let Some(&crash) = self.random.pick(&crashes) else {
                return Ok(());
            };
            let length = session.record.len();
            self.story
                .push(format!("session {:?} of {length} records, {crash:?}", session.ops));
            state = self.fall(&session, crash, None);
        }
        self.maybe_rot(&mut state);
        self.count(&state.disk);
        let mut core = world::open(&state.disk, self.random.bits())?;
        state.expectation.check(&observe(&mut core)?).map(drop)
    }

    /// A killed process leaves the bytes of its last state, so there the next session is what is worth trying.
    fn goes_on(&mut self, state: &State) -> bool {
        let percent = if state.tail.is_empty() { 35 } else { 100 };
        self.depth < DEPTH_MAX && self.random.percent(percent)
    }

    fn session(&mut self, mut state: State) -> Result<Session, Violation> {
        if self.random.percent(30) {
            self.maybe_rot(&mut state);
        }
        self.count(&state.disk);
        let length = self.random.below(4) as usize;
        let counts = &mut self.explorer.report.operations;
        let mut session = run_session(state, length, &mut self.random, &mut self.ids, counts)?;
        weaken(&self.workload.plan, &self.workload.world, &mut session);
        Ok(session)
    }

    /// The disk as a power cut leaves it; or, now and then, as a kill at the same moment does.
    fn fall(&mut self, session: &Session, crash: Crash, disk: Option<Disk>) -> State {
        let expectation = session.expectation(crash.prefix);
        let keeps_contents = self.workload.plan.weakening.is_none_or(Weakening::keeps_contents);
        if crash.loss.is_none() && keeps_contents && self.depth < DEPTH_MAX && self.random.percent(40) {
            self.story.push("killed there, the power stayed on".into());
            return killed(session, crash.prefix, expectation);
        }
        let disk = disk.unwrap_or_else(|| Replay::new(&session.base, &session.record).disk(crash));
        State::after_power_cut(disk, expectation)
    }

    /// What rots stays rotten in every later state, so it goes into the record of the session that finds it.
    fn maybe_rot(&mut self, state: &mut State) {
        if self.workload.plan.rot && !self.rotten && self.random.percent(40) {
            let layout = &self.workload.world.layout;
            let rot = Rot::choose(&state.disk, layout, &mut self.random);
            state.tail.extend(rot.strike(&state.disk, layout));
            self.story.push(rot.to_string());
            self.rotten = true;
        }
    }

    fn count(&mut self, disk: &Disk) {
        let report = &mut self.explorer.report;
        report.states += 1;
        report.rotten += u64::from(self.rotten);
        if self.explorer.fingerprints.insert(disk.fingerprint()) {
            report.distinct += 1;
        }
    }
}

/// A process is killed after so many records. All of them are there to be read, the last one perhaps only in the device's
/// cache; what no flush covers can still be lost by a power cut later on.
fn killed(session: &Session, prefix: usize, expectation: Expectation) -> State {
    let mut happened = session.record[..prefix].to_vec();
    if let Some(last) = happened.last_mut() {
        *last = volatile(last.clone());
    }
    let flushed = covered(&happened);
    let is_volatile = |record: &Record| matches!(record, Record::Write { durable: false, .. });
    let settled = happened[flushed..]
        .iter()
        .position(is_volatile)
        .map_or(prefix, |at| flushed + at);
    let whole = |record: &[Record]| {
        let crash = Crash {
            prefix: record.len(),
            loss: None,
        };
        Replay::new(&session.base, record).disk(crash)
    };
    State {
        disk: whole(&happened),
        base: whole(&happened[..settled]),
        tail: happened
            .split_off(settled)
            .into_iter()
            .filter(|record| !matches!(record, Record::Mark(_)))
            .collect(),
        expectation,
    }
}
