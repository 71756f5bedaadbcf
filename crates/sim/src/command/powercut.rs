//! `powercut`: the real program on a device that loses power, or whose reads fail.

use std::process::ExitCode;

use baio_sim::powercut::read_errors;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Open log and volume while reads fail
    #[arg(long)]
    read_errors: bool,
    /// How many openings
    #[arg(long, default_value_t = 2000, requires = "read_errors")]
    openings: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only this one: what a failure prints
    #[arg(long)]
    only: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let plan = read_errors::Plan {
        seed: args.seed,
        openings: args.openings,
        only: args.only,
    };
    let report = match read_errors::run(&plan) {
        Ok(report) => report,
        Err(why) => {
            println!("SKIPPED: powercut: {why}");
            return ExitCode::SUCCESS;
        }
    };
    if args.json {
        super::print_json(&report);
    } else {
        let read_errors::Report {
            openings,
            opened,
            refused,
            reads_failed,
            ..
        } = report;
        println!(
            "{openings} openings while {reads_failed} reads failed: {opened} gave all, {refused} told the device's error"
        );
    }
    for wrong in &report.wrong {
        eprintln!("baio-sim: {wrong}");
    }
    if report.wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
