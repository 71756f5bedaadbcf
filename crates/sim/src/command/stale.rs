//! `stale`: a bucket falls back to the image before its newest.

use std::process::ExitCode;

use baio_sim::stale;

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Workloads, each with every bucket
    #[arg(long, default_value_t = 500)]
    workloads: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only this workload: what a failure prints
    #[arg(long, conflicts_with = "workloads")]
    only: Option<u64>,
    /// Cut the workloads inside a move
    #[arg(long)]
    moving: bool,
    #[command(flatten)]
    shared: Shared,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let report = match args.only {
        Some(number) => stale::run_only(args.seed, number, args.moving),
        None => stale::run(args.seed, args.workloads, args.moving, args.shared.threads()),
    };
    args.shared.tell(&report)
}
