//! `faults`: one fault of the device under the metadata.

use std::process::ExitCode;

use baio_sim::faults;

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Sessions, each with one fault
    #[arg(long, default_value_t = 20_000)]
    trials: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only this trial: what a failure prints
    #[arg(long, conflicts_with = "trials")]
    only: Option<u64>,
    #[command(flatten)]
    shared: Shared,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let report = match args.only {
        Some(trial) => faults::run_only(args.seed, trial),
        None => faults::run(args.seed, args.trials, args.shared.threads()),
    };
    args.shared.tell(&report)
}
