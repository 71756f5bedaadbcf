//! What io_getevents(2) is asked for, and for how long.

#![allow(unsafe_code)]

use std::ffi::c_long;
use std::time::Duration;

use crate::abi::IoEvent;

/// How long `io_getevents` may sleep.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    Never,
    For(Duration),
    Ever,
}

/// What io_getevents(2) is asked for.
pub(crate) struct Wait {
    pub(crate) least: c_long,
    pub(crate) most: c_long,
    pub(crate) events: *mut IoEvent,
    pub(crate) limit: *mut libc::timespec,
}

impl Wait {
    /// So many events are there, and it has slept so long; what is left of its limit lies in `left`.
    ///
    /// # Safety
    /// The limit may be read; `left` lasts as long as this.
    pub(crate) unsafe fn go_on(&mut self, more: usize, slept: Duration, left: &mut libc::timespec) {
        self.least = (self.least - more as c_long).max(0);
        self.most -= more as c_long;
        self.events = self.events.wrapping_add(more);
        if self.limit.is_null() {
            return;
        }
        // SAFETY: the caller's promise.
        if let Limit::For(time) = limit_of(unsafe { self.limit.read_unaligned() }) {
            let time = time.saturating_sub(slept);
            left.tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            left.tv_nsec = time.subsec_nanos().into();
            self.limit = left;
        }
    }
}

pub(crate) fn limit_of(time: libc::timespec) -> Limit {
    // A moment that is over is for ever to the kernel (`ktime_add_safe`, kernel/time/hrtimer.c).
    let Ok(seconds) = u64::try_from(time.tv_sec) else {
        return Limit::Ever;
    };
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0).min(999_999_999);
    match Duration::new(seconds, nanoseconds) {
        Duration::ZERO => Limit::Never,
        time => Limit::For(time),
    }
}
