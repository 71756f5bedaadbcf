//! Numbered trials, each of which follows from the seed and its number, so many for a workload: trial `k` belongs to workload
//! `k / PER_WORKLOAD`, and begins at one of the crashes of its record.
//!
//! Workloads are shared out among the cores and put together in the order of their numbers, so equal seeds give equal
//! reports on any machine.

use crate::cores;
use crate::report::{self, Failure, Part, Report, Sum};
use crate::violation::Violation;

/// A plan from which trials follow.
pub trait Trials: Sync {
    /// Numbers given to each workload; those that its record has no crashes for stay unused.
    const PER_WORKLOAD: u64;

    /// What is counted beside the states.
    const COUNTED: &[&str];

    /// From which all choices follow.
    fn seed(&self) -> u64;

    /// The arguments of `baio-sim` that run one trial alone.
    fn replay(&self, trial: u64) -> String;

    /// Runs a workload and its trials, or of these only the one with this number within it.
    fn run_workload(&self, number: u64, only: Option<u64>) -> Part;

    /// Runs a trial from each of a workload's crashes, or from the one with this number: `trial` has its number, and gives how it went,
    /// its story, and whether something rotted.
    fn run_each<C>(
        &self,
        part: &mut Part,
        (number, only): (u64, Option<u64>),
        crashes: impl IntoIterator<Item = C>,
        mut trial: impl FnMut(&mut Part, u64, C) -> (Result<(), Violation>, String, bool),
    ) {
        for (nth, crash) in (0..).zip(crashes) {
            if only.is_some_and(|only| only != nth) {
                continue;
            }
            part.add("trials", 1);
            let trial_number = number * Self::PER_WORKLOAD + nth;
            let (outcome, story, rotten) = trial(part, trial_number, crash);
            if let Err(violation) = outcome {
                let failure = self.failure(trial_number, violation.after(story));
                part.failed(Failure { rotten, ..failure });
            }
        }
    }

    /// What a trial that broke a promise leaves behind.
    fn failure(&self, trial: u64, violation: Violation) -> Failure {
        Failure {
            number: trial,
            replay: self.replay(trial),
            violation,
            rotten: false,
        }
    }

    /// The same of a workload, whose first trial stands for it.
    fn failed_before_any_crash(&self, number: u64, violation: Violation) -> Failure {
        let place = format!("workload {number} of seed {}, before any crash", self.seed());
        self.failure(number * Self::PER_WORKLOAD, violation.after(place))
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
    fn is_done(self, sum: &Sum) -> bool {
        match self {
            Until::Distinct(states) => sum.distinct() >= states,
            Until::Broken(states) => sum.is_broken() || sum.distinct() >= states,
        }
    }
}

/// Runs trials in order until told to stop, on so many threads.
#[must_use]
pub fn run<T: Trials>(plan: &T, until: Until, threads: usize) -> Report {
    let mut sum = Sum::of(T::COUNTED);
    if !until.is_done(&sum) {
        cores::in_order(
            threads,
            |number| Some(plan.run_workload(number, None)),
            |part| {
                sum.add(part);
                !until.is_done(&sum)
            },
        );
    }
    sum.done()
}

/// Runs one trial alone.
#[must_use]
pub fn run_only<T: Trials>(plan: &T, trial: u64) -> Report {
    let (workload, nth) = (trial / T::PER_WORKLOAD, trial % T::PER_WORKLOAD);
    report::of_one(T::COUNTED, || plan.run_workload(workload, Some(nth)))
}
