//! One file for each command, and how they all tell what came out.

use std::process::ExitCode;

use baio_sim::cores;
use baio_sim::report::Report;

pub(crate) mod crash;
pub(crate) mod each_request;
pub(crate) mod engine;
pub(crate) mod exhaustive;
pub(crate) mod faults;
pub(crate) mod format;
pub(crate) mod images;
pub(crate) mod log;
pub(crate) mod mutate;
pub(crate) mod outside;
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

    /// Prints the report, and for a failure the command that replays it.
    pub(crate) fn tell(&self, report: &Report) -> ExitCode {
        for failure in &report.failures {
            eprintln!("baio-sim: {}", failure.violation);
        }
        if let Some(failure) = report.failures.first() {
            eprintln!("replay: cargo run --release -p baio-sim -- {}", failure.replay);
        }
        if self.json {
            print_json(report);
        } else {
            print_text(report);
        }
        if report.is_broken() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
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
