//! `powercut`: the real program on a device that loses power, or whose reads fail.

use std::path::PathBuf;
use std::process::ExitCode;

use baio_sim::powercut::worker::{self, Task, Worker};
use baio_sim::powercut::{read_errors, rounds, stories};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds of each story
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Only these stories: log, volume, cache, moves, kv, btree, dd
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(stories::ALL.map(|(name, _)| name)))]
    story: Vec<String>,
    /// On a device that lies about flushes: losses must be found
    #[arg(long)]
    lies: bool,
    /// Open log and volume while reads fail, instead of cutting the power
    #[arg(long)]
    read_errors: bool,
    /// How many openings
    #[arg(long, default_value_t = 2000, requires = "read_errors", value_parser = clap::value_parser!(u64).range(1..))]
    openings: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only this one: what a failure prints
    #[arg(long)]
    only: Option<u64>,
    /// Print JSON objects
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    story: String,
    device: PathBuf,
    beside: PathBuf,
    seed: u64,
    first: u64,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match args.read_errors {
        true => while_reads_fail(args),
        false => with_cuts(args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            println!("SKIPPED: powercut: {why}");
            ExitCode::SUCCESS
        }
    }
}

/// Works until it is killed. Says on its last line what went wrong before that.
pub(crate) fn work(args: &WorkerArgs) -> ExitCode {
    worker::say_panics();
    let worker = Worker::new(Task {
        story: args.story.clone(),
        device: args.device.clone(),
        beside: args.beside.clone(),
        seed: args.seed,
        first: args.first,
    });
    if let Err(error) = stories::work(&worker) {
        worker.say(&format!("! {error}"));
    }
    ExitCode::FAILURE
}

fn with_cuts(args: &Args) -> Result<bool, String> {
    let plan = rounds::Plan {
        stories: args.story.clone(),
        rounds: args.rounds,
        seed: args.seed,
        only: args.only,
        lies: args.lies,
    };
    let mut is_good = true;
    rounds::run(&plan, |report| {
        is_good &= !report.is_bad();
        for broken in &report.broken {
            eprintln!("baio-sim: {broken}");
        }
        if args.json {
            super::print_json(report);
        } else {
            tell(report);
        }
    })?;
    Ok(is_good)
}

fn tell(report: &rounds::Report) {
    let bites = match report.bites {
        Some(life) => format!("a device that lies was found out in life {life}"),
        None if !report.lies_tried => "no device has lied".into(),
        None => "a device that lies was NOT found out: this story shows nothing".into(),
    };
    println!(
        "{}: {} rounds ({} on a block device) in {:.1} s, {} lines said, {} requests failed, {} writes lost by cuts; broken promises {}; acknowledged plain writes gone {}; {bites}",
        report.story,
        report.rounds,
        report.rounds_on_block_device,
        report.seconds,
        report.lines,
        report.errors,
        report.writes_lost,
        report.broken.len(),
        report.plain_lost()
    );
    let seen: Vec<String> = report
        .seen
        .iter()
        .map(|(what, times)| format!("{} {times}", what.replace('_', " ")))
        .collect();
    println!("    {}", seen.join(", "));
}

fn while_reads_fail(args: &Args) -> Result<bool, String> {
    let report = read_errors::run(&read_errors::Plan {
        seed: args.seed,
        openings: args.openings,
        only: args.only,
    })?;
    if args.json {
        super::print_json(&report);
    } else {
        println!(
            "{} openings while {} reads failed: {} gave all, {} told the device's error",
            report.openings, report.reads_failed, report.opened, report.refused
        );
    }
    for wrong in &report.wrong {
        eprintln!("baio-sim: {wrong}");
    }
    Ok(report.wrong.is_empty())
}
