//! `exhaustive`: all short sequences of operations, cut at every record.

use std::process::ExitCode;

use baio_sim::exhaustive;

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Operations of the longest sequences
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=4))]
    length: u32,
    /// Run only this half of them, 0 or 1: each on both volumes, of which one lies on a disk that ends requests in any order
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=1))]
    half: Option<u64>,
    /// Run only the sequence of this number: what a failure prints
    #[arg(long, conflicts_with_all = ["length", "half"])]
    sequence: Option<u64>,
    /// Run only this state of it
    #[arg(long, requires = "sequence")]
    state: Option<u64>,
    #[command(flatten)]
    shared: Shared,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let report = match (args.sequence, args.half) {
        (Some(sequence), _) => exhaustive::run_only(sequence, args.state),
        (None, Some(half)) => exhaustive::run_half(args.length, half, args.shared.threads()),
        (None, None) => exhaustive::run(args.length, args.shared.threads()),
    };
    args.shared.tell(&report)
}
