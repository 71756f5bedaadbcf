//! How this program is started again with a job: `baio worker JOB`, which `main` asks for first. What jobs there are [`worker`] knows.
//!
//! [`worker`]: crate::figures::worker

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

/// The command by which the program knows that it is a worker.
pub(crate) const COMMAND: &str = "worker";

/// The words before those of the job's own: this program, that command, the job.
pub(crate) const WORDS: usize = 3;

/// Does this program ask for a job when it begins? One that does not, such as a test, would only do again what it does.
static ASKS: AtomicBool = AtomicBool::new(false);

/// The job of this process as JSON, if it is a worker.
pub(crate) fn of_self() -> Option<String> {
    ASKS.store(true, Ordering::Relaxed);
    let mut words = std::env::args_os().skip(1);
    if words.next()? != COMMAND {
        return None;
    }
    Some(words.next().unwrap_or_default().to_string_lossy().into_owned())
}

/// This program again, with a job; whoever is one itself names it by its word.
pub(crate) fn command_of(job: &impl Serialize) -> Result<Command, String> {
    if !ASKS.load(Ordering::Relaxed) {
        return Err("this program does no jobs of the report".into());
    }
    let program = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    let json = serde_json::to_string(job).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args([COMMAND, &json]);
    Ok(command)
}
