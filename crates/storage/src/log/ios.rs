//! Whose I/Os a log has under way.

use crate::slot_map::SlotKey;

/// Whose an I/O is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IoOwner {
    /// The batch with this number.
    Batch(u64),
    /// What runs now.
    Job,
    /// Zeroes, for what runs now: at this place of the data, so many.
    Zeroes { at: u64, len: u32 },
    /// A read request.
    Read(SlotKey),
}

/// What is counted of them, and nowhere else.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartCounts {
    pub(super) headers: u64,
    pub(super) reads_device: u64,
}
