//! SIGINT and SIGTERM while a report runs: the processes that it has started end, and code that asks [`check`] stops with an error. That
//! error goes the usual way up, so figures are kept and working files are removed.
//!
//! Each process is the first of a group of its own: what it has started ends with it, and a ^C at the terminal comes to the report alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use baio_console::failure::Failure;
use baio_console::interrupt::{Interrupt, came, hear_and};
use rustix::process::{Pid, Signal, kill_process_group};

/// Groups of processes that run now.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Does somebody want the report to end?
pub(crate) fn check() -> Result<(), Interrupt> {
    came().map_or(Ok(()), Err)
}

/// The same, for whoever ends by a failure.
pub(crate) fn refuse() -> Result<(), Failure> {
    check().map_err(|came| Failure::new("report", "EINTR", came.to_string()))
}

/// Looks out for both signals from now on. A second one ends this process at once, and leaves its working files to the next report.
///
/// # Errors
/// The system has no handler for them.
pub(crate) fn watch(operation: &str) -> Result<(), Failure> {
    hear_and(operation, || running().iter().copied().for_each(end))
}

/// A process with a group of its own that ends with the report, until this is dropped: before its number may be another's.
pub(crate) struct Running(Pid);

impl Running {
    pub(crate) fn new(first: Pid) -> Running {
        running().push(first);
        if check().is_err() {
            // It was started while the signal came.
            end(first);
        }
        Running(first)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        running().retain(|group| *group != self.0);
    }
}

fn running() -> MutexGuard<'static, Vec<Pid>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(group: Pid) {
    // It may have ended by itself.
    let _ = kill_process_group(group, Signal::KILL);
}
