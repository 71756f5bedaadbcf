//! Random programs of calls (`differential.c`), valid and not, on our library and on glibc's: what they say and leave must be the same,
//! where POSIX or glibc fixes it.
//!
//! 40 programs; `BAIO_PROGRAMS=n` for more, `BAIO_SEED=n` to begin at another. A failure names the first program that differs.

mod common;

use std::process::Command;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// What programs from `seed` on say, with our library or without.
fn transcript(seed: u64, count: u64, ours: bool) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(common::program("differential.c"));
    command
        .args([seed.to_string(), count.to_string()])
        .arg(dir.path())
        .env_remove("LD_PRELOAD");
    if ours {
        command.env("LD_PRELOAD", common::ours());
    }
    let told = command.output().unwrap();
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        told.status.success(),
        "ours: {ours}: {}; its end:\n{}",
        told.status,
        &said[said.len().saturating_sub(500)..]
    );
    said
}

#[test]
fn random_programs_say_and_leave_the_same() {
    let (first, count) = (number("BAIO_SEED", 1), number("BAIO_PROGRAMS", 40));
    let mut calls = 0;
    for seed in (first..first + count).step_by(500) {
        let some = 500.min(first + count - seed);
        let (ours, theirs) = (transcript(seed, some, true), transcript(seed, some, false));
        for (ours, theirs) in ours.split("program ").zip(theirs.split("program ")) {
            assert!(
                ours == theirs,
                "BAIO_SEED={} BAIO_PROGRAMS=1\nours:\n{ours}\nglibc's:\n{theirs}",
                ours.lines().next().unwrap_or("")
            );
        }
        assert_eq!(ours.len(), theirs.len());
        calls += ours.lines().count();
    }
    println!("{count} programs, {calls} lines of answers, all the same");
}
