//! What the programs under `examples/` are written with. Each measures one thing, alone on its command line, or as a side of an
//! experiment of the report; so all of them have one shape of result.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread::{Scope, ScopedJoinHandle};

use baio_console::diagnostics;
use serde::Serialize;

pub use baio_stress::costs::status_of;
pub use baio_stress::{CacheCounts, Latency, Measurement, Permutation, Random, Recorder, mix};

/// Prints what a program has found, as JSON, or why it could not.
pub fn tell(found: Result<impl Serialize, String>) -> ExitCode {
    let said = found.and_then(|found| serde_json::to_string(&found).map_err(|error| error.to_string()));
    let written = said.and_then(|json| writeln!(io::stdout(), "{json}").map_err(|error| error.to_string()));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

/// A line on standard error, whether anybody reads it or not.
pub fn say(line: &str) {
    diagnostics::say(line);
}

/// The words of a program's command line: a file, and what may follow it.
///
/// # Errors
/// There is no file: how the program is used.
pub fn words(usage: &str) -> Result<(std::path::PathBuf, Vec<String>), String> {
    let mut words = std::env::args().skip(1);
    let file = words.next().ok_or_else(|| format!("usage: {usage}"))?;
    Ok((file.into(), words.collect()))
}

/// Threads of a scope, one for each piece of work.
///
/// # Errors
/// One of them could not be made.
pub fn started<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    works: impl IntoIterator<Item: FnOnce() -> T + Send + 'scope>,
) -> Result<Vec<ScopedJoinHandle<'scope, T>>, String> {
    let start = |work| baio_process::thread::named("worker").start_in(scope, work);
    let started: Result<Vec<_>, _> = works.into_iter().map(start).collect();
    started.map_err(|error| format!("start a thread: {error}; {}", baio_process::thread::CURE))
}

/// What a thread gave.
///
/// # Errors
/// What the thread said, or that it panicked.
pub fn joined<T>(result: std::thread::Result<Result<T, String>>) -> Result<T, String> {
    result.unwrap_or_else(|_| Err("a thread ended badly".into()))
}
