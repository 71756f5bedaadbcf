//! What is asked of an opened segment or file, and what comes of it.

use std::ops::Range;

use crate::fault::RequestError;
use crate::handle::{Handle, Ticket};
use crate::mode::{Caching, Durability, Mode};
use crate::op::SegmentOp;
use crate::status::StatusWord;
use crate::time::Time;

/// Memory of a request. Which kinds there are is between those who hold it: the words need its length only.
pub trait Payload: Default {
    /// Bytes that a request with it reads or writes; 0 for no memory.
    fn payload_bytes(&self) -> usize;
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
    /// A word to be moved when it completes.
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
