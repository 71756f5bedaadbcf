//! What is asked of an opened segment or file, and what comes of it.

use std::ops::Range;

use crate::fault::RequestError;
use crate::handle::{Handle, Ticket};
use crate::mode::{Caching, Durability, Mode};
use crate::status::StatusWord;
use crate::time::Time;

/// Memory of a request. Which kinds there are is between those who hold it: the words need its length only.
pub trait Payload: Default {
    /// Bytes that a request with it reads or writes; 0 for no memory.
    fn payload_bytes(&self) -> usize;
}

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
        }
    }

    /// The first byte that it touches; none for a sync.
    #[must_use]
    pub fn offset(self) -> Option<u64> {
        match self {
            SegmentOp::Read { offset }
            | SegmentOp::Write { offset }
            | SegmentOp::Discard { offset, .. }
            | SegmentOp::Zero { offset, .. } => Some(offset),
            SegmentOp::Sync | SegmentOp::Fence => None,
        }
    }

    /// How many bytes it touches, with memory of so many.
    #[must_use]
    pub fn bytes(self, memory_bytes: u64) -> u64 {
        match self {
            SegmentOp::Read { .. } | SegmentOp::Write { .. } => memory_bytes,
            SegmentOp::Sync | SegmentOp::Fence => 0,
            SegmentOp::Discard { len, .. } | SegmentOp::Zero { len, .. } => len,
        }
    }

    /// Does it name its range itself, and move no memory?
    #[must_use]
    pub fn names_its_range(self) -> bool {
        matches!(self, SegmentOp::Discard { .. } | SegmentOp::Zero { .. })
    }

    /// The bytes of the segment that it touches, with memory of so many; none for a sync.
    #[must_use]
    pub fn range(self, memory_bytes: u64) -> Range<u64> {
        let start = self.offset().unwrap_or(0);
        start..start.saturating_add(self.bytes(memory_bytes))
    }

    /// May the segment hold other bytes when it has ended? The one place that says so: such an operation needs a handle for
    /// writing, keeps others out of its range, and is not known to have happened when nobody tells its end.
    #[must_use]
    pub fn changes_bytes(self) -> bool {
        match self {
            SegmentOp::Write { .. } | SegmentOp::Discard { .. } | SegmentOp::Zero { .. } => true,
            SegmentOp::Read { .. } | SegmentOp::Sync | SegmentOp::Fence => false,
        }
    }

    /// Is it about what was written before, and about no bytes of its own?
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(self, SegmentOp::Sync | SegmentOp::Fence)
    }
}

/// One operation on a handle, with memory of the kind `M`.
#[derive(Debug)]
pub struct SegmentRequest<M> {
    /// On what.
    pub handle: Handle,
    /// What.
    pub op: SegmentOp,
    /// From or into which memory; comes back with the outcome.
    pub memory: M,
    /// Through which cache.
    pub mode: Mode,
    /// How safe it must be when it completes.
    pub durability: Durability,
    /// When to give up on it.
    pub deadline: Option<Time>,
    /// A word to be moved when it completes (seed 004 §6).
    pub status: Option<StatusWord>,
    /// The caller's name for it, handed back untouched.
    pub tag: u64,
}

impl<M: Payload> SegmentRequest<M> {
    /// A direct request without durability, deadline or status word.
    #[must_use]
    pub fn new(handle: Handle, op: SegmentOp, memory: impl Into<M>) -> SegmentRequest<M> {
        SegmentRequest {
            handle,
            op,
            memory: memory.into(),
            mode: Mode::Direct,
            durability: Durability::None,
            deadline: None,
            status: None,
            tag: 0,
        }
    }

    /// The bytes of the segment that it touches: none for a sync.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.op.range(self.memory.payload_bytes() as u64)
    }
}

/// The end of one request, as a client sees it.
#[derive(Debug)]
pub struct Outcome<M> {
    /// Which.
    pub ticket: Ticket,
    /// The caller's name for it.
    pub tag: u64,
    /// Bytes transferred, or why not; 0 for what transfers none.
    pub result: Result<u32, RequestError>,
    /// Bytes that were transferred, also when an error ended it half-way.
    pub bytes_done: u32,
    /// The request's memory; none while the kernel may still write it (after a deadline).
    pub memory: M,
    /// The caching mode that really carried it.
    pub took: Caching,
    /// Iterations that it ran.
    pub iterations: u16,
}
