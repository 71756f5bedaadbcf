//! A program that a command runs: to its end, with the signals that ask this process to end handed on to it, and its status as a shell
//! tells it.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus as Ended};

use baio_console::failure::Failure;
use baio_console::output::Output;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// What env(1) ends with when there is no such command, and when it cannot be run.
const NO_COMMAND: u8 = 127;
const NOT_RUN: u8 = 126;
/// What a shell adds to the signal that has ended a command.
const BY_SIGNAL: i32 = 128;

/// Runs it to its end, as `prepared`. Ctrl-C reaches it from the terminal; what asks this process alone to end is handed on to it.
///
/// # Errors
/// It cannot be run; `ECHILD` where children of this process are not waited for (`SIGCHLD` is ignored): it has run.
pub(crate) fn run(command: &[OsString], prepare: impl FnOnce(&mut Command)) -> io::Result<Ended> {
    let (program, words) = command.split_first().ok_or(ErrorKind::InvalidInput)?;
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let mut started = Command::new(program);
    started.args(words);
    prepare(&mut started);
    let mut child = started.spawn()?;
    let (pid, handle) = (Pid::from_child(&child), signals.handle());
    let hear = move || {
        for signal in signals.forever() {
            let handed_on = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            let _ = kill_process(pid, handed_on);
        }
    };
    let heard = std::thread::Builder::new().name("signals".into()).spawn(hear);
    has_ended(&child);
    // Nobody hands a signal on to a number that may be another's: the child is not reaped yet.
    handle.close();
    if let Ok(heard) = heard {
        let _ = heard.join();
    }
    child.wait()
}

/// Waits for its end, and leaves it to be reaped.
fn has_ended(child: &Child) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(Pid::from_child(child)), options), Err(Errno::INTR)) {}
}

/// What a shell would tell of it.
pub(crate) fn status_of(ended: Ended) -> ExitCode {
    let by_signal = || BY_SIGNAL + ended.signal().unwrap_or_default();
    // A status has 8 bits, and a signal fewer.
    ExitCode::from(ended.code().unwrap_or_else(by_signal) as u8)
}

/// Says why it was not run, as the command `operation`; returns the status that env(1) would end with.
pub(crate) fn tell_not_run(
    operation: &'static str,
    command: &[OsString],
    error: &io::Error,
    output: Output,
) -> ExitCode {
    let name = command
        .first()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let failure = Failure::from_io(operation, error)
        .on(name)
        .needing("a command that can be run")
        .cured_by("name a program behind --");
    output.tell_failure(&failure);
    let is_missing = error.kind() == ErrorKind::NotFound;
    ExitCode::from(if is_missing { NO_COMMAND } else { NOT_RUN })
}
