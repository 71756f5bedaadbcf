//! The promise: the compiler does not let a failure go unread, nor a buffer be used while the kernel has it, nor a local link
//! leave its thread. No function of the programs of `compile_fail/` must compile, each for its reason in the file beside it; those of
//! `compile_pass/` do the same rightly. What the compiler finds in one pass stands in one program: each takes seconds.
//!
//! What the compiler says changes from one to the next, so they are compared under one of them. The reasons are written anew
//! by `TRYBUILD=overwrite cargo test -p baio --test results_first`, with that one.

use std::io::Write;
use std::process::Command;

/// The compiler whose words stand in `compile_fail/*.stderr`.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn what_is_wrong_does_not_compile() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map_or_else(
        |error| error.to_string(),
        |told| String::from_utf8_lossy(&told.stdout).into_owned(),
    );
    if !version.starts_with(COMPILER) {
        // Past the capture of the test's output.
        let why = format!("{COMPILER}x tells the reasons, and this is {}", version.trim());
        let line = format!("SKIPPED: what_is_wrong_does_not_compile: {why}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    }
    let programs = trybuild::TestCases::new();
    programs.compile_fail("tests/compile_fail/*.rs");
    programs.pass("tests/compile_pass/*.rs");
}
