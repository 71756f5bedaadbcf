//! The clock that a service and its clients share.

use std::time::Duration;

/// Engine time, in nanoseconds from an origin of the engine's own. A plain number, so that a simulation can own it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The moment `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Time {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(ns))
    }

    /// How long from `earlier` to here; zero when it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Now, as a client reads it: the monotonic clock, which all real backends use.
    #[must_use]
    pub fn monotonic() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// Seconds, and nanoseconds beyond them, as the kernel wants them.
    #[must_use]
    pub fn split(self) -> (i64, i64) {
        ((self.0 / 1_000_000_000) as i64, (self.0 % 1_000_000_000) as i64)
    }
}
