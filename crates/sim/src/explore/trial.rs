//! One trial: a crash, an opening, and some more of both.

use baio_engine::sim::crash::{Crash, Replay, covered};
use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Random};
use baio_storage::{Problem, Repair};

use super::workload::{Workload, maybe_reorder, pick_crash, weaken_or_check};
use crate::mutate::{Weakening, volatile};
use crate::oracle::Expectation;
use crate::order;
use crate::report::Part;
use crate::rot::Rot;
use crate::violation::{Kind, Violation};
use crate::workload::{ByChance, Driver, Ids, Session, State, run_session};
use crate::world;

/// How often a trial goes on from a crash at most.
const DEPTH_MAX: usize = 3;

/// One trial under way.
pub(super) struct Trial<'a> {
    part: &'a mut Part,
    workload: &'a Workload,
    random: Random,
    ids: Ids,
    story: Vec<String>,
    rotten: bool,
    depth: usize,
}

impl<'a> Trial<'a> {
    pub(super) fn new(workload: &'a Workload, number: u64, part: &'a mut Part) -> Trial<'a> {
        Trial {
            part,
            workload,
            random: Random::from(&[workload.plan.seed, 2, number]),
            ids: workload.ids,
            story: Vec::new(),
            rotten: false,
            depth: 0,
        }
    }

    /// What happened, and whether a page rotted.
    pub(super) fn end(self) -> (String, bool) {
        (self.story.join("\n  "), self.rotten)
    }

    pub(super) fn run(&mut self, crash: Crash, disk: Disk) -> Result<(), Violation> {
        let length = self.workload.session.record.len();
        self.story.push(format!("workload of {length} records, {crash:?}"));
        let mut state = self.fall(&self.workload.session, crash, Some(disk))?;
        while self.goes_on(&state) {
            self.depth += 1;
            self.part.add("continued", 1);
            let session = self.session(state)?;
            let crash = pick_crash(&self.workload.plan, &session, &mut self.random);
            let length = session.record.len();
            self.story
                .push(format!("session {:?} of {length} records, {crash:?}", session.ops));
            state = self.fall(&session, crash, None)?;
        }
        self.maybe_rot(&mut state);
        self.count(&state.disk);
        self.look(&state)
    }

    /// Opens the last state; now and then it is checked before, repaired before, or checked after.
    fn look(&mut self, state: &State) -> Result<(), Violation> {
        let mut with = Random::from(&[self.random.bits()]);
        let seed = with.bits();
        let what = with.below(12);
        if what == 0 {
            self.story.push("repaired by a check".into());
            world::check(&state.disk, seed, true)?;
            self.check(&state.disk, seed, false)?;
        }
        if what == 3 && !self.rotten && self.workload.plan.rot {
            self.erase_one(state, seed)?;
        }
        if what == 1 && !self.rotten {
            // What a crash left half-written is told, and nothing of it is lost.
            self.check(&state.disk, seed, true)?;
        }
        let driver = Driver::open(state.disk.clone(), &state.expectation, seed)?;
        let disk = driver.kill();
        if what == 2 && !self.rotten {
            self.story.push("opened, looked at, and killed".into());
            self.check(&disk, seed, false)?;
        }
        Ok(())
    }

    /// The limit of the format: zeroes over an early image of the table look as if nothing had been written. A check knows by
    /// the mirror, and a repair brings it back.
    fn erase_one(&mut self, state: &State, seed: u64) -> Result<(), Violation> {
        let layout = &self.workload.world.layout;
        let Some(rot) = Rot::within_the_limit(&state.disk, layout, &mut self.random) else {
            return Ok(());
        };
        rot.strike(&state.disk, layout);
        self.rotten = true;
        self.story.push(format!("{rot}, repaired by a check"));
        self.part.add("erased", 1);
        world::check(&state.disk, seed, true)?;
        self.check(&state.disk, seed, false)
    }

    /// A check names nothing and doubts nothing; or, of a crash, nothing that costs anything.
    fn check(&mut self, disk: &Disk, seed: u64, of_a_crash: bool) -> Result<(), Violation> {
        self.part.add("checked", 1);
        let report = world::check(disk, seed, false)?;
        let is_allowed = |problem: &Problem| of_a_crash && problem.repair == Repair::Repairable;
        if report.problems.iter().all(is_allowed) && (of_a_crash || report.in_doubt == 0) {
            return Ok(());
        }
        let (problems, in_doubt) = (&report.problems, report.in_doubt);
        let story = format!("a check finds {problems:?}, and {in_doubt} buckets in doubt");
        Err(Violation::new(Kind::Failed, story))
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
        maybe_reorder(&self.workload.plan, &state.disk, &mut self.random);
        let left = self.random.below(4) as usize;
        let mut guide = ByChance::new(&mut self.random, &mut self.ids, left, true);
        let mut session = run_session(state, &mut guide, self.part.operations())?;
        weaken_or_check(&self.workload.plan, &self.workload.world, &mut session, self.rotten)?;
        Ok(session)
    }

    /// The disk as a power cut leaves it; or, now and then, as a kill at the same moment does.
    fn fall(&mut self, session: &Session, crash: Crash, disk: Option<Disk>) -> Result<State, Violation> {
        let expectation = session.expectation(crash.prefix);
        let keeps_contents = self.workload.plan.weakening.is_none_or(Weakening::keeps_contents);
        let early = crash.early(&session.record);
        let nothing_lost = crash.torn.is_none() && crash.swayed.count_ones() as usize == early.len();
        if nothing_lost && keeps_contents && self.depth < DEPTH_MAX && self.random.percent(40) {
            self.story.push("killed there, the power stayed on".into());
            return Ok(killed(session, crash.prefix, &early, expectation));
        }
        let is_honest = self.workload.plan.weakening.is_none();
        let disk = disk.unwrap_or_else(|| Replay::new(&session.base, &session.record).disk(crash));
        if is_honest && !self.rotten {
            order::pairs(&disk, &self.workload.world.layout)?;
        }
        Ok(State::after_power_cut(disk, expectation))
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
        self.part.state(disk.fingerprint());
        self.part.add("rotten", u64::from(self.rotten));
    }
}

/// A process is killed after so many records. All of them are there to be read, and so are the early ones of the writes that
/// it had under way, durable or not perhaps only in the device's cache. What no flush covers can still be lost by a power cut
/// later on.
fn killed(session: &Session, prefix: usize, early: &[usize], expectation: Expectation) -> State {
    let mut happened = session.record[..prefix].to_vec();
    happened.extend(early.iter().map(|&at| volatile(session.record[at].clone())));
    let flushed = covered(&happened);
    let is_volatile = |record: &Record| matches!(record, Record::Write { durable: false, .. });
    let settled = happened[flushed..]
        .iter()
        .position(is_volatile)
        .map_or(happened.len(), |at| flushed + at);
    let whole = |record: &[Record]| Replay::new(&session.base, record).disk(Crash::clean(record.len()));
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
