//! How a request is to be carried out: through which cache, how safe, whether it may wait, and until when.

pub use baio_words::{Caching, Durability, Time};

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
