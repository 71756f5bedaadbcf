//! `baio freeze`: keeps a volume still while another program runs, so that what that copies is of one moment.
//!
//! The freeze is the session's: it ends with this process, however that ends. The program that was begun is not ended by that, so whoever
//! kills this process has to look at its status.

use std::ffi::OsString;
use std::process::ExitCode;

use baio::{Core, Error, FrozenVolume, Link, Remote, StillVolume};
use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_console::named::Volume;
use baio_console::output::Output;
use baio_console::target::TypedTarget;
use clap::Args;

use crate::command::child;

/// `baio freeze`
#[derive(Debug, Args)]
#[command(after_help = "\
Everything that was completed before is on the device. Until COMMAND has ended, writes and changes of the volume wait; reads go on.
A copy of the volume's file that COMMAND makes is of one moment, and opens as after a crash. Only root and the owner of the volume's
file may freeze. A volume that nobody has open cannot be opened for writing meanwhile.
SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 that are sent to baio are handed on to COMMAND, which finds its signals as without
baio. The volume thaws whatever becomes of COMMAND, and of baio.

Exit status: COMMAND's; 128+N if signal N has ended it; 126 if it cannot be run, 127 if there is none. 1 if the volume could not be frozen,
or was not until the end: then a line on standard error says so, and no copy is to be trusted.

Examples:
  baio format vol --size 64M
  baio freeze vol -- cp vol copy

Elsewhere:
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
    let ended = child::run(&args.command, |_| {});
    let thawed = thaw(still, &args.target);
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return child::tell_not_run("freeze", &args.command, &error, output),
    };
    match thawed {
        Ok(()) => child::status_of(ended),
        Err(failure) => output.tell_failure(&failure).into(),
    }
}

fn freeze(typed: &TypedTarget) -> Result<Still, Failure> {
    let told = |error: Error| Failure::from_storage("freeze", typed.to_string(), &error);
    let path = match typed.volume("freeze")? {
        Volume::Here(path) => path,
        Volume::Served(socket) => {
            let link = Remote::connect(&socket).map_err(told)?;
            let frozen = link.freeze().wait().map_err(told)?;
            return Ok(Still::Served(link, frozen));
        }
    };
    let kept = Core::keep_still(&path).map_err(|error| {
        let failure = told(error.clone());
        match error.code() {
            "EBUSY" => failure
                .needing("a volume that nobody has open, or the socket of its broker")
                .cured_by("name the broker's socket, unix:SOCKET; a program that has it open itself freezes it by Link::freeze"),
            _ => failure,
        }
    })?;
    diagnostics::say(format_args!(
        "baio: freeze: nobody has {typed} open: it is kept from being opened to write"
    ));
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
