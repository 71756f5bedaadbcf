//! Small scope, everything in it: all sequences of a few operations over two names and three sizes, cut at every record.
//!
//! A sequence begins on a fresh volume, or on one that was used and closed, and on a disk that ends one request before the next begins or
//! on one that ends them in any order ([`Start`]). Its states are those of its last operation; those before are the states of the
//! shorter sequence. Each is opened, checked, used once more (differently from state to state), closed, and opened and
//! checked again. What cannot be done (a name that is missing, no room) belongs to the sequences too: it must be refused.

use std::fmt;

use baio_engine::sim::crash::Replay;
use baio_engine::sim::log::Record;

use crate::explore::{crashes_of, end_in_any_order};
use crate::model::{Key, UIDS};
use crate::oracle::Expectation;
use crate::report::{self, Failure, Part, Report, no_panic};
use crate::violation::Violation;
use crate::workload::{Counts, Ids, Script, Session, State, Step, run_session};
use crate::world::World;

/// Both of one owner: they compete for names as well as for blocks.
const KEYS: [Key; 2] = [Key { uid: UIDS[0], name: 0 }, Key { uid: UIDS[0], name: 1 }];

/// A third name, for the use after a crash.
const OTHER: Key = Key { uid: UIDS[1], name: 2 };

/// In blocks, of the 48 that the volume has: two of the largest do not fit.
const SIZES: [u64; 3] = [1, 4, 26];

const SEED: u64 = 7;

/// What is counted beside the states.
const COUNTED: &[&str] = &["sequences", "sequences_possible", "openings_checked"];

/// On what a sequence begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A volume just formatted.
    Fresh,
    /// A volume that holds the first name, with bytes in it, and on which the second was made and deleted; closed.
    Used,
    /// As the first, on a disk that works on many requests at a time and ends them in any order.
    FreshAnyOrder,
    /// As the second, on such a disk.
    UsedAnyOrder,
}

impl Start {
    const ALL: [Start; 4] = [Start::Fresh, Start::Used, Start::FreshAnyOrder, Start::UsedAnyOrder];

    fn steps(self) -> Vec<Step> {
        let [one, two] = KEYS;
        match self {
            Start::Fresh | Start::FreshAnyOrder => Vec::new(),
            Start::Used | Start::UsedAnyOrder => vec![
                Step::Create(two, SIZES[2]),
                Step::Create(one, SIZES[1]),
                Step::WriteDurable(one),
                Step::Delete(two),
                Step::Close,
            ],
        }
    }

    fn is_any_order(self) -> bool {
        matches!(self, Start::FreshAnyOrder | Start::UsedAnyOrder)
    }
}

/// Every operation that a sequence may have at any place.
#[must_use]
pub fn alphabet() -> Vec<Step> {
    let [one, two] = KEYS;
    let of_both = |step: fn(Key) -> Step| KEYS.map(step);
    let creates = KEYS
        .into_iter()
        .flat_map(|key| SIZES.map(|size| Step::Create(key, size)));
    creates
        .chain(of_both(Step::Delete))
        .chain(of_both(Step::WriteDurable))
        .chain(of_both(Step::Write))
        .chain(of_both(Step::Sync))
        .chain(
            KEYS.into_iter()
                .flat_map(|key| SIZES.map(|size| Step::Resize(key, size))),
        )
        .chain([Step::Rename(one, two), Step::Rename(two, one)])
        .chain(of_both(Step::Move))
        .chain([Step::Quota(one, SIZES[1]), Step::Defrag, Step::Grow, Step::Reopen])
        .collect()
}

/// Sequences of up to this length are numbered: first the empty one, then those of one operation, and so on, each with every
/// start.
#[must_use]
pub fn sequences(length: u32) -> u64 {
    let letters = alphabet().len() as u64;
    let all: u64 = (0..=length).map(|length| letters.pow(length)).sum();
    all * Start::ALL.len() as u64
}

/// A sequence by its number.
#[must_use]
pub fn sequence(number: u64) -> (Start, Vec<Step>) {
    let starts = Start::ALL.len() as u64;
    (Start::ALL[(number % starts) as usize], steps(number / starts))
}

fn steps(mut number: u64) -> Vec<Step> {
    let alphabet = alphabet();
    let letters = alphabet.len() as u64;
    let mut length = 0;
    while number >= letters.pow(length) {
        number -= letters.pow(length);
        length += 1;
    }
    (0..length)
        .rev()
        .map(|place| alphabet[(number / letters.pow(place) % letters) as usize])
        .collect()
}

/// A sequence as it is told.
struct Told<'a>(Start, &'a [Step]);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.0, self.1)
    }
}

/// Runs all sequences of up to `length` operations on so many threads.
#[must_use]
pub fn run(length: u32, threads: usize) -> Report {
    let all = sequences(length);
    report::of_all(COUNTED, threads, |number| {
        (number < all).then(|| run_sequence(number, None))
    })
}

/// Runs half of them, that of number 0 or that of number 1: each sequence on both volumes, and of the two disks on one with each.
#[must_use]
pub fn run_half(length: u32, half: u64, threads: usize) -> Report {
    let all = sequences(length) / 2;
    report::of_all(COUNTED, threads, |nth| {
        (nth < all).then(|| run_sequence(of_half(half, nth), None))
    })
}

