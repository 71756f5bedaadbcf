//! A program that a command runs to its end. It finds its signals as it would without us, it gets the signals that are sent to this
//! process, and its status becomes ours as a shell would show it.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus as Ended};

use baio_console::failure::Failure;
use baio_console::output::Output;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use crate::command::inherited::{self, Inherited};

/// What env(1) ends with when there is no such command, and when it cannot be run.
const NO_COMMAND: u8 = 127;
const NOT_RUN: u8 = 126;
/// What a shell adds to the signal that has ended a command.
const BY_SIGNAL: i32 = 128;
/// What is handed on: each would end this process, and leave the program behind.
const HANDED_ON: [(i32, Signal); 6] = [
    (SIGHUP, Signal::HUP),
    (SIGINT, Signal::INT),
    (SIGQUIT, Signal::QUIT),
    (SIGTERM, Signal::TERM),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
];

/// Runs it to its end, as `prepared`.
///
/// # Errors
/// It cannot be run.
pub(crate) fn run(command: &[OsString], prepare: impl FnOnce(&mut Command)) -> io::Result<Ended> {
    let (program, words) = command.split_first().ok_or(ErrorKind::InvalidInput)?;
    let heard = HANDED_ON.map(|(number, _)| number);
    let inherited = Inherited::keep(&heard);
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(heard)?;
    let mut prepared = Command::new(program);
    prepared.args(words);
    prepare(&mut prepared);
    let mut child = inherited.start(prepared, Command::spawn)?;
    let (pid, handle) = (Pid::from_child(&child), signals.handle());
    let hear = move || {
        inherited::let_through(&heard);
        for signal in signals.forever() {
            let known = HANDED_ON.iter().find(|(number, _)| *number == signal.si_signo);
            if let Some(&(_, known)) = known.filter(|_| is_for_it(&signal, pid)) {
                let _ = kill_process(pid, known);
            }
        }
    };
    let heard = baio_process::thread::named("signals").start(hear);
    has_ended(&child);
    // Nobody hands a signal on to a number that may be another's: the child is not reaped yet.
    handle.close();
    if let Ok(heard) = heard {
        let _ = heard.join();
    }
    child.wait()
}

/// Has it not got the signal itself? What the kernel sends, for a key of a terminal or when that goes, has reached our whole group. What a
/// process sends to a group cannot be told from what it sends to us alone.
fn is_for_it(signal: &libc::siginfo_t, program: Pid) -> bool {
    match inherited::sender(signal) {
        // Its own group, most likely, or a word to whoever has started it.
        Some(sender) => sender != program.as_raw_nonzero().get(),
        None => getpgid(Some(program)) != Ok(getpgrp()),
    }
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
