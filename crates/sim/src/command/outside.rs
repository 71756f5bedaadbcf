//! `outside`: what others do to the file of a volume.

use std::process::ExitCode;

use baio_sim::outside::{self, What};

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Trials of each kind
    #[arg(long, default_value_t = 1_000)]
    trials: u64,
    /// What is done: cut-closed, lengthened, cut-open, copied; all of them unless told
    #[arg(long, value_parser = what)]
    what: Vec<What>,
    /// Run only this trial: what a failure prints
    #[arg(long, requires = "what", conflicts_with = "trials")]
    only: Option<u64>,
    #[command(flatten)]
    shared: Shared,
}

fn what(name: &str) -> Result<What, String> {
    What::by_name(name).ok_or_else(|| format!("there are: {}", What::ALL.map(What::name).join(", ")))
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let report = match (args.only, args.what.first()) {
        (Some(trial), Some(&what)) => outside::run_only(what, trial),
        (_, None) => outside::run(&What::ALL, args.trials, args.shared.threads()),
        (_, Some(_)) => outside::run(&args.what, args.trials, args.shared.threads()),
    };
    args.shared.tell(&report)
}
