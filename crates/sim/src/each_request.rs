//! Every fault of the device at every request of short sessions, one at a time: of an opening, of a repair, of a move and a
//! close, of one operation of each kind.
//!
//! A fault strikes once (a read error that heals, a flush that fails) or from then on (a device that is gone, a host without
//! room), under metadata and under data. What is answered meanwhile must be right or an error. Then the device is healthy
//! again. The open volume is asked for more: it refuses, or keeps its word. Then, with the power on, or after a power cut that loses what no flush covered. The volume opens, holds what was
//! acknowledged, a check names nothing, and it is used further.

use baio_engine::sim::{Disk, Fault, Faults, Trigger};

use crate::every_bit::{Ending, Reference, key};
use crate::oracle::Expectation;
use crate::report::{self, Failure, Part, Report, no_panic};
use crate::violation::{Kind, Violation};
use crate::workload::{Driver, Guide, Ids, Script, State, Step, run_session};
use crate::world;

/// What is counted beside the states.
const COUNTED: &[&str] = &["struck", "answered_with_an_error", "passed_unseen", "went_on"];

/// A session has fewer requests than this.
const REQUESTS_MAX: u64 = 1_000;

const SEED: u64 = 23;

/// What the session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Open,
    Repair,
    MoveAndClose,
    Change,
    Pack,
}

impl Doing {
    const ALL: [Doing; 5] = [
        Doing::Open,
        Doing::Repair,
        Doing::MoveAndClose,
        Doing::Change,
        Doing::Pack,
    ];

    fn steps(self) -> Vec<Step> {
        match self {
            Doing::Open | Doing::Repair => Vec::new(),
            // The sums of the snapshot stay, and its bits change.
            Doing::MoveAndClose => vec![Step::Move(key(0, 3)), Step::Close],
            Doing::Change => vec![
                Step::Create(key(1, 0), 3),
                Step::WriteDurable(key(1, 0)),
                Step::Resize(key(0, 1), 5),
                Step::Resize(key(0, 2), 2),
                Step::Rename(key(1, 1), key(1, 3)),
                Step::Delete(key(0, 4)),
                Step::Quota(key(0, 0), 40),
                Step::Write(key(0, 1)),
                Step::Sync(key(0, 1)),
                Step::Grow,
                Step::Close,
            ],
            Doing::Pack => vec![Step::Delete(key(0, 1)), Step::Defrag, Step::Reopen],
        }
    }
}

/// A fault, and whether it stays.
type Struck = (Fault, bool);

const FAULTS: [Struck; 9] = [
    (Fault::ReadError, false),
    (Fault::ReadError, true),
    (Fault::WriteError, false),
    (Fault::WriteError, true),
    (Fault::NoSpace, false),
    (Fault::NoSpace, true),
    (Fault::TornWrite, false),
    (Fault::FailedFlush, false),
    (Fault::LostWrite, false),
];

const ENDINGS: [Ending; 2] = [Ending::Closed, Ending::HalfDone];

/// One session with one fault: where it begins, what it does, what strikes.
#[derive(Clone, Copy, Debug)]
struct Case {
    ending: Ending,
    doing: Doing,
    fault: Struck,
}

impl Case {
    fn of(number: u64) -> Option<Case> {
        let number = number as usize;
        let of_ending = Doing::ALL.len() * FAULTS.len();
        Some(Case {
            ending: *ENDINGS.get(number / of_ending)?,
            doing: Doing::ALL[number / FAULTS.len() % Doing::ALL.len()],
            fault: FAULTS[number % FAULTS.len()],
        })
    }
}

/// Runs every case, at every request, on so many threads.
#[must_use]
pub fn run(threads: usize) -> Report {
    report::of_all(COUNTED, threads, |number| {
        Case::of(number).map(|case| run_case(number, case, None))
    })
}

/// Runs one case at one request.
#[must_use]
pub fn run_only(number: u64, nth: u64) -> Report {
    let case = Case::of(number);
    report::of_one(COUNTED, || {
        case.map(|case| run_case(number, case, Some(nth))).unwrap_or_default()
    })
}

fn run_case(number: u64, case: Case, only: Option<u64>) -> Part {
    let mut part = Part::default();
    let failure = |nth: u64, violation: Violation| Failure {
        number,
        replay: format!("each-request --case {number} --request {nth}"),
        violation: violation.after(format!("{case:?}, at request {nth} of those that it can strike")),
        rotten: false,
    };
    let reference = match no_panic(|| Reference::make(case.ending)) {
        Ok(reference) => reference,
        Err(violation) => return part.ended_by(failure(0, violation)),
    };
    for nth in 1..REQUESTS_MAX {
        if only.is_some_and(|only| only != nth) {
            continue;
        }
        let mut trial = Trial {
            reference: &reference,
            case,
            part: &mut part,
        };
        match no_panic(|| trial.run(nth)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(violation) => part.failed(failure(nth, violation)),
        }
    }
    part
}

struct Trial<'a> {
    reference: &'a Reference,
    case: Case,
    part: &'a mut Part,
}

