//! One run with each I/O scheduler of the device, and the one in force before put back, whatever happens.
//!
//! The setting outlives this process, so a process beside it watches: a guard, this program again, with the reading end of a pipe. When
//! the pipe closes, because the run has ended or because this process is gone, also by SIGKILL, the guard puts the old
//! scheduler back. If it is the guard that is killed, this process notices before it changes anything more, and puts the old one
//! back itself. Only both killed at once leave another scheduler behind.
//!
//! The guard also holds a lock on the setting: a second run would take what the first has set for the old one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use baio_console::failure::Failure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::COMMAND;
use super::below::Below;
use crate::figures::job;

/// What the guard says when it is ready.
const READY: &str = "ready";

/// What the guard is to put back, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Guard {
    setting: PathBuf,
    old: String,
}

/// The setting, guarded.
pub(crate) struct Schedulers {
    guard: Guard,
    names: Vec<String>,
    child: Child,
}

impl Schedulers {
    /// Takes hold of the setting of the device below; nothing is changed yet.
    ///
    /// # Errors
    /// There is nothing to choose; this process may not; somebody else does.
    pub(crate) fn take(target: &str, below: &Below) -> Result<Schedulers, Failure> {
        let (Some(disk), Some(old)) = (&below.disk, &below.scheduler) else {
            let said = "the device below has no I/O scheduler to choose, or none that can be seen";
            return Err(Failure::new(COMMAND, "EOPNOTSUPP", said)
                .on(target)
                .needing("a disk with /sys/block/NAME/queue/scheduler")
                .cured_by("name a file on one, or leave out --schedulers"));
        };
        let guard = Guard {
            setting: format!("/sys/block/{disk}/queue/scheduler").into(),
            old: old.clone(),
        };
        let opened = OpenOptions::new().write(true).open(&guard.setting);
        opened.map_err(|error| {
            Failure::from_io(COMMAND, &error)
                .on(guard.setting.display().to_string())
                .needing("root, who may choose the I/O scheduler of a device")
                .cured_by("run it as root, or leave out --schedulers")
        })?;
        let child = guard.start().map_err(|said| {
            Failure::new(COMMAND, "EBUSY", said)
                .on(guard.setting.display().to_string())
                .needing("a process that puts the old scheduler back, and nobody else who chooses one")
                .cured_by("wait for the other run to end, or leave out --schedulers")
        })?;
        Ok(Schedulers {
            guard,
            names: below.schedulers.clone(),
            child,
        })
    }

    /// Calls `run` with each scheduler in force, then puts the old one back.
    pub(crate) fn each(mut self, mut run: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
        let done = std::mem::take(&mut self.names).iter().try_for_each(|name| {
            self.guard_lives()?;
            fs::write(&self.guard.setting, name).map_err(|error| self.refused(&error, name))?;
            run(name)
        });
        let lived = done.and_then(|()| self.guard_lives());
        // The first failure is the one to tell.
        lived.and(self.put_back())
    }

    /// A run without a guard would leave its scheduler behind.
    fn guard_lives(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(
                Failure::new(COMMAND, "ECHILD", "the process that guards the setting was killed")
                    .on(self.guard.setting.display().to_string())
                    .needing("a guard that lives as long as the run")
                    .cured_by("try again; the old scheduler is in force"),
            ),
        }
    }

    /// Lets the guard do it, and looks: if it has not, does it here.
    fn put_back(&mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        if self.guard.is_back() {
            return Ok(());
        }
        let old = &self.guard.old;
        fs::write(&self.guard.setting, old).map_err(|error| {
            let shell = format!("echo {old} > {}", self.guard.setting.display());
            self.refused(&error, old).cured_by(format!("as root: {shell}"))
        })
    }

    fn refused(&self, error: &std::io::Error, name: &str) -> Failure {
        Failure::from_io(COMMAND, error)
            .on(self.guard.setting.display().to_string())
            .needing(format!("a kernel that can use the scheduler {name} here"))
            .cured_by("leave out --schedulers")
    }
}

impl Drop for Schedulers {
    fn drop(&mut self) {
        // On every way out; whoever leaves by `each` has put it back already, and heard of trouble.
        let _ = self.put_back();
    }
}

impl Guard {
    fn start(&self) -> Result<Child, String> {
        let mut command = job::command_of(&json!({ "SchedulerGuard": self }))?;
        // In a group of its own: ^C at the terminal is for the run.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = spawn(&mut command)?;
        let mut said = String::new();
        if let Some(out) = child.stdout.take() {
            // Nothing said is not ready.
            let _ = BufReader::new(out).read_line(&mut said);
        }
        if said.trim() == READY {
            return Ok(child);
        }
        drop(child.stdin.take());
        let _ = child.wait();
        Err(if said.is_empty() {
            "the guard of the setting did not start".to_owned()
        } else {
            said.trim().to_owned()
        })
    }

    /// All that the guard does.
    pub(crate) fn run(&self) -> Result<Value, String> {
        let setting = File::open(&self.setting).map_err(|error| error.to_string())?;
        let locked = rustix::fs::flock(&setting, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        if locked.is_err() {
            say("another process is choosing this device's scheduler");
            std::process::exit(1);
        }
        say(READY);
        // Until the other end is closed, by whatever closes it.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let written = if self.is_back() {
            Ok(())
        } else {
            fs::write(&self.setting, &self.old)
        };
        // Nobody may be left to read what would be printed.
        std::process::exit(i32::from(written.is_err()))
    }

    fn is_back(&self) -> bool {
        let words = fs::read_to_string(&self.setting).unwrap_or_default();
        let wanted = format!("[{}]", self.old);
        words
            .split_whitespace()
            .any(|word| word == wanted || (word == self.old && words.trim() == self.old))
    }
}

/// To the run. One that is gone hears nothing, and closes the pipe that this waits on.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    command
        .spawn()
        .map_err(|error| format!("the guard of the setting did not start: {error}"))
}
