//! What the threads of a context share, and what is left to do when they have moved results.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baio_engine::shared::{Call, Reaper};
use baio_shim::counters::Operation;

use crate::abi::Iocb;
use crate::event_fd::Signals;
use crate::requests::Requests;

/// How long it takes at most until a loop that waits looks again.
pub(super) const MOMENT: Duration = Duration::from_millis(1);
/// And at least, for what ends as soon as a device has done it.
const SOON: Duration = Duration::from_micros(50);

/// A request that the kernel carries.
pub(super) struct Carried {
    pub(super) object: *mut Iocb,
    pub(super) operation: Operation,
    pub(super) event_fd: Option<Arc<OwnedFd>>,
    pub(super) started: u64,
    /// Since when it has been found in flight: it had not ended when `io_submit` returned. So it is with direct appends, where the file system
    /// does not wait for them, and with kinds of files of which nobody has thought.
    pub(super) stray: Option<Instant>,
    /// The row that has taken the flag out of the request, and not yet put it back; 0 for none.
    pub(super) hidden_by: u64,
}

/// What the threads of a context share.
pub(super) struct State {
    /// In flight on the ring.
    pub(super) requests: Requests,
    /// In flight in the kernel's own context.
    pub(super) carried: Vec<Carried>,
    pub(super) reaper: Reaper,
    /// Threads in `io_getevents`.
    pub(super) waiters: u32,
    /// The only one of them may sleep until so many results have arrived.
    pub(super) gathering: u32,
}

impl State {
    /// Is the kernel at work on what was to end in the call?
    pub(super) fn any_stray(&self) -> bool {
        self.carried.iter().any(|it| it.stray.is_some())
    }

    /// How long who waits sleeps until it looks for strays, if there are any: their ends wake nobody. The youngest says it.
    pub(super) fn look_again(&self) -> Option<Duration> {
        let youngest = self.carried.iter().filter_map(|it| it.stray).max()?;
        Some(look_again_at(youngest.elapsed()))
    }
}

/// Of a stray that is so old. What has lasted longer is looked for more seldom: it is seen late by a part of its time, and one that never ends costs
/// little.
fn look_again_at(age: Duration) -> Duration {
    (age / 8).clamp(SOON, MOMENT)
}

/// What is left to do when results have been moved, outside of locks.
#[derive(Default)]
pub(super) struct After {
    pub(super) signals: Signals,
    pub(super) again: Vec<Call>,
    /// How many results there were.
    pub(super) moved: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_young_is_looked_for_soon_and_what_never_ends_seldom() {
        assert_eq!(look_again_at(Duration::ZERO), Duration::from_micros(50));
        assert_eq!(look_again_at(Duration::from_millis(4)), Duration::from_micros(500));
        assert_eq!(look_again_at(Duration::from_secs(60)), MOMENT);
    }
}
