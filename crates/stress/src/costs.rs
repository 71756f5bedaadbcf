//! What a process has cost: getrusage(2) of this one, and what `/proc` tells of any.

#![allow(unsafe_code)]

use std::time::Duration;

/// What this process has used up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// User and system time of all its threads, those of the kernel that work for it included.
    pub cpu: Duration,
    /// Of all of them, too.
    pub context_switches: u64,
}

/// What this process has cost so far.
pub fn own_costs() -> Costs {
    // SAFETY: all-zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call. With this `who` it cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.into()
}

impl From<libc::rusage> for Costs {
    fn from(usage: libc::rusage) -> Costs {
        let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Costs {
            cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
            context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        }
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

/// The most memory that this process has had since it began its program, in bytes; `None` where the system does not tell.
pub fn own_memory_max() -> Option<u64> {
    let kib = status_of("self", "VmHWM");
    (kib > 0).then_some(kib << 10)
}

/// A number from `/proc/PID/status`, of a process or "self": "VmHWM" in KiB, "Threads". 0 where there is none.
pub fn status_of(pid: &str, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
