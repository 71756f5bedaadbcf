//! The examples compile without a warning, do what they say, say what stands in the way, and are clean under valgrind.

mod common;

use std::path::Path;
use std::process::Command;

use common::{compiled, ended_well, skipped, text};

fn copies(source: &str, compiler: &str, standard: &str) {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(source, compiler, standard, dir.path());
    for bytes in [0, 1, (256 << 10) * 40 + 123] {
        copy_of(&mut Command::new(&program), dir.path(), bytes);
    }
    let failed = Command::new(&program)
        .args(["/nowhere/from", "/nowhere/to"])
        .output()
        .unwrap();
    assert!(!failed.status.success());
    assert!(
        text(&failed.stderr).contains("/nowhere/from"),
        "{}",
        text(&failed.stderr)
    );
    let same = dir.path().join("from");
    let failed = Command::new(&program).args([&same, &same]).output().unwrap();
    assert!(
        !failed.status.success() && std::fs::metadata(&same).unwrap().len() > 0,
        "it was cut"
    );
}

fn copy_of(program: &mut Command, dir: &Path, bytes: usize) {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let content: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 4099) as u8).collect();
    std::fs::write(&from, &content).unwrap();
    std::fs::write(&to, b"what was there before, and must go").unwrap();
    let output = program.arg(&from).arg(&to).output().unwrap();
    ended_well(&output, "the copy");
    assert!(
        std::fs::read(&to).unwrap() == content,
        "{bytes} bytes were not copied as they are"
    );
}

#[test]
fn the_c_example_copies() {
    copies("examples/copy.c", "gcc", "-std=c99");
}

#[test]
fn the_cpp_example_copies() {
    copies("examples/copy.cpp", "g++", "-std=c++17");
}

#[test]
fn the_c_example_has_fewer_than_80_lines() {
    let lines = std::fs::read_to_string(common::in_crate("examples/copy.c"))
        .unwrap()
        .lines()
        .count();
    assert!(lines < 80, "{lines} lines");
}

/// What a program prints that ends well.
fn printed(program: &Path, words: &[&str], dir: &Path) -> String {
    let output = Command::new(program).current_dir(dir).args(words).output().unwrap();
    ended_well(&output, &words.join(" "));
    text(&output.stdout)
}

#[test]
fn the_log_example_finds_what_it_has_called_safe() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("examples/log.c", "gcc", "-std=c99", dir.path());
    let first = printed(&program, &["book", "debit 5", "credit 5"], dir.path());
    assert_eq!(first, "safe: debit 5\nsafe: credit 5\n");
    let found = printed(&program, &["book"], dir.path());
    let records: Vec<_> = found.lines().filter_map(|line| line.split_once(": ")).collect();
    assert!(matches!(records[..], [(_, "debit 5"), (_, "credit 5")]), "{found}");
    // A full log: old records go, and it goes on.
    let long = "x".repeat(100 << 10);
    for _ in 0..4 {
        let said = printed(&program, &["book", &long, &long, &long], dir.path());
        assert_eq!(said.matches("safe: ").count(), 3);
    }
    assert!(!printed(&program, &["book"], dir.path()).contains("debit"));
}

#[test]
fn the_segment_example_counts_its_runs() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("examples/segment.c", "gcc", "-std=c99", dir.path());
    for run in ["run 1\n", "run 2\n", "run 3\n"] {
        assert_eq!(printed(&program, &["volume"], dir.path()), run);
    }
}

#[test]
fn the_loop_example_reads_a_file_beside_its_timer() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("examples/loop.c", "gcc", "-std=c99", dir.path());
    for bytes in [0, 1, (64 << 10) * 20 + 123] {
        let content: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 4099) as u8).collect();
        std::fs::write(dir.path().join("file"), &content).unwrap();
        let sum: u64 = content.iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(printed(&program, &["file"], dir.path()), format!("sum {sum}\n"));
    }
}

/// No byte that is not there, none that nobody wrote, none that is lost at the end.
fn clean(test: &str, source: &str, compiler: &str, standard: &str) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skipped(test, "valgrind");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(source, compiler, standard, dir.path());
    let mut valgrind = Command::new("valgrind");
    // While a thread waits in io_uring_enter(2), valgrind 3.19 runs no other (docs/program/c-interface.md).
    valgrind
        .env("BAIO_BACKEND", "threads")
        .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
        .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
        .arg(program);
    copy_of(&mut valgrind, dir.path(), (256 << 10) * 3 + 123);
}

#[test]
fn the_c_example_is_clean_under_valgrind() {
    let test = "examples::the_c_example_is_clean_under_valgrind";
    clean(test, "examples/copy.c", "gcc", "-std=c99");
}

#[test]
fn the_cpp_example_is_clean_under_valgrind() {
    let test = "examples::the_cpp_example_is_clean_under_valgrind";
    clean(test, "examples/copy.cpp", "g++", "-std=c++17");
}
