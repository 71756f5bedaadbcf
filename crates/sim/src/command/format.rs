//! `format`: power cuts inside the making of a volume.

use std::process::ExitCode;

use baio_sim::formatting;

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many old volumes of each kind are formatted over
    #[arg(long, default_value_t = 8)]
    seeds: u64,
    /// Only this case: what a failure prints
    #[arg(long, requires = "state", conflicts_with = "seeds")]
    case: Option<u64>,
    /// The state of it
    #[arg(long, requires = "case")]
    state: Option<u64>,
    #[command(flatten)]
    shared: Shared,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let report = match (args.case, args.state) {
        (Some(case), Some(state)) => formatting::run_only(case, state),
        _ => formatting::run(args.seeds, args.shared.threads()),
    };
    args.shared.tell(&report)
}
