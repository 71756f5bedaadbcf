//! The engine on slow, failing disks: random requests, and for each answer the question whether it may be given.
//!
//! One seed is one machine, with one engine or several, and two lives of one disk. A life runs requests (reads, writes, durable writes, allocations,
//! syncs, fences, timers; cancelled, given up, overdue) while the disk fails in the ways that its plan says; then its power is
//! cut in the middle of things, and what is left is opened by a new engine. Checked are:
//!
//! - every request is answered exactly once, and one that is given up gives its memory back exactly once;
//! - no byte beside a request's memory changes (guards around pieces of shared memory);
//! - a read returns what a legal order of the completed writes allows, in full length; a write's success is whole;
//! - `EINTR` and `EAGAIN` reach nobody who waits; a cancelled write has moved no more than it tells;
//! - no sync succeeds behind a failed one that nobody has acknowledged;
//! - a power cut leaves what a sync or a durable write has promised, and nothing that was never written;
//! - the same seed tells the same story, event by event.

mod life;
pub mod model;
mod report;
mod request;
mod weak;

use std::time::Instant;

use baio_engine::sim::Random;

use life::Life;
use report::Tale;
pub use report::{Faults, Report};

/// Bytes of the disk: small, so that requests meet.
pub const DISK_BYTES: u64 = 512 << 10;

/// Requests of one life.
const REQUESTS: u64 = 1500;

/// Lives of a disk.
const LIVES: u64 = 2;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub seeds: u64,
    /// How many engines share the machine, turned by one thread in an order that follows from the seed.
    pub engines: usize,
    /// A promise that is broken on purpose, to see it noticed.
    pub weakening: Option<Weakening>,
}

/// One promise less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakening {
    /// The backend tells `EIO` as success.
    SwallowedErrors,
    /// The disk damages a sector and says nothing.
    SilentDamage,
    /// A power cut takes a block that was safe.
    LostAtPowerCut,
    /// The backend does something that does not follow from the seed.
    Undetermined,
    /// Reads fill a byte too many.
    Overrun,
}

impl Weakening {
    /// Every one, by its name on the command line.
    pub const ALL: [(&'static str, Weakening); 5] = [
        ("swallowed-errors", Weakening::SwallowedErrors),
        ("silent-damage", Weakening::SilentDamage),
        ("lost-at-power-cut", Weakening::LostAtPowerCut),
        ("undetermined", Weakening::Undetermined),
        ("overrun", Weakening::Overrun),
    ];
}

/// A seed that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What is wrong.
    pub story: String,
}

/// Runs every seed twice; stops behind the first failures.
#[must_use]
pub fn run(plan: &Plan) -> (Report, Vec<Failure>) {
    const FAILURES_MAX: usize = 8;
    let begin = Instant::now();
    let mut report = Report {
        schema_version: 1,
        ..Report::default()
    };
    let mut failures = Vec::new();
    for seed in plan.seed..plan.seed.saturating_add(plan.seeds) {
        let (first, second) = (tell(plan, seed), tell(plan, seed));
        report.seeds += 1;
        report.add(&first);
        if let Some(story) = &first.wrong {
            report.wrong += 1;
            let story = story.clone();
            failures.push(Failure { seed, story });
        } else if first != second {
            report.replays_differing += 1;
            let story = format!(
                "two runs differ: event hashes {:016x} and {:016x}, answers {:016x} and {:016x}",
                first.hash, second.hash, first.told, second.told
            );
            failures.push(Failure { seed, story });
        }
        if failures.len() >= FAILURES_MAX {
            break;
        }
    }
    report.seconds = begin.elapsed().as_secs_f64();
    report.requests_per_second = 2.0 * report.requests as f64 / report.seconds.max(1e-9);
    (report, failures)
}

fn tell(plan: &Plan, seed: u64) -> Tale {
    let mut tale = Tale::default();
    let mut random = Random::from(&[seed, 3]);
    let mut disk = None;
    for life in 0..LIVES {
        match Life::begin(plan, random.bits(), disk.take()).and_then(|life| life.live(REQUESTS, &mut tale)) {
            Ok(left) => disk = Some(left),
            Err(story) => {
                tale.wrong = Some(format!("life {life}: {story}"));
                break;
            }
        }
    }
    tale
}
