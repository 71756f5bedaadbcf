//! `devices`: stories on real devices of the kernel.

use std::path::PathBuf;
use std::process::ExitCode;

use baio_sim::powercut::real::{self, Disks, Plan, Report};
use baio_sim::powercut::stories;
use clap::builder::PossibleValuesParser;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A disk that is written over; two are needed
    #[arg(long, required = true, num_args = 2, value_names = ["DISK", "DISK"])]
    disks: Vec<PathBuf>,
    /// Only these devices
    #[arg(long, value_parser = PossibleValuesParser::new(real::names()))]
    on: Vec<String>,
    /// Only these stories
    #[arg(long, value_parser = PossibleValuesParser::new(stories::ALL.map(|(name, _)| name)), default_values = ["log", "volume", "cache"])]
    story: Vec<String>,
    /// Rounds of each story on each device
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// From which choices follow, but not what threads do beside each other
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let [first, second] = args.disks.as_slice() else {
        eprintln!("baio-sim: two disks are needed");
        return ExitCode::FAILURE;
    };
    let plan = Plan {
        disks: Disks {
            first: first.clone(),
            second: second.clone(),
        },
        devices: args.on.clone(),
        stories: args.story.clone(),
        rounds: args.rounds,
        seed: args.seed,
    };
    if real::run(&plan, tell) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn tell(report: &Report) {
    let Report {
        device,
        story,
        rounds,
        lines,
        errors,
        seconds,
        ..
    } = report;
    if let Some(why) = &report.skipped {
        println!("{device}, {story}: SKIPPED: {why}");
        return;
    }
    let seen: Vec<String> = report
        .seen
        .iter()
        .map(|(what, times)| format!("{} {times}", what.replace('_', " ")))
        .collect();
    println!(
        "{device}, {story}: {rounds} rounds in {seconds:.0} s, {lines} lines said, {errors} errors told; {}",
        seen.join(", ")
    );
    if let Some(error) = &report.error {
        println!("    such as: {error}");
    }
    if let Some(broken) = &report.broken {
        println!("    FAILED: {broken}");
    }
}
