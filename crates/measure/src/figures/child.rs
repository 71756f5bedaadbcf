//! What a process has cost: another one, run to its end (wait4(2)), or this one so far (getrusage(2)).

#![allow(unsafe_code)]

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a finished process printed and cost.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// User and system time of all its threads, those of the kernel that work for it included.
    pub(crate) cpu: Duration,
    pub(crate) context_switches: u64,
    pub(crate) rss_bytes: u64,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> std::io::Result<Finished> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdout = String::new();
    let mut stderr = String::new();
    // Standard error is read by a thread of its own: a child that fills one pipe must not wait for the other.
    let errors = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut errors) = errors {
            let _ = errors.read_to_string(&mut text);
        }
        text
    });
    if let Some(out) = &mut child.stdout {
        out.read_to_string(&mut stdout)?;
    }
    if let Ok(text) = reader.join() {
        stderr = text;
    }
    let (status, usage) = wait4(child.id())?;
    Ok(Finished {
        success: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        stdout,
        stderr,
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        rss_bytes: usage.ru_maxrss as u64 * 1024,
    })
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

/// What this process has used up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    /// User and system time of all its threads, those of the kernel that work for it included.
    pub(crate) cpu: Duration,
    pub(crate) context_switches: u64,
}

/// What this process has cost so far.
pub(crate) fn own_costs() -> Costs {
    // SAFETY: all-zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call. With this `who` it cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    Costs {
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
    }
}

impl std::ops::Sub for Costs {
    type Output = Costs;

    fn sub(self, before: Costs) -> Costs {
        Costs {
            cpu: self.cpu.saturating_sub(before.cpu),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// A number from `/proc/self/status`: "VmHWM" in KiB, "Threads".
pub(crate) fn status_of_self(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
