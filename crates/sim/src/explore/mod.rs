//! Exploration by chance.
//!
//! A workload is a session on a fresh volume; each of its [`trials`](crate::trials) begins at one crash of its
//! record. The state is opened and checked. Some trials go on: the opened volume is used, on the record; that record is cut
//! again, possibly inside the opening, or the process is killed with the power on; and again, at most three times.
//! Once in some trials a metadata page rots before an opening.

use std::time::Duration;

use baio_engine::sim::Random;
use baio_engine::sim::crash::Replay;
use baio_engine::sim::log::Record;

use crate::cores;
use crate::mutate::Weakening;
use crate::report::{Part, Report, Sum, no_panic};
use crate::trials::Trials;
use crate::violation::Violation;
use crate::workload::Counts;

mod trial;
mod workload;

use trial::Trial;
use workload::Workload;
pub(crate) use workload::{crashes_of, end_in_any_order};

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
