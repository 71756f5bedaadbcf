//! What the buffer pool notes of each frame.

/// What the buffer pool knows of a frame.
#[derive(Debug, Default)]
pub(super) struct Pooled {
    /// Pins of the pool; all of them together are one of the frame's.
    pub(super) lent: u32,
    /// Counts the pages that the frame has held: a pin of an earlier one is stale.
    pub(super) epoch: u32,
    /// LSN of its last change; 0 when none that was logged waits to be safe.
    pub(super) lsn: u64,
    /// LSN of its first change since it was clean.
    pub(super) recovery: Option<u64>,
    /// Writes of it that no flush has covered and behind which it was taken up again, oldest first. Two at most: a flush that
    /// is on its way will cover the one, the next flush the other.
    pub(super) written: [Option<Written>; 2],
    /// Somebody waits until it has been written, and it for the log.
    pub(super) wanted: bool,
    /// The log waits for that: it has become too long.
    pub(super) is_due: bool,
    /// It is gated, and on the gate's list under this LSN.
    pub(super) listed: Option<u64>,
    /// It is on the gate's list of those whose changes wait.
    pub(super) held_up: bool,
    /// It is not evicted.
    pub(super) kept: bool,
}

/// A write that has ended, of a page that is not as it was then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// How many flushes had begun when it ended: a later one covers it.
    pub(super) flushes: u64,
    /// LSN of the first change behind it.
    pub(super) next: Option<u64>,
}
