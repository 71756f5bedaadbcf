//! Bugs that no edit of a record can express are planted in the storage code itself, one at a time; the explorer must notice
//! each. They are compiled in only with `--cfg baio_seeded_bugs`, which this test sets for a build of its own; the
//! environment then names the one that is there (`seeded_bug` in `crates/storage/src/lib.rs`).
//!
//! It builds the explorer once and runs it once for each bug: a minute or two, so it is not run unless asked for:
//!
//!     cargo test -p baio-sim --test planted_bugs -- --ignored

use std::path::Path;
use std::process::{Command, Output};

/// Which bug, and the command that must find it. Each also finds nothing where no bug is planted.
const BUGS: &[(&str, &[&str])] = &[
    // An update writes over the image that it replaces.
    ("generation-not-raised", CRASH),
    // What a crashed opening had not healed is believed by the next one.
    ("only-the-last-epoch-is-healed", CRASH),
    ("healed-is-noted-before-healing", CRASH),
    // An opening decides between two names and does not write the decision down.
    ("half-a-rename-stays", CRASH),
    // Requests go to the target, and a crash does not know.
    ("mark-in-memory-only", CRASH),
    // Somebody else gets the blocks that a moved segment still lives in.
    ("source-is-released-early", CRASH),
    // A segment grows back over what it had been cut off.
    ("shrunk-counts-as-zeroed", CRASH),
    // A write of the deleted segment lands in the next one.
    ("reuse-before-drain", CRASH),
    // The later of two updates takes the earlier one back.
    ("two-updates-from-one-image", CRASH),
    // A device acknowledged a record and lost it.
    ("nothing-is-read-back", FAULTS),
];

const CRASH: &[&str] = &["crash", "--first", "--states", "60000", "--seed", "1", "--json"];
const FAULTS: &[&str] = &["faults", "--trials", "4000", "--seed", "1", "--json"];

fn explore(explorer: &Path, bug: &str, command: &[&str]) -> Output {
    Command::new(explorer)
        .args(command)
        .env("BAIO_SEEDED_BUG", bug)
        .output()
        .unwrap()
}

#[test]
#[ignore = "builds the explorer anew: a minute or two"]
fn are_found() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "--locked", "-p", "baio-sim", "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", "--cfg baio_seeded_bugs")
        .status()
        .unwrap();
    assert!(built.success());
    let explorer = target.join("debug/baio-sim");
    for command in [CRASH, FAULTS] {
        let honest = explore(&explorer, "", command);
        assert!(honest.status.success(), "{}", String::from_utf8_lossy(&honest.stderr));
    }
    let missed: Vec<&str> = BUGS
        .iter()
        .filter(|(bug, command)| {
            let found = explore(&explorer, bug, command);
            let story = String::from_utf8_lossy(&found.stderr).into_owned();
            println!("{bug}: {}", story.lines().last().unwrap_or("not found"));
            // Exit status 1 and a command that replays it; a crash of the explorer itself would not count.
            found.status.code() != Some(1) || !story.contains("replay: ")
        })
        .map(|(bug, _)| *bug)
        .collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
