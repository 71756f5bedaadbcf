//! How a request is to be carried out: through which cache, how safe, whether it may wait, and until when.

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
}

/// Through which cache a request goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Caching {
    /// The kernel's page cache.
    Kernel,
    /// The kernel's page cache, dropped behind the request (`RWF_DONTCACHE`).
    Uncached,
    /// Past it (`O_DIRECT`).
    #[default]
    Direct,
}

impl Caching {
    /// The word used in every message and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Caching::Kernel => "kernel",
            Caching::Uncached => "uncached",
            Caching::Direct => "direct",
        }
    }
}

/// What a completed write, or a sync, has made safe against a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Nothing: it is in the file, but perhaps only in volatile memory.
    #[default]
    None,
    /// The bytes and what is needed to find them (`RWF_DSYNC`, fdatasync(2)).
    Data,
    /// All of the inode too (`RWF_SYNC`, fsync(2)).
    Full,
}

/// May the request wait for the device?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// Yes, asynchronously.
    #[default]
    Wait,
    /// No: it fails with `EAGAIN` instead (`RWF_NOWAIT`). Only such callers ever see `EAGAIN` or `EINTR`.
    NoWait,
}

/// How one request is to be carried out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Through which cache.
    pub caching: Caching,
    /// How safe it must be when it completes.
    pub durability: Durability,
    /// May it wait?
    pub patience: Patience,
    /// When to give up on it: it then completes as `Indeterminate`, and its memory comes back by a `Released` notice.
    pub deadline: Option<Time>,
}

impl Policy {
    /// Through the kernel's page cache.
    #[must_use]
    pub fn kernel() -> Policy {
        Policy {
            caching: Caching::Kernel,
            ..Policy::default()
        }
    }

    /// Past the kernel's page cache.
    #[must_use]
    pub fn direct() -> Policy {
        Policy::default()
    }

    /// The same with this durability.
    #[must_use]
    pub fn durable(mut self, durability: Durability) -> Policy {
        self.durability = durability;
        self
    }
}

/// How `allocate` leaves the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Reserved; what was there stays (`fallocate` mode 0).
    Reserve,
    /// Reserved and reading as zero (`FALLOC_FL_ZERO_RANGE`).
    Zero,
    /// Given back, reading as zero (`FALLOC_FL_PUNCH_HOLE`).
    Discard,
}

impl Space {
    pub(crate) fn keeps_size(self) -> bool {
        self == Space::Discard
    }
}

impl Patience {
    pub(crate) fn may_wait(self) -> bool {
        self == Patience::Wait
    }
}

/// Engine time is a number of nanoseconds; the kernel wants seconds and nanoseconds.
impl Time {
    pub(crate) fn split(self) -> (i64, i64) {
        ((self.0 / 1_000_000_000) as i64, (self.0 % 1_000_000_000) as i64)
    }
}
