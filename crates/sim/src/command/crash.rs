//! `crash`: states of random workloads, so many of them.

use std::process::ExitCode;

use baio_sim::explore::Plan;
use baio_sim::mutate::{self, Weakening};

use super::Asked;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked,
    /// Leave out rotten metadata pages
    #[arg(long)]
    no_rot: bool,
    /// Break one promise on purpose, to see it noticed; `list` names them
    #[arg(long, value_name = "NAME", value_parser = weakening)]
    weaken: Option<&'static Weakening>,
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
        ..Plan::of(args.asked.seed)
    };
    args.asked.run(&plan)
}