impl Trial<'_> {
    /// `false`: there are fewer requests.
    fn run(&mut self, nth: u64) -> Result<bool, Violation> {
        let disk = self.reference.disk.copy();
        let (fault, stays) = self.case.fault;
        let trigger = Trigger::nth(fault, nth).times(if stays { u64::MAX } else { 1 });
        let trigger = match fault {
            // Of the users' bytes there is one copy.
            Fault::LostWrite => trigger.within(0..self.reference.layout.data_at()),
            _ => trigger,
        };
        disk.set_faults(Faults::none().when(trigger));
        let mut ids = self.reference.ids;
        let expectation = match self.case.doing {
            Doing::Repair => {
                let repaired = world::check(&disk, SEED, true).map(drop);
                self.answered(&disk, repaired)?;
                self.reference.expectation.clone()
            }
            doing => self.use_failing(&disk, &doing.steps(), &mut ids)?,
        };
        if disk.faults_injected().total() == 0 {
            return Ok(false);
        }
        self.part.add("struck", 1);
        for (healthy, how) in [(disk.copy(), "the power stayed on"), (disk.power_cut(nth), "power cut")] {
            self.part.state(healthy.fingerprint());
            self.look(&healthy, &expectation, ids)
                .map_err(|violation| violation.after(how))?;
        }
        Ok(true)
    }

    /// An error is an answer if something has struck.
    fn answered(&mut self, disk: &Disk, answer: Result<(), Violation>) -> Result<bool, Violation> {
        let struck = disk.faults_injected().total() > 0;
        match answer {
            Ok(()) => {
                self.part.add("passed_unseen", u64::from(struck));
                Ok(true)
            }
            Err(violation) if struck && matches!(violation.kind, Kind::Failed | Kind::Refused) => {
                self.part.add("answered_with_an_error", 1);
                Ok(false)
            }
            Err(violation) => Err(violation),
        }
    }

    /// Uses the volume until something answers with an error. Returns what must be there then.
    fn use_failing(&mut self, disk: &Disk, steps: &[Step], ids: &mut Ids) -> Result<Expectation, Violation> {
        let before = self.reference.expectation.clone();
        let mut script = Script::new(steps, ids, SEED);
        let mut driver = match Driver::open_unchecked(disk.clone(), script.seed()) {
            Ok(driver) => driver,
            Err(violation) => return self.answered(disk, Err(violation)).map(|_| before),
        };
        let accepted = driver.accept(&before, 1, |_| {});
        if !self.answered(disk, accepted)? {
            return Ok(before);
        }
        while let Some(op) = script.next(driver.model(), driver.is_open()) {
            let model = driver.model().clone();
            let done = driver.perform(op.clone(), script.seed());
            let in_doubt = Expectation {
                model,
                under_way: Some(op),
            };
            match done {
                Ok(done) => self.part.operations().count(&done),
                Err(violation) => {
                    self.answered(disk, Err(violation))?;
                    driver.look_around(&in_doubt, |_| {})?;
                    return self.go_on(driver, in_doubt, script);
                }
            }
        }
        let model = driver.model().clone();
        drop(driver.kill());
        Ok(Expectation::exactly(model))
    }

    /// The device works again, or there is room again: the open volume refuses what it cannot promise any more, or keeps its word.
    fn go_on(
        &mut self,
        mut driver: Driver,
        mut in_doubt: Expectation,
        script: Script<'_>,
    ) -> Result<Expectation, Violation> {
        driver.disk().set_faults(Faults::none());
        let mut more = Script {
            steps: &[Step::Create(key(1, 4), 2), Step::WriteDurable(key(1, 4))],
            ..script
        };
        while driver.is_open() {
            let Some(op) = more.next(driver.model(), true) else {
                break;
            };
            match driver.go_on(op, SEED) {
                Ok(done) => {
                    self.part.add("went_on", 1);
                    in_doubt.model.acknowledge(&done);
                }
                Err(violation) if violation.kind == Kind::Failed => break,
                Err(violation) => return Err(violation),
            }
        }
        let _ = driver.close();
        Ok(in_doubt)
    }

    /// On a healthy device everything is there, nothing is wrong, and it can be used.
    fn look(&mut self, disk: &Disk, expectation: &Expectation, mut ids: Ids) -> Result<(), Violation> {
        let driver = Driver::open(disk.copy(), expectation, SEED + 1)?;
        let model = driver.model().clone();
        let disk = driver.kill();
        if self.case.fault.0 == Fault::LostWrite {
            // What was lost unseen in one copy is found by whoever looks at all copies; and takes nothing back that was served.
            let repaired = disk.copy();
            world::check(&repaired, SEED + 2, true)?;
            let served = Expectation::exactly(model.clone());
            let opened = Driver::open(repaired, &served, SEED + 4).map(drop);
            opened.map_err(|violation| violation.after("repaired"))?;
        } else {
            let report = world::check(&disk, SEED + 2, false)?;
            if !report.problems.is_empty() {
                let story = format!("a check finds {:?}", report.problems);
                return Err(Violation::new(Kind::Failed, story));
            }
        }
        let mut steps: Vec<Step> = (0..5)
            .map(|name| key(1, name))
            .filter(|key| !model.segments.contains_key(key))
            .map(|key| Step::Create(key, 3))
            .collect();
        steps.push(Step::Reopen);
        let mut script = Script::new(&steps, &mut ids, SEED + 3);
        let state = State::after_power_cut(disk, Expectation::exactly(model));
        run_session(state, &mut script, self.part.operations()).map(drop)
    }
}
