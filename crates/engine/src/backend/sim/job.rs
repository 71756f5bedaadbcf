//! One iteration on its way through a simulated disk.

use std::ops::Range;

use crate::backend::sim::cache::Change;
use crate::backend::sim::faults::{Kind, Strike};
use crate::policy::Time;
use crate::request::RequestId;

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: RequestId,
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
