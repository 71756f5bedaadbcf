//! What can be asked of an opened segment or file.

use std::ops::Range;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentOp {
    /// Fill the request's memory from `offset`. At the end there is less, and at last nothing, to read.
    Read {
        /// First byte.
        offset: u64,
    },
    /// Write the request's memory at `offset`.
    Write {
        /// First byte.
        offset: u64,
    },
    /// Make every write completed before this durable; the request's durability says how far.
    Sync,
    /// A sync that begins by itself when every request that changes bytes, submitted before it to the same file or segment by whatever
    /// handle of the same core or service, has ended, however: errors of those are told by their own outcomes. What is submitted
    /// after it is not waited for.
    Fence,
    /// Give the space of a range back: it reads as zeros from then on, of a segment and of a file. Whoever cannot promise that
    /// refuses it (`EOPNOTSUPP`). Ends with 0: no bytes are transferred. After an error some of the range may be zeros already.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes, as many as the segment has at most.
        len: u64,
    },
    /// Make a range read as zeros, and keep its space. Ends as a discard does.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes, as many as the segment has at most.
        len: u64,
    },
    /// Make a plain file so long: what lies behind is gone, and what is new reads as zeros. Ends as a discard does. A segment refuses
    /// it, and so does a device: each has the size that its owner gave it.
    Truncate {
        /// Bytes.
        len: u64,
    },
    /// Set space aside for a range of a plain file: no byte changes, and a file that ended before it is longer. Ends as a discard
    /// does. Who refuses a truncation refuses this.
    Allocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl SegmentOp {
    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SegmentOp::Read { .. } => "read",
            SegmentOp::Write { .. } => "write",
            SegmentOp::Sync => "sync",
            SegmentOp::Fence => "fence",
            SegmentOp::Discard { .. } => "discard",
            SegmentOp::Zero { .. } => "zero",
            SegmentOp::Truncate { .. } => "truncate",
            SegmentOp::Allocate { .. } => "allocate",
        }
    }

    /// The first byte that it names; none for a sync and a truncation.
    #[must_use]
    pub fn offset(self) -> Option<u64> {
        match self {
            SegmentOp::Read { offset }
            | SegmentOp::Write { offset }
            | SegmentOp::Discard { offset, .. }
            | SegmentOp::Zero { offset, .. }
            | SegmentOp::Allocate { offset, .. } => Some(offset),
            SegmentOp::Sync | SegmentOp::Fence | SegmentOp::Truncate { .. } => None,
        }
    }

    /// How many bytes of its object it touches from its offset on, with memory of so many.
    #[must_use]
    pub fn bytes(self, memory_bytes: u64) -> u64 {
        match self {
            SegmentOp::Read { .. } | SegmentOp::Write { .. } => memory_bytes,
            SegmentOp::Sync | SegmentOp::Fence | SegmentOp::Truncate { .. } => 0,
            SegmentOp::Discard { len, .. } | SegmentOp::Zero { len, .. } | SegmentOp::Allocate { len, .. } => len,
        }
    }

    /// Does it name its range itself, and move no memory?
    #[must_use]
    pub fn names_its_range(self) -> bool {
        matches!(self, SegmentOp::Discard { .. } | SegmentOp::Zero { .. }) || self.is_of_size()
    }

    /// Is it about the size of a plain file, or the space that it has?
    #[must_use]
    pub fn is_of_size(self) -> bool {
        matches!(self, SegmentOp::Truncate { .. } | SegmentOp::Allocate { .. })
    }

    /// The bytes of the segment that it touches, with memory of so many; none for a sync, of a truncation all behind the new end.
    #[must_use]
    pub fn range(self, memory_bytes: u64) -> Range<u64> {
        if let SegmentOp::Truncate { len } = self {
            return len..u64::MAX;
        }
        let start = self.offset().unwrap_or(0);
        start..start.saturating_add(self.bytes(memory_bytes))
    }

    /// May the segment hold other bytes, or have another end, when it has ended? The one place that says so: such an operation needs a handle for
    /// writing, keeps others out of its range, and is not known to have happened when nobody tells its end.
    #[must_use]
    pub fn changes_bytes(self) -> bool {
        match self {
            SegmentOp::Write { .. }
            | SegmentOp::Discard { .. }
            | SegmentOp::Zero { .. }
            | SegmentOp::Truncate { .. }
            | SegmentOp::Allocate { .. } => true,
            SegmentOp::Read { .. } | SegmentOp::Sync | SegmentOp::Fence => false,
        }
    }

    /// Is it about what was written before, and about no bytes of its own?
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(self, SegmentOp::Sync | SegmentOp::Fence)
    }
}
