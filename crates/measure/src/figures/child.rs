//! Another process, run to its end, and what it has cost (wait4(2)).

#![allow(unsafe_code)]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use baio_process::thread;
use baio_stress::Measurement;
use baio_stress::costs::{Costs, memory_max};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getppid, set_parent_process_death_signal, waitid};

use crate::figures::interrupt::{self, Running};
use crate::figures::quoted;

/// What a finished process printed and cost.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) costs: Costs,
    /// The most memory that it, or a process that it has started, was seen to have.
    pub(crate) rss_bytes: u64,
}

impl Finished {
    /// Tells what a side of a comparison has cost, the whole process; `start` of it was not for its requests, where that is known.
    pub(crate) fn charge(&self, to: &mut Measurement, start: Option<Duration>) {
        let requests = to.requests.max(1) as f64;
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / requests;
        to.cpu_us_per_request = each(self.costs.cpu);
        to.cpu_less_start_us_per_request = start.map(|start| each(self.costs.cpu.saturating_sub(start)));
        to.context_switches_per_request = self.costs.context_switches as f64 / requests;
    }
}

/// This program with other words, as a shell would be given it.
pub(crate) fn own_command_line(words: &[String]) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "baio".into());
    let program = quoted(&program.to_string_lossy());
    let words = words.iter().map(|word| quoted(word));
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

/// Runs this program with other words to its end.
pub(crate) fn run_own(words: &[String]) -> std::io::Result<Finished> {
    run(Command::new(std::env::current_exe()?).args(words))
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

/// Runs a command to its end.
///
/// # Errors
/// It did not start, or the report was interrupted.
pub(crate) fn run(command: &mut Command) -> std::io::Result<Finished> {
    interrupt::check().map_err(|came| std::io::Error::other(came.to_string()))?;
    let mut child = ends_with_this(command)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = child.id();
    let id = Pid::from_child(&child);
    let running = Running::new(id);
    let (ended, is_over) = channel::<()>();
    let watcher = thread::named("memory").start(move || watch_memory(pid, &is_over))?;
    let mut stdout = String::new();
    let mut stderr = String::new();
    // Standard error is read by a thread of its own: a child that fills one pipe must not wait for the other.
    let errors = child.stderr.take();
    let reader = thread::named("errors").start(move || {
        let mut text = String::new();
        if let Some(mut errors) = errors {
            let _ = errors.read_to_string(&mut text);
        }
        text
    })?;
    if let Some(out) = &mut child.stdout {
        out.read_to_string(&mut stdout)?;
    }
    if let Ok(text) = reader.join() {
        stderr = text;
    }
    // It is left unreaped until nobody looks at it any more: its number must not be another's.
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT))?;
    drop(ended);
    let rss_bytes = watcher.join().unwrap_or(0);
    drop(running);
    let (status, usage) = wait4(pid)?;
    // What one printed that was ended is no measurement.
    interrupt::check().map_err(|came| std::io::Error::other(came.to_string()))?;
    Ok(Finished {
        success: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        stdout,
        stderr,
        costs: usage.into(),
        rss_bytes,
    })
}

/// The most memory that a process and its children have, looked at again and again until the other end of `is_over` is dropped.
///
/// `ru_maxrss` would not do: it begins with what the parent had when it started the process (execve(2) keeps the greater of the two).
fn watch_memory(pid: u32, is_over: &Receiver<()>) -> u64 {
    const PAUSE_MAX: Duration = Duration::from_millis(50);
    let mut pause = Duration::from_millis(1);
    let mut most = 0;
    loop {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let own = std::iter::once(memory_max(&pid.to_string()));
        most = own
            .chain(children.split_whitespace().map(memory_max))
            .fold(most, u64::max);
        match is_over.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => pause = (pause * 2).min(PAUSE_MAX),
            _ => return most,
        }
    }
}

/// The standard library's `wait` throws the costs away.
fn wait4(pid: u32) -> std::io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: all-zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for the call; the child is ours and nobody else waits for it.
        let waited = unsafe { libc::wait4(pid as libc::pid_t, &raw mut status, 0, &raw mut usage) };
        if waited >= 0 {
            return Ok((status, usage));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_its_own_and_not_its_parents() {
        const MIB: u64 = 1 << 20;
        let parents = std::hint::black_box(vec![1_u8; 128 << 20]);
        let small = run(Command::new("sleep").arg("0.05")).unwrap();
        assert!((1..32 * MIB).contains(&small.rss_bytes), "{}", small.rss_bytes);
        // Its child's counts too: fio works in one.
        let dd = "dd if=/dev/zero of=/dev/null bs=64M count=16; true";
        let large = run(Command::new("sh").args(["-c", dd])).unwrap();
        assert!((64 * MIB..96 * MIB).contains(&large.rss_bytes), "{}", large.rss_bytes);
        drop(parents);
    }
}
