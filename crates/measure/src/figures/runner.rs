//! A process that does nothing but run another one, and tells what that has cost.
//!
//! The kernel keeps the most memory that a process has had, and those that it has waited for, for whoever waits for it (`ru_maxrss` of
//! wait4(2)). So nobody has to look in time. But the figure begins with the memory of the process that starts it, for execve(2) keeps the
//! greater of the two. A report has much; this process has little.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use baio_stress::costs::Costs;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figures::job;

/// What a process has cost.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) success: bool,
    /// What has killed it.
    pub(crate) signal: Option<i32>,
    pub(crate) cpu: Duration,
    pub(crate) context_switches: u64,
    /// From before its start to its end.
    pub(crate) elapsed: Duration,
    /// The most memory that it, or a process that it has started, has had.
    pub(crate) memory_bytes: u64,
}

/// What the runner tells, on its standard input, which is a pipe to be written to: the other two are the command's.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    /// It did not start.
    Refused {
        errno: i32,
    },
    Ended(Ended),
}

/// All that the runner does. The words of the command stand behind the job.
pub(super) fn run() -> Result<Value, String> {
    let mut words = std::env::args_os().skip(job::WORDS);
    let mut command = Command::new(words.next().ok_or("no command to be run")?);
    let ended = run_to_end(command.args(words).stdin(Stdio::null()));
    let told = ended.map_or_else(
        |error| Told::Refused {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        },
        Told::Ended,
    );
    let text = serde_json::to_string(&told).map_err(|error| error.to_string())?;
    let pipe = io::stdin().as_fd().try_clone_to_owned();
    let written = pipe.and_then(|pipe| File::from(pipe).write_all(text.as_bytes()));
    // What is printed is the command's.
    std::process::exit(i32::from(written.is_err()))
}

fn run_to_end(command: &mut Command) -> io::Result<Ended> {
    let begun = Instant::now();
    let child = ends_with_this(command).spawn()?;
    let (status, usage) = wait4(child.id())?;
    let elapsed = begun.elapsed();
    let costs = Costs::from(usage);
    let status = ExitStatus::from_raw(status);
    Ok(Ended {
        success: status.success(),
        signal: status.signal(),
        cpu: costs.cpu,
        context_switches: costs.context_switches,
        elapsed,
        memory_bytes: (usage.ru_maxrss as u64) << 10,
    })
}

/// The standard library's `wait` throws the costs away.
fn wait4(pid: u32) -> io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: all-zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for the call; the child is ours and nobody else waits for it.
        let waited = unsafe { libc::wait4(pid as libc::pid_t, &raw mut status, 0, &raw mut usage) };
        if waited >= 0 {
            return Ok((status, usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A process ends with this one, also where this one is killed and can tell it nothing (PR_SET_PDEATHSIG):
/// SIGTERM then, so that it closes what it has open. More exactly it ends with the thread that starts it.
pub(crate) fn ends_with_this(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    let before_it_begins = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // Without this one it would wait for a signal that has been sent already.
        match getppid() {
            Some(now) if now.as_raw_nonzero().get().unsigned_abs() != parent => {
                Err(std::io::Error::from_raw_os_error(libc::ESRCH))
            }
            // None: the parent is of another PID namespace, and this cannot be told.
            _ => Ok(()),
        }
    };
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated, and no lock is taken.
    unsafe { command.pre_exec(before_it_begins) }
}
