//! `engine`: the engine itself on slow, failing disks.

use std::process::ExitCode;

use baio_sim::engine;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many engines share the machine
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    engines: u8,
    /// Break one promise on purpose, to see it noticed; `list` names them
    #[arg(long, value_name = "NAME", value_parser = weakening)]
    weaken: Option<(&'static str, engine::Weakening)>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn weakening(name: &str) -> Result<(&'static str, engine::Weakening), String> {
    let all = engine::Weakening::ALL;
    let found = all.into_iter().find(|(known, _)| *known == name);
    found.ok_or_else(|| format!("there are: {}", all.map(|(name, _)| name).join(", ")))
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let plan = engine::Plan {
        seed: args.seed,
        seeds: args.seeds,
        engines: args.engines.into(),
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
        let engines = match args.engines {
            1 => String::new(),
            many => format!(" --engines {many}"),
        };
        eprintln!(
            "replay: cargo run --release -p baio-sim -- engine --seeds 1 --seed {}{engines}{weaken}",
            failure.seed
        );
    }
    if args.json {
        super::print_json(&report);
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
