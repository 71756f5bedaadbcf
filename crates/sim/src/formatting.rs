//! Crashes inside `format` itself. It begins over stale bytes or over a volume that is in use, of the same or of another shape;
//! it is cut at every record, with every single loss. What is found then is no volume, the old one untouched, or the new
//! one, empty: never a mixture. Every second disk ends what is under way together in any order. And formatting again, over whatever is there, gives a whole new volume.

use baio_engine::sim::crash::{Crash, Replay, states};
use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Random};
use baio_storage::FormatOptions;

use crate::explore::end_in_any_order;
use crate::model::{self, Model};
use crate::oracle::Expectation;
use crate::report::{self, Failure, Part, Report, no_panic};
use crate::violation::{Kind, Violation};
use crate::workload::{ByChance, Counts, Driver, Ids, Script, State, Step, run_session};
use crate::world::{self, World};

/// What is on the disk before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Bytes of something else.
    Stale,
    /// A volume for as many segments as the new one, closed.
    Alike,
    /// A volume for more segments, so with a longer table, killed in the middle of its work.
    Larger,
}

const BEFORE: [Before; 3] = [Before::Stale, Before::Alike, Before::Larger];

/// Segments that the new volume is for: its table is shorter, as long, or longer than the old one's.
const SEGMENTS: [Option<u64>; 2] = [None, Some(22)];

/// Segments that the larger old volume is for.
const LARGER: u64 = 28;

/// What is counted beside the states.
const COUNTED: &[&str] = &["formats", "no_volume", "old_volume", "new_volume"];

/// Cuts every format of every start, on so many threads; so many seeds.
#[must_use]
pub fn run(seeds: u64, threads: usize) -> Report {
    let cases = (BEFORE.len() * SEGMENTS.len()) as u64;
    report::of_all(COUNTED, threads, |number| {
        (number < cases * seeds).then(|| run_case(number, None))
    })
}

/// Runs one state.
#[must_use]
pub fn run_only(case: u64, state: u64) -> Report {
    report::of_one(COUNTED, || run_case(case, Some(state)))
}

fn run_case(case: u64, only: Option<u64>) -> Part {
    let mut part = Part::default();
    part.add("formats", 1);
    let segments = SEGMENTS[case as usize % SEGMENTS.len()];
    let before = BEFORE[case as usize / SEGMENTS.len() % BEFORE.len()];
    let seed = case / (SEGMENTS.len() * BEFORE.len()) as u64;
    let failure = |state: u64, violation: Violation| Failure {
        number: state,
        replay: format!("format --case {case} --state {state}"),
        violation: violation.after(format!(
            "{before:?}, then a format for {segments:?} segments, seed {seed}"
        )),
        rotten: false,
    };
    let recorded = no_panic(|| {
        let (old, model) = old_disk(before, seed)?;
        let (base, record) = recorded_format(&old, segments, seed)?;
        Ok((model, base, record))
    });
    let (model, base, record) = match recorded {
        Ok(recorded) => recorded,
        Err(violation) => return part.ended_by(failure(0, violation)),
    };
    let mut replay = Replay::new(&base, &record);
    for (nth, crash) in states(&record).enumerate() {
        let nth = nth as u64;
        if only.is_some_and(|only| only != nth) {
            continue;
        }
        let disk = replay.disk(crash);
        part.state(disk.fingerprint());
        match no_panic(|| judge(&disk, model.as_ref(), crash, &record, seed)) {
            Ok(what) => part.add(what, 1),
            Err(violation) => {
                let violation = violation.after(format!("{crash:?} of {} records", record.len()));
                part.failed(failure(nth, violation));
            }
        }
    }
    part
}

/// The disk before, and what is on its volume.
fn old_disk(before: Before, seed: u64) -> Result<(Disk, Option<Model>), Violation> {
    let format = match before {
        Before::Stale => return Ok((world::stale_disk(), None)),
        Before::Alike => FormatOptions::default(),
        Before::Larger => FormatOptions {
            segments: Some(LARGER),
            ..FormatOptions::default()
        },
    };
    let world = World::formatted(seed, &format)?;
    let (mut random, mut ids) = (Random::from(&[seed, 5]), Ids::default());
    let mut guide = ByChance::new(&mut random, &mut ids, 12, false);
    let state = State::after_power_cut(world.disk, Expectation::default());
    let session = run_session(state, &mut guide, &mut Counts::default())?;
    let mut state = session.end();
    if before == Before::Alike {
        let mut script = Script::new(&[Step::Close], &mut ids, seed);
        state = run_session(state, &mut script, &mut Counts::default())?.end();
    }
    Ok((state.disk, Some(state.expectation.model)))
}

fn recorded_format(old: &Disk, segments: Option<u64>, seed: u64) -> Result<(Disk, Vec<Record>), Violation> {
    let disk = old.copy();
    if seed % 2 == 1 {
        end_in_any_order(&disk);
    }
    disk.record();
    let format = FormatOptions {
        segments,
        ..FormatOptions::default()
    };
    world::format(&disk, seed + 1000, &format)?;
    disk.mark(0);
    Ok((old.copy(), disk.take_record()))
}

/// What the crash left: its name among the counts.
fn judge(
    disk: &Disk,
    old: Option<&Model>,
    crash: Crash,
    record: &[Record],
    seed: u64,
) -> Result<&'static str, Violation> {
    let is_acknowledged = crash.prefix == record.len();
    let found = match Driver::open(disk.copy(), &Expectation::default(), seed) {
        Ok(driver) => {
            use_it(driver, seed)?;
            "new_volume"
        }
        Err(violation) if is_acknowledged => return Err(violation),
        Err(refused) if refused.kind == Kind::Refused => {
            let again = disk.copy();
            world::format(&again, seed + 2000, &FormatOptions::default())?;
            use_it(Driver::open(again, &Expectation::default(), seed)?, seed)?;
            "no_volume"
        }
        Err(not_empty) => match old {
            Some(model) => {
                let driver = Driver::open(disk.copy(), &Expectation::exactly(model.clone()), seed)?;
                drop(driver);
                "old_volume"
            }
            None => return Err(not_empty),
        },
    };
    Ok(found)
}

/// A new volume works: a segment is made, written, kept over a close, and deleted.
fn use_it(driver: Driver, seed: u64) -> Result<(), Violation> {
    let key = model::Key {
        uid: model::UIDS[0],
        name: 0,
    };
    let steps = [
        Step::Create(key, 3),
        Step::WriteDurable(key),
        Step::Reopen,
        Step::Delete(key),
        Step::Reopen,
    ];
    let mut ids = Ids::default();
    let mut script = Script::new(&steps, &mut ids, seed);
    let state = State::after_power_cut(driver.kill(), Expectation::default());
    run_session(state, &mut script, &mut Counts::default()).map(drop)
}
