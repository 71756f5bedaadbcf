//! SIGINT and SIGTERM while a report runs: the processes that it has started end, and code that asks [`check`] stops with an error. That
//! error goes the usual way up, so figures are kept and working files are removed.
//!
//! Each process is the first of a group of its own: what it has started ends with it, and a ^C at the terminal comes to the report alone.

use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use baio_console::end_by::Asked;
use baio_console::failure::Failure;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// The first signal that came; 0 before. Set by the watching thread, looked at by all others: they need to see nothing but the number.
static CAME: AtomicI32 = AtomicI32::new(0);

/// Groups of processes that run now.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Why the report ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted(i32);

impl Interrupted {
    #[cfg(test)]
    pub(crate) fn by(signal: i32) -> Interrupted {
        Interrupted(signal)
    }

    pub(crate) fn is_by_terminal(self) -> bool {
        self.0 == SIGINT
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            SIGINT => "interrupted by SIGINT",
            SIGQUIT => "ended by SIGQUIT",
            SIGHUP => "ended by SIGHUP",
            _ => "ended by SIGTERM",
        })
    }
}

/// Does somebody want the report to end?
pub(crate) fn check() -> Result<(), Interrupted> {
    match CAME.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Interrupted(signal)),
    }
}

/// The same, for whoever ends by a failure.
pub(crate) fn refuse() -> Result<(), Failure> {
    check().map_err(|came| Failure::new("report", "EINTR", came.to_string()))
}

/// Looks out for both signals from now on. A second one ends this process at once, and leaves its working files to the next report.
///
/// # Errors
/// The kernel gives no pipe or no thread.
pub(crate) fn watch() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    baio_process::thread::named("signals").start(move || {
        let mut asked = Asked::default();
        for signal in signals.forever() {
            if asked.is_again() {
                std::process::exit(128 + signal);
            }
            let _ = CAME.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
            for group in running().iter() {
                end(*group);
            }
        }
    })?;
    Ok(())
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
