//! Mutation testing with one build for all mutants.
//!
//! A mutant is one small change of the code: another operator, a condition turned round, a statement left out, a function that
//! returns at once. A test suite that passes all the same has not seen what the line does. Building the workspace anew for each
//! mutant takes about two minutes, so the sample is woven into one copy of the sources: each mutant stands beside the
//! original behind `crate::mutant::on(ID)`, and the environment variable `BAIO_MUTANT` says which one is on.
//!
//! ```text
//! cargo run --release --manifest-path mutants/Cargo.toml -- --count 400 --seed 1          a sample of all folders
//! cargo run --release --manifest-path mutants/Cargo.toml -- --changed-since REV           every mutant of lines changed since
//! ```
//!
//! `--longest 15` leaves out stories that run longer; `--lives` then asks the others about those that lived, or new tests.
//!
//! Steps: `find` the mutants, take the sample, `weave` it into `target/mutants/tree`, build the tests there, run every story
//! (a test binary, or a module of one) once with all mutants off to see which mutants it reaches and how long it takes, then
//! `hunt`: turn one mutant on, run the stories that reach it, quickest first, until one fails. The table goes to `target/mutants/result.tsv`.

mod find;
mod hunt;
mod weave;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// What was asked on the command line.
struct Asked {
    count: usize,
    seed: u64,
    changed_since: Option<String>,
    jobs: usize,
    only: Option<String>,
    list: bool,
    hunt_only: bool,
    lives: bool,
    longest: Duration,
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked {
        count: 400,
        seed: 1,
        changed_since: None,
        jobs: 2,
        only: None,
        list: false,
        hunt_only: false,
        lives: false,
        // Tests that take minutes find what shorter ones find.
        longest: Duration::from_secs(90),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--count" => asked.count = value()?.parse().map_err(|e| format!("--count: {e}"))?,
            "--seed" => asked.seed = value()?.parse().map_err(|e| format!("--seed: {e}"))?,
            "--jobs" => asked.jobs = value()?.parse().map_err(|e| format!("--jobs: {e}"))?,
            "--changed-since" => asked.changed_since = Some(value()?),
            "--only" => asked.only = Some(value()?),
            "--list" => asked.list = true,
            "--again" => asked.hunt_only = true,
            "--lives" => asked.lives = true,
            "--longest" => {
                asked.longest = Duration::from_secs(value()?.parse().map_err(|e| format!("--longest: {e}"))?)
            }
            other => {
                return Err(format!(
                    "{other}: known are --count N, --seed N, --changed-since REV, --only PATH-PART, --jobs N, --longest SECONDS, --list, --again, --lives"
                ));
            }
        }
    }
    Ok(asked)
}

/// The parts of the code that are mutated: those that decide what is on the disk, who waits, and who is answered.
const PLACES: &[&str] = &[
    "crates/storage/src/segment/",
    "crates/storage/src/volume/",
    "crates/storage/src/operation/",
    "crates/storage/src/cache/",
    "crates/storage/src/core/",
    "crates/engine/src/engine",
    "crates/engine/src/slot",
    "crates/engine/src/judge",
    "crates/broker/src/",
    "crates/client/src/",
    "crates/memory/src/",
    "crates/ring/src/",
    "crates/words/src/entry",
    "crates/words/src/failure",
];

fn run() -> Result<(), String> {
    let asked = asked()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("no workspace above")?
        .to_path_buf();
    let place: PathBuf = root.join("target/mutants");
    let mut sample = {
        let all = find::all(&root, PLACES)?;
        println!("{} mutants in all", all.len());
        match &asked.changed_since {
            Some(rev) => find::changed_since(&root, rev, all)?,
            None => find::sample(all, asked.count, asked.seed),
        }
    };
    if let Some(only) = &asked.only {
        sample.retain(|mutant| mutant.file.contains(only.as_str()));
    }
    println!("{} in the sample", sample.len());
    if asked.list {
        for mutant in &sample {
            println!("{}", mutant.label());
        }
        return Ok(());
    }
    let tests = weave::build(&root, &place, &mut sample, asked.hunt_only)?;
    hunt::hunt(&place, &sample, &tests, &asked)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("mutants: {what}");
            ExitCode::FAILURE
        }
    }
}
