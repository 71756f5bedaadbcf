//! One iteration on its way through a simulated disk.

use std::ops::Range;

use crate::backend::sim::cache::Change;
use crate::backend::sim::faults::{Kind, Strike};
use crate::policy::Time;
use crate::request::RequestId;

/// Whose it is: one of the machine's engines, and what that one calls it. Two engines may call theirs alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) engine: usize,
    pub(crate) id: RequestId,
}

impl Owner {
    /// What the trace calls it.
    pub(crate) fn to_bits(self) -> u64 {
        self.id.to_bits() ^ (self.engine as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) owner: Owner,
    /// Names it among all of its machine.
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// What a write or an allocation does to the bytes: taken when it was started.
    pub(crate) change: Option<Change>,
    pub(crate) durable: bool,
    pub(crate) direct: bool,
    /// Sets space aside, and changes nothing.
    pub(crate) reserves: bool,
    /// Records that its disk had when it began.
    pub(crate) began: usize,
    /// What a flush covers: see `Disk::begin_flush`.
    pub(crate) covers: (u64, u64),
    pub(crate) strike: Option<Strike>,
    pub(crate) arrived: Time,
    /// The device's own mark: what it must have destaged before a flush ends.
    pub(crate) mark: u64,
    /// Called back while the device worked on it: it has been answered, and does nothing.
    pub(crate) cancelled: bool,
}

impl Job {
    /// The bytes that it touches; none for a flush.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len)
    }

    /// How many bytes go over the wire.
    pub(crate) fn moved(&self) -> u64 {
        match self.kind {
            Kind::Read | Kind::Write => self.len,
            Kind::Flush | Kind::Allocate | Kind::Truncate | Kind::Other => 0,
        }
    }
}
