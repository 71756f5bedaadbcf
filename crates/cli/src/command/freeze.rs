//! `baio freeze`: keeps a volume still while another program runs, so that what that copies is of one moment.
//!
//! The freeze is the session's: it ends with this process, however that ends. The program that was begun is not ended by that, so whoever
//! kills this process has to look at its status.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus as Ended};

use baio::{FrozenVolume, Link, Remote};
use baio_console::failure::Failure;
use baio_console::named::Reached;
use baio_console::output::Output;
use baio_console::printable::Printable;
use baio_console::target::TypedTarget;
use baio_storage::{Core, Error, StillVolume};
use clap::Args;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::command::served;

/// What env(1) ends with when there is no such command, and when it cannot be run.
const NO_COMMAND: u8 = 127;
const NOT_RUN: u8 = 126;
/// What a shell adds to the signal that has ended a command.
const BY_SIGNAL: i32 = 128;

/// `baio freeze`
#[derive(Debug, Args)]
#[command(after_help = "\
What was completed before is on the device; from then on writes and changes of the volume wait, reads go on, until COMMAND has ended.
A copy of the volume's file that COMMAND makes is of one moment, and opens as after a crash. Only root may freeze, and the user that
the volume's file belongs to. A volume that nobody has open is still: it is kept from being opened to write meanwhile.
SIGTERM and SIGHUP are handed on to COMMAND. The volume thaws whatever becomes of COMMAND, and of baio.

Exit status: COMMAND's; 128+N if signal N has ended it; 126 if it cannot be run, 127 if there is none. 1 if the volume could not be frozen,
or was not until the end: then a line on standard error says so, and no copy is to be trusted.

Examples:
  baio freeze unix:/run/baio/vol.sock -- cp --reflink=auto /srv/vol /backup/vol
  baio freeze unix:/run/baio/vol.sock -- lvcreate --snapshot --name snap --size 1G vg/vol")]
pub(crate) struct FreezeArgs {
    /// The volume
    #[arg(value_name = "TARGET")]
    target: TypedTarget,
    /// What to run meanwhile
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

/// A volume that stands still.
enum Still {
    /// Its broker keeps it so.
    Served(Remote, FrozenVolume),
    /// Nobody opens it.
    Here(StillVolume),
}

/// Freezes, runs the command, thaws.
pub(crate) fn run(args: &FreezeArgs, output: Output) -> ExitCode {
    let still = match freeze(&args.target) {
        Ok(still) => still,
        Err(failure) => return output.tell_failure(&failure).into(),
    };
    let ended = run_meanwhile(&args.command);
    let thawed = thaw(still, &args.target);
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            output.tell_failure(&not_run(&args.command, &error));
            let is_missing = error.kind() == ErrorKind::NotFound;
            return ExitCode::from(if is_missing { NO_COMMAND } else { NOT_RUN });
        }
    };
    match thawed {
        Ok(()) => status_of(ended),
        Err(failure) => output.tell_failure(&failure).into(),
    }
}

fn freeze(typed: &TypedTarget) -> Result<Still, Failure> {
    let told = |error: Error| Failure::from_storage("freeze", typed.to_string(), &error);
    if let Reached::Served(served) = Reached::resolve("freeze", typed)? {
        let served = served::volume("freeze", typed, served)?;
        let link = Remote::connect(&served.socket).map_err(told)?;
        let frozen = link.freeze().wait().map_err(told)?;
        return Ok(Still::Served(link, frozen));
    }
    let path = typed.path("freeze")?;
    let kept = Core::keep_still(&path).map_err(|error| {
        let failure = told(error.clone());
        match error.code() {
            "EBUSY" => failure
                .needing("a volume that nobody has open, or the socket of its broker")
                .cured_by("name the broker's socket, unix:SOCKET; a program that has it open itself freezes it by Link::freeze"),
            _ => failure,
        }
    })?;
    let name = typed.to_string();
    // Nobody is left to tell when this fails.
    let _ = writeln!(
        io::stderr(),
        "baio: freeze: nobody has {} open: it is kept from being opened to write",
        Printable(&name)
    );
    Ok(Still::Here(kept))
}

/// Lets changes go on. A broker that has ended meanwhile, or the session, has thawed it before: whoever copied must know.
fn thaw(still: Still, typed: &TypedTarget) -> Result<(), Failure> {
    let (link, frozen) = match still {
        Still::Served(link, frozen) => (link, frozen),
        Still::Here(kept) => {
            drop(kept);
            return Ok(());
        }
    };
    let held = link.info().wait();
    drop(frozen);
    // The session's end thaws too.
    let _ = link.close();
    match held {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::from_storage("freeze", typed.to_string(), &error)
            .needing("a session that lasts as long as the command: the volume thawed before it had ended")
            .cured_by("throw away what was copied, and freeze again")),
    }
}

/// Runs it to its end. Ctrl-C reaches the command from the terminal; what asks this process alone to end is handed on to it.
fn run_meanwhile(command: &[OsString]) -> io::Result<Ended> {
    let (program, words) = command.split_first().ok_or(ErrorKind::InvalidInput)?;
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let mut child = Command::new(program).args(words).spawn()?;
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

fn status_of(ended: Ended) -> ExitCode {
    let by_signal = || BY_SIGNAL + ended.signal().unwrap_or_default();
    // A status has 8 bits, and a signal fewer.
    ExitCode::from(ended.code().unwrap_or_else(by_signal) as u8)
}

fn not_run(command: &[OsString], error: &io::Error) -> Failure {
    let name = command
        .first()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Failure::from_io("freeze", error)
        .on(name)
        .needing("a command that can be run")
        .cured_by("name a program behind --")
}