/// The number of a sequence by its place in a half.
fn of_half(half: u64, nth: u64) -> u64 {
    let (steps, volume) = (nth / 2, nth % 2);
    // The disk changes from volume to volume, and from one sequence to the next.
    let disk = (half + steps + volume) % 2;
    steps * Start::ALL.len() as u64 + disk * 2 + volume
}

/// Runs one sequence alone, or one state of it.
#[must_use]
pub fn run_only(sequence: u64, state: Option<u64>) -> Report {
    report::of_one(COUNTED, || run_sequence(sequence, state))
}

fn run_sequence(number: u64, only: Option<u64>) -> Part {
    let mut part = Part::default();
    let (start, steps) = sequence(number);
    part.add("sequences", 1);
    let mut ids = Ids::default();
    let recorded = no_panic(|| record(start, &steps, &mut ids, part.operations()));
    let failure = |state: Option<u64>, violation: Violation| Failure {
        number,
        replay: match state {
            Some(state) => format!("exhaustive --sequence {number} --state {state}"),
            None => format!("exhaustive --sequence {number}"),
        },
        violation: violation.after(Told(start, &steps)),
        rotten: false,
    };
    let session = match recorded {
        Ok(session) => session,
        Err(violation) => return part.ended_by(failure(None, violation)),
    };
    if !session.ops.contains(&crate::model::Op::Refused) {
        part.add("sequences_possible", 1);
    }
    let from = last_begins(&session);
    let mut replay = Replay::new(&session.base, &session.record);
    let crashes = crashes_of(&session).filter(|crash| crash.prefix >= from);
    for (nth, crash) in crashes.enumerate() {
        let nth = nth as u64;
        if only.is_some_and(|only| only != nth) {
            continue;
        }
        let disk = replay.disk(crash);
        part.state(disk.fingerprint());
        let expectation = session.expectation(crash.prefix);
        let used = no_panic(|| use_further(State::after_power_cut(disk, expectation), nth, ids, part.operations()));
        part.add("openings_checked", 2);
        if let Err(violation) = used {
            let violation = violation.after(format!("{:?} of {} records", crash, session.record.len()));
            part.failed(failure(Some(nth), violation));
        }
    }
    part
}

fn record(start: Start, steps: &[Step], ids: &mut Ids, counts: &mut Counts) -> Result<Session, Violation> {
    let mut state = State::after_power_cut(World::new(SEED)?.disk, Expectation::default());
    let before = start.steps();
    if !before.is_empty() {
        let session = run_session(state, &mut Script::new(&before, ids, SEED), counts)?;
        state = session.end();
    }
    if start.is_any_order() {
        end_in_any_order(&state.disk);
    }
    run_session(state, &mut Script::new(steps, ids, SEED + 10), counts)
}

/// The first record of the last step; of the empty sequence, the opening's.
fn last_begins(session: &Session) -> usize {
    // A step that closes and opens is two operations, and both are cut.
    let is_reopen = session.ops.last() == Some(&crate::model::Op::Open);
    let last = session.ops.len() as u64;
    let Some(before) = last.checked_sub(if is_reopen { 2 } else { 1 }) else {
        return 0;
    };
    let mark = session.record.iter().position(|record| *record == Record::Mark(before));
    mark.map_or(0, |mark| mark + 1)
}

/// Opens, checks, does one thing more, closes, opens, and checks.
fn use_further(state: State, nth: u64, mut ids: Ids, counts: &mut Counts) -> Result<(), Violation> {
    let [one, two] = KEYS;
    let uses = [
        Step::Create(OTHER, 2),
        Step::WriteDurable(one),
        Step::Delete(one),
        Step::Create(one, SIZES[1]),
        Step::Delete(two),
        Step::Create(two, SIZES[0]),
        Step::Resize(one, SIZES[2]),
        Step::Rename(one, two),
        Step::Move(one),
        Step::Resize(two, SIZES[1]),
        Step::Move(two),
    ];
    let steps = [uses[(nth % uses.len() as u64) as usize], Step::Reopen];
    run_session(state, &mut Script::new(&steps, &mut ids, SEED + 100), counts).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_has_a_number() {
        let letters = alphabet().len() as u64;
        let starts = Start::ALL.len() as u64;
        assert_eq!(sequences(2), (1 + letters + letters * letters) * starts);
        let all: Vec<_> = (0..sequences(2)).map(sequence).collect();
        assert_eq!(all[0], (Start::Fresh, Vec::new()));
        for (at, sequence) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(sequence), "{sequence:?} twice");
        }
    }

    #[test]
    fn both_halves_are_all_and_each_has_both_volumes_and_both_disks() {
        let all = sequences(2);
        let of = |half: u64| (0..all / 2).map(move |nth| of_half(half, nth));
        let mut both: Vec<u64> = of(0).chain(of(1)).collect();
        both.sort_unstable();
        assert_eq!(both, (0..all).collect::<Vec<u64>>());
        for half in [0, 1] {
            let starts: Vec<Start> = of(half).map(|number| sequence(number).0).collect();
            for start in Start::ALL {
                let count = starts.iter().filter(|other| **other == start).count() as u64;
                assert!(count.abs_diff(all / 8) <= 1, "{start:?}: {count}");
            }
            let is_fresh = |start: &Start| matches!(start, Start::Fresh | Start::FreshAnyOrder);
            for pair in starts.chunks(2) {
                assert!(is_fresh(&pair[0]) && !is_fresh(&pair[1]), "{pair:?}");
                assert_ne!(pair[0].is_any_order(), pair[1].is_any_order(), "{pair:?}");
            }
        }
    }
}
