//! `baio-sim`: explorations from the command line.

use std::process::ExitCode;

use baio_sim::engine;
use baio_sim::explore::{Explorer, Plan, Report, Until};
use baio_sim::mutate::{self, Weakening};
use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "baio-sim", version, about = "Explores what survives on a simulated device")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Power cuts: opens crash states of recorded workloads and checks that nothing acknowledged is lost
    Crash(CrashArgs),
    /// The engine on slow, failing disks: every answer is compared with a model, and every seed told twice
    Engine(EngineArgs),
}

#[derive(Args)]
struct EngineArgs {
    /// How many seeds to run
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Break one promise on purpose, to see it noticed; `list` names them
    #[arg(long, value_name = "NAME", value_parser = engine_weakening)]
    weaken: Option<(&'static str, engine::Weakening)>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn engine_weakening(name: &str) -> Result<(&'static str, engine::Weakening), String> {
    let all = engine::Weakening::ALL;
    let found = all.into_iter().find(|(known, _)| *known == name);
    found.ok_or_else(|| format!("there are: {}", all.map(|(name, _)| name).join(", ")))
}

#[derive(Args)]
struct CrashArgs {
    /// Distinct states to open
    #[arg(long, default_value_t = 20_000)]
    states: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only this trial: what a failure prints
    #[arg(long, conflicts_with = "states")]
    only: Option<u64>,
    /// Leave out rotten metadata pages
    #[arg(long)]
    no_rot: bool,
    /// Break one promise on purpose, to see it noticed; `list` names them
    #[arg(long, value_name = "NAME", value_parser = weakening)]
    weaken: Option<&'static Weakening>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
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

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Crash(args) => crash(&args),
        Command::Engine(args) => run_engine(&args),
    }
}

fn run_engine(args: &EngineArgs) -> ExitCode {
    let plan = engine::Plan {
        seed: args.seed,
        seeds: args.seeds,
        weakening: args.weaken.map(|(_, weakening)| weakening),
    };
    let (report, failures) = engine::run(&plan);
    for failure in &failures {
        eprintln!("baio-sim: seed {}: {}", failure.seed, failure.story);
    }
    if let Some(failure) = failures.first() {
        let weaken = args
            .weaken
            .map(|(name, _)| format!(" --weaken {name}"))
            .unwrap_or_default();
        eprintln!(
            "replay: cargo run --release -p baio-sim -- engine --seeds 1 --seed {}{weaken}",
            failure.seed
        );
    }
    if args.json {
        match serde_json::to_string(&report) {
            Ok(json) => println!("{json}"),
            Err(error) => eprintln!("baio-sim: {error}"),
        }
    } else {
        println!(
            "{} seeds twice, {} requests each, {:.1} s ({:.0} a second), {} sectors compared",
            report.seeds, report.requests, report.seconds, report.requests_per_second, report.sectors_checked
        );
        println!("wrong {}, replays differing {}", report.wrong, report.replays_differing);
        println!("faults: {:?}", report.faults);
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn crash(args: &CrashArgs) -> ExitCode {
    match explore(args) {
        Ok(report) => {
            tell(args, &report);
            if report.is_broken() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            }
        }
        Err(violation) => {
            eprintln!("baio-sim: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn explore(args: &CrashArgs) -> Result<Report, baio_sim::oracle::Violation> {
    let plan = Plan {
        rot: !args.no_rot,
        weakening: args.weaken,
        ..Plan::of(args.seed)
    };
    let explorer = Explorer::new(plan);
    match args.only {
        Some(trial) => explorer.run_only(trial),
        None => explorer.run(Until::Distinct(args.states)),
    }
}

fn tell(args: &CrashArgs, report: &Report) {
    for failure in &report.failures {
        eprintln!("baio-sim: {}", failure.violation);
    }
    if let Some(failure) = report.failures.first() {
        eprintln!("replay: {}", replay(args, failure.trial));
    }
    if args.json {
        match serde_json::to_string(report) {
            Ok(json) => println!("{json}"),
            Err(error) => eprintln!("baio-sim: {error}"),
        }
        return;
    }
    println!(
        "{} states, {} distinct, {:.1} s ({:.0} a second)",
        report.states,
        report.distinct,
        report.seconds,
        report.states as f64 / report.seconds.max(1e-9)
    );
    println!(
        "acknowledged lost {}, mounts refused {}, overlaps {}, leaks {}, stale bytes {}, operations failed {}",
        report.acknowledged_lost,
        report.mounts_refused,
        report.overlaps,
        report.leaks,
        report.stale_bytes,
        report.operations_failed
    );
}

/// The command that runs exactly this trial.
fn replay(args: &CrashArgs, trial: u64) -> String {
    let rot = if args.no_rot { " --no-rot" } else { "" };
    let weaken = args.weaken.map(|w| format!(" --weaken {}", w.name)).unwrap_or_default();
    format!(
        "cargo run --release -p baio-sim -- crash --seed {}{rot}{weaken} --only {trial}",
        args.seed
    )
}
