//! One file for each command, and how they all tell what came out.

use std::process::ExitCode;

use baio_sim::cores;
use baio_sim::report::Report;
use baio_sim::trials::{self, Trials, Until};

pub(crate) mod crash;
pub(crate) mod devices;
pub(crate) mod each_request;
pub(crate) mod engine;
pub(crate) mod exhaustive;
pub(crate) mod faults;
pub(crate) mod format;
pub(crate) mod images;
pub(crate) mod kept;
pub(crate) mod log;
pub(crate) mod mutate;
pub(crate) mod nbd;
pub(crate) mod outside;
pub(crate) mod powercut;
pub(crate) mod rot;
pub(crate) mod said;
pub(crate) mod soak;
pub(crate) mod stale;
pub(crate) mod wal;

/// What every exploration of the volume is asked.
#[derive(clap::Args)]
pub(crate) struct Shared {
    /// Threads; as many as there are cores unless told
    #[arg(long)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Shared {
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(cores::all)
    }

    /// Prints the report, and for each failure the command that replays it.
    pub(crate) fn tell(&self, report: &Report) -> ExitCode {
        eprint!("{}", report.failures_told());
        if self.json {
            print_json(report);
        } else {
            print_text(report);
        }
        if report.shows_nothing() {
            eprintln!("baio-sim: nothing was tested: there is no such trial, or none was asked for");
        }
        if report.is_broken() || report.shows_nothing() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}

/// What every exploration of crash states by chance is asked.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// Distinct states to open, at least; it ends with the workload in which they are reached
    #[arg(long, default_value_t = 20_000)]
    states: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Run only this trial: what a failure prints
    #[arg(long, conflicts_with = "states")]
    only: Option<u64>,
    /// Stop at the first broken promise
    #[arg(long)]
    first: bool,
    #[command(flatten)]
    shared: Shared,
}

impl Asked {
    pub(crate) fn run(&self, plan: &impl Trials) -> ExitCode {
        let until = match self.first {
            true => Until::Broken(self.states),
            false => Until::Distinct(self.states),
        };
        let report = match self.only {
            Some(trial) => trials::run_only(plan, trial),
            None => trials::run(plan, until, self.shared.threads()),
        };
        self.shared.tell(&report)
    }
}

pub(crate) fn print_json(report: &impl serde::Serialize) {
    match serde_json::to_string(report) {
        Ok(json) => println!("{json}"),
        Err(error) => eprintln!("baio-sim: {error}"),
    }
}

fn print_text(report: &Report) {
    println!(
        "{} states, {} distinct, {:.1} s ({:.0} a second)",
        report.states, report.distinct, report.seconds, report.states_per_second
    );
    println!(
        "acknowledged lost {}, mounts refused {}, overlaps {}, leaks {}, space lost {}, operations failed {}, out of order {}, panics {}",
        report.acknowledged_lost,
        report.mounts_refused,
        report.overlaps,
        report.leaks,
        report.space_lost,
        report.operations_failed,
        report.out_of_order,
        report.panics
    );
    let more: Vec<String> = report
        .more
        .iter()
        .map(|(what, times)| format!("{} {times}", what.replace('_', " ")))
        .collect();
    println!("{}", more.join(", "));
}
