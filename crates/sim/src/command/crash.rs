//! `crash`: states of random workloads, so many of them.

use std::process::ExitCode;

use baio_sim::explore::{self, Plan, Until};
use baio_sim::mutate::{self, Weakening};

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
    /// Leave out rotten metadata pages
    #[arg(long)]
    no_rot: bool,
    /// Break one promise on purpose, to see it noticed; `list` names them
    #[arg(long, value_name = "NAME", value_parser = weakening)]
    weaken: Option<&'static Weakening>,
    #[command(flatten)]
    shared: Shared,
}

fn weakening(name: &str) -> Result<&'static Weakening, String> {
    Weakening::by_name(name).ok_or_else(|| {
        let names: Vec<String> = mutate::ALL
            .iter()
            .map(|w| format!("  {}: {}", w.name, w.story))
            .collect();
        format!("there are:\n{}", names.join("\n"))
    })
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let plan = Plan {
        rot: !args.no_rot,
        weakening: args.weaken,
        ..Plan::of(args.seed)
    };
    let report = match args.only {
        Some(trial) => explore::run_only(&plan, trial),
        None => {
            let until = match args.first {
                true => Until::Broken(args.states),
                false => Until::Distinct(args.states),
            };
            explore::run(&plan, until, args.shared.threads())
        }
    };
    args.shared.tell(&report)
}
