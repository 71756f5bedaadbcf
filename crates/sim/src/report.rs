//! What an exploration came to, the same for every command.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde::Serialize;

use crate::cores;
use crate::violation::{Kind, Violation};
use crate::workload::Counts;

/// A state, or a run, that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its number within the exploration.
    pub number: u64,
    /// The arguments that run it alone.
    pub replay: String,
    /// What is wrong, and how it came about.
    pub violation: Violation,
    /// Did a page rot?
    pub rotten: bool,
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
    /// States that showed bytes never written to the segment: a deleted one's, another's, or what was there before.
    pub leaks: u64,
    /// States whose free space did not add up.
    pub space_lost: u64,
    /// States in which an operation failed that should not.
    pub operations_failed: u64,
    /// States, or sessions, in which writes had not the order that they must have.
    pub out_of_order: u64,
    /// Panics.
    pub panics: u64,
    /// How long it took.
    pub seconds: f64,
    /// States in a second.
    pub states_per_second: f64,
    /// What only this command counts.
    #[serde(flatten)]
    pub more: BTreeMap<&'static str, u64>,
    /// Operations run to make the states.
    pub operations: Counts,
    /// The first failures.
    #[serde(skip)]
    pub failures: Vec<Failure>,
}

impl Report {
    /// Was any promise broken?
    #[must_use]
    pub fn is_broken(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Nothing was opened, and so nothing can be said: numbers of trials move with the code that they run.
    #[must_use]
    pub fn shows_nothing(&self) -> bool {
        self.states == 0 && !self.is_broken()
    }

    /// What was broken, and the command that replays each of the first.
    #[must_use]
    pub fn failures_told(&self) -> String {
        let told = |failure: &Failure| {
            let (violation, replay) = (&failure.violation, &failure.replay);
            format!("baio-sim: {violation}\nreplay: cargo run --release -p baio-sim -- {replay}\n")
        };
        self.failures.iter().map(told).collect()
    }

    /// Of what only this command counts: how many?
    #[must_use]
    pub fn more(&self, what: &str) -> u64 {
        self.more.get(what).copied().unwrap_or(0)
    }
}

/// Failures that are kept with their story.
const FAILURES_KEPT: usize = 16;

/// Fingerprints that are kept: 8 bytes each, and what a set of them needs. Beyond, `distinct` is a lower bound.
const DISTINCT_MAX: usize = 1 << 26;

/// What one piece of an exploration came to, made on any thread.
#[derive(Debug, Default)]
pub struct Part {
    report: Report,
    fingerprints: Vec<u64>,
}

impl Part {
    /// A state is about to be opened.
    pub fn state(&mut self, fingerprint: u64) {
        self.report.states += 1;
        self.fingerprints.push(fingerprint);
    }

    /// Something that only this command counts has happened so often.
    pub fn add(&mut self, what: &'static str, times: u64) {
        *self.report.more.entry(what).or_default() += times;
    }

    /// That was all: it could not go on.
    #[must_use]
    pub fn ended_by(mut self, failure: Failure) -> Part {
        self.failed(failure);
        self
    }

    /// Counts of operations.
    pub fn operations(&mut self) -> &mut Counts {
        &mut self.report.operations
    }

    /// A promise was broken.
    pub fn failed(&mut self, failure: Failure) {
        let report = &mut self.report;
        *match failure.violation.kind {
            Kind::Refused => &mut report.mounts_refused,
            Kind::Lost => &mut report.acknowledged_lost,
            Kind::Overlap => &mut report.overlaps,
            Kind::Space => &mut report.space_lost,
            Kind::Leak => &mut report.leaks,
            Kind::Failed => &mut report.operations_failed,
            Kind::Order => &mut report.out_of_order,
            Kind::Panic => &mut report.panics,
        } += 1;
        if report.failures.len() < FAILURES_KEPT {
            report.failures.push(failure);
        }
    }
}

/// Puts parts together.
#[derive(Debug)]
pub struct Sum {
    report: Report,
    fingerprints: HashSet<u64>,
    begin: Instant,
}

impl Sum {
    /// Nothing yet; these will be counted, if only as zero.
    #[must_use]
    pub fn of(counted: &[&'static str]) -> Sum {
        Sum {
            report: Report {
                schema_version: 1,
                more: counted.iter().map(|&what| (what, 0)).collect(),
                ..Report::default()
            },
            fingerprints: HashSet::new(),
            begin: Instant::now(),
        }
    }

    /// One part more.
    pub fn add(&mut self, part: Part) {
        let Part { report, fingerprints } = part;
        for fingerprint in fingerprints {
            if self.fingerprints.len() < DISTINCT_MAX {
                self.fingerprints.insert(fingerprint);
            }
        }
        let sum = &mut self.report;
        sum.distinct = self.fingerprints.len() as u64;
        sum.states += report.states;
        sum.acknowledged_lost += report.acknowledged_lost;
        sum.mounts_refused += report.mounts_refused;
        sum.overlaps += report.overlaps;
        sum.leaks += report.leaks;
        sum.space_lost += report.space_lost;
        sum.operations_failed += report.operations_failed;
        sum.out_of_order += report.out_of_order;
        sum.panics += report.panics;
        sum.operations += report.operations;
        for (what, times) in report.more {
            *sum.more.entry(what).or_default() += times;
        }
        let room = FAILURES_KEPT - sum.failures.len();
        sum.failures.extend(report.failures.into_iter().take(room));
    }

    /// Distinct states so far.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.report.distinct
    }

    /// Was any promise broken so far?
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.report.is_broken()
    }

    /// How long it has taken so far.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// That was all.
    #[must_use]
    pub fn done(mut self) -> Report {
        self.report.seconds = self.seconds();
        self.report.states_per_second = self.report.states as f64 / self.report.seconds.max(1e-9);
        self.report
    }
}

/// Makes parts 0, 1, 2 ... on so many threads until there is none, and puts them together; what is `counted` stands there if
/// only as zero.
pub fn of_all(counted: &[&'static str], threads: usize, make: impl Fn(u64) -> Option<Part> + Sync) -> Report {
    let mut sum = Sum::of(counted);
    cores::in_order(threads, make, |part| {
        sum.add(part);
        true
    });
    sum.done()
}

/// The same of one part alone.
pub fn of_one(counted: &[&'static str], make: impl FnOnce() -> Part) -> Report {
    let mut sum = Sum::of(counted);
    sum.add(make());
    sum.done()
}

/// What panics breaks a promise, and is to be replayed like any other.
///
/// # Errors
/// What `body` returns, and a panic in it.
pub fn no_panic<T>(body: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    // What a panic leaves half-done is dropped with the trial that it was in.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        Err(Violation::new(Kind::Panic, format!("panicked: {text}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_does_not_exist_shows_nothing() {
        assert!(of_one(&[], Part::default).shows_nothing());
        let opened = of_one(&[], || {
            let mut part = Part::default();
            part.state(7);
            part
        });
        assert!(!opened.shows_nothing());
        let broken = of_one(&[], || {
            Part::default().ended_by(Failure {
                number: 0,
                replay: String::new(),
                violation: Violation::new(Kind::Refused, "before anything was opened"),
                rotten: false,
            })
        });
        assert!(!broken.shows_nothing(), "it says what is broken");
    }
}
