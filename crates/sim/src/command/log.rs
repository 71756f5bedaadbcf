//! `log`: crash states of the durable log, so many of them.

use std::process::ExitCode;

use baio_sim::log::Plan;

use super::Asked;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked,
    /// Leave out rotten batches and headers
    #[arg(long)]
    no_rot: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let plan = Plan {
        seed: args.asked.seed,
        rot: !args.no_rot,
    };
    args.asked.run(&plan)
}
