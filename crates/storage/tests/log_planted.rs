//! The rules of the log are taken out of the code one at a time, and the test of each must fail then, and for those that it can
//! see the model too. They are compiled in only with `--cfg baio_seeded_bugs`, which this test sets for a build of its own; the
//! environment names the one that is out (`seeded_bug` in `src/lib.rs`).
//!
//! It builds the storage crate and three of its tests once more: a minute or two, so it is not run unless asked for:
//!
//!     cargo test -p baio-storage --test log_planted -- --ignored

use std::path::Path;
use std::process::{Command, Output};

/// Which rule is out, the test that must say so, and whether the model does.
const BUGS: &[(&str, &str, bool)] = &[
    ("log-gap-is-passed-over", "a_lost_middle_batch_ends_the_log", true),
    ("log-torn-batch-accepted", "a_torn_last_batch_is_cut", true),
    (
        "log-rot-told-as-tail",
        "rot_below_the_watermark_is_told_with_its_place",
        false,
    ),
    ("log-tail-told-as-rot", "rot_above_the_watermark_cuts_the_tail", true),
    ("log-ghost-accepted", "ghosts_of_the_last_lap_stay_out", true),
    (
        "log-failed-write-acknowledged",
        "a_failed_write_fails_all_from_it_on",
        true,
    ),
    ("log-epoch-not-raised", "ghosts_of_an_earlier_opening_stay_out", true),
    ("log-epoch-in-one-copy", FALLBACK, false),
    ("log-lsns-do-not-skip", "no_lsn_is_given_twice", true),
    (
        "log-space-reused-early",
        "space_is_not_used_again_before_the_head_is_durable",
        true,
    ),
    (
        "log-watermark-ahead",
        "what_is_in_flight_says_nothing_of_its_neighbours",
        true,
    ),
    ("log-any-stamp-counts", "a_record_that_is_a_batch_is_none", false),
    ("log-groups-by-halves", "a_group_is_recovered_whole_or_not_at_all", true),
];

const MODEL: &str = "the_log_is_the_list";
const FALLBACK: &str = "an_epoch_falls_back_to_either_copy_of_the_header";

fn cargo_test(command: &mut Command, target: &Path) {
    command
        .args(["test", "-q", "--locked", "-p", "baio-storage", "--target-dir"])
        .arg(target)
        .env("RUSTFLAGS", "--cfg baio_seeded_bugs");
}

fn run(target: &Path, bug: &str, test: &str) -> Output {
    let file = match test {
        MODEL => "log_model",
        "a_record_that_is_a_batch_is_none" => "log_forged",
        FALLBACK => "log_epochs",
        _ => "log_crashes",
    };
    // A rule may keep a loop from being endless, or memory from growing; these tests pass in a few seconds.
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO")]);
    cargo_test(&mut command, target);
    command
        .args(["--test", file, "--", "--exact", test])
        .env("BAIO_SEEDED_BUG", bug);
    command.output().unwrap()
}

#[test]
#[ignore = "builds the crate anew: a minute or two"]
fn are_found() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let mut build = Command::new(env!("CARGO"));
    cargo_test(&mut build, &target);
    let built = build
        .args(["--test", "log_crashes", "--test", "log_epochs", "--test", "log_forged"])
        .args(["--test", "log_model", "--no-run"])
        .status()
        .unwrap();
    assert!(built.success());
    let model = BUGS.iter().filter(|(.., seen)| *seen).map(|(bug, ..)| (*bug, MODEL));
    let all: Vec<(&str, &str)> = BUGS.iter().map(|(bug, test, _)| (*bug, *test)).chain(model).collect();
    for (_, test) in &all {
        let honest = run(&target, "", test);
        let said = String::from_utf8_lossy(&honest.stdout);
        assert!(honest.status.success() && said.contains("1 passed"), "{test}: {said}");
    }
    let missed: Vec<_> = all
        .iter()
        .filter(|(bug, test)| {
            let found = run(&target, bug, test);
            let said = String::from_utf8_lossy(&found.stdout);
            // 124 is what `timeout` says.
            let is_endless = found.status.code() == Some(124);
            let is_found = said.contains("1 failed") || is_endless;
            let how = match (is_found, is_endless) {
                (true, true) => "runs for ever",
                (true, false) => "fails",
                (false, _) => "does not notice",
            };
            println!("{bug}: {test} {how}");
            !is_found
        })
        .collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
