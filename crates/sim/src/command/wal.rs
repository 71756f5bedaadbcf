//! `wal`: crash states of databases whose pages wait for their logs, so many of them.

use std::process::ExitCode;

use baio_sim::explore::Until;
use baio_sim::wal::{self, Plan};

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Distinct states to open, at least; it ends with the workload in which they are reached
    #[arg(long, default_value_t = 20_000)]
    states: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only this trial: what a failure prints
    #[arg(long, conflicts_with = "states")]
    only: Option<u64>,
    /// Stop at the first broken promise
    #[arg(long)]
    first: bool,
    #[command(flatten)]
    shared: Shared,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let plan = Plan { seed: args.seed };
    let report = match args.only {
        Some(trial) => wal::run_only(&plan, trial),
        None => {
            let until = match args.first {
                true => Until::Broken(args.states),
                false => Until::Distinct(args.states),
            };
            wal::run(&plan, until, args.shared.threads())
        }
    };
    args.shared.tell(&report)
}
