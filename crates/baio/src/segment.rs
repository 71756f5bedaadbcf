//! An opened segment: the same methods on every link.

use std::fmt;
use std::sync::Arc;

use baio_engine::{Buffer, Durability, Memory};
use baio_storage::{Handle, Mode, Outcome, Result, SegmentInfo, SegmentOp, SegmentRequest, Ticket};

use crate::future::InFlight;
use crate::link::Link;
use crate::opened::Opened;

/// A segment that this link may use: the paper's capability (seed 004 §4). Clones share it; the last one closes it.
///
/// Requests come in three shapes: as futures ([`Segment::read_at`] and its kind), as tickets that are started now and looked
/// at later ([`Segment::submit`]), and, for either, with a status word. The caching mode and the durability are chosen per
/// request ([`Segment::request`]).
pub struct Segment<L: Link> {
    opened: Arc<Opened<L>>,
}

impl<L: Link> Clone for Segment<L> {
    fn clone(&self) -> Segment<L> {
        Segment {
            opened: Arc::clone(&self.opened),
        }
    }
}

impl<L: Link> fmt::Debug for Segment<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.opened.fmt(f)
    }
}

impl<L: Link> Segment<L> {
    pub(crate) fn new(link: L, handle: Handle, info: SegmentInfo) -> Segment<L> {
        Segment {
            opened: Arc::new(Opened { link, handle, info }),
        }
    }

    /// What the segment was when it was opened.
    #[must_use]
    pub fn info(&self) -> &SegmentInfo {
        &self.opened.info
    }

    /// Size in bytes when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.opened.info.size_bytes
    }

    /// Size in bytes now: it may have been resized. On `Remote` this blocks for the length of one hop.
    ///
    /// # Errors
    /// `Stale` when the segment is gone.
    pub fn current_size(&self) -> Result<u64> {
        self.opened.link.size(self.opened.handle)
    }

    /// The link it was opened on.
    #[must_use]
    pub fn link(&self) -> &L {
        &self.opened.link
    }

    /// A buffer for requests, from the link's arena.
    ///
    /// # Errors
    /// `NoMemory` when the arena is used up.
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        self.opened.link.buffer(len)
    }

    /// A direct request without durability, to be changed as needed: its fields are public.
    #[must_use]
    pub fn request(&self, op: SegmentOp, memory: impl Into<Memory>) -> SegmentRequest {
        SegmentRequest::new(self.opened.handle, op, memory)
    }

    /// Reads `buffer.len()` bytes at byte `offset`; fewer only at the segment's end.
    pub fn read_at(&self, offset: u64, buffer: Buffer) -> InFlight<L> {
        self.run(self.request(SegmentOp::Read { offset }, buffer))
    }

    /// Writes `buffer` at byte `offset`. Not durable before a [`Segment::sync`].
    pub fn write_at(&self, offset: u64, buffer: Buffer) -> InFlight<L> {
        self.run(self.request(SegmentOp::Write { offset }, buffer))
    }

    /// Writes `buffer` at byte `offset`; durable as far as `durability` says when it completes.
    pub fn write_durable_at(&self, offset: u64, buffer: Buffer, durability: Durability) -> InFlight<L> {
        self.run(SegmentRequest {
            durability,
            ..self.request(SegmentOp::Write { offset }, buffer)
        })
    }

    /// Makes every write completed before this durable.
    pub fn sync(&self, durability: Durability) -> InFlight<L> {
        self.run(SegmentRequest {
            durability,
            mode: Mode::Direct,
            ..self.request(SegmentOp::Sync, Memory::None)
        })
    }

    /// Makes every write *submitted* before this durable, by whatever handle on the segment: it waits for them first, also for those that
    /// fail, which say so themselves. What is submitted after it does not delay it.
    pub fn fence(&self, durability: Durability) -> InFlight<L> {
        self.run(SegmentRequest {
            durability,
            mode: Mode::Direct,
            ..self.request(SegmentOp::Fence, Memory::None)
        })
    }

    /// Gives the space of `len` bytes at byte `offset` back. They read as zeros from then on; both are multiples of what a direct write
    /// needs. `EOPNOTSUPP` from a device or file system that cannot promise that. Not durable before a [`Segment::sync`].
    pub fn discard(&self, offset: u64, len: u64) -> InFlight<L> {
        self.run(self.request(SegmentOp::Discard { offset, len }, Memory::None))
    }

    /// Makes `len` bytes at byte `offset` read as zeros and keeps their space, so that a later write needs none; both are multiples of
    /// what a direct write needs. Not durable before a [`Segment::sync`].
    pub fn zero(&self, offset: u64, len: u64) -> InFlight<L> {
        self.run(self.request(SegmentOp::Zero { offset, len }, Memory::None))
    }

    /// Any request, as a future.
    pub fn run(&self, request: SegmentRequest) -> InFlight<L> {
        InFlight::new(Arc::clone(&self.opened), request)
    }

    /// Queues a request, to be looked at by its ticket ([`Link::poll`], [`Link::wait`]), its status word, or the link's
    /// queue of outcomes. Many can be queued before one turn submits them all: the paper's `baio` call.
    ///
    /// # Errors
    /// The request itself, when every slot is taken or the link is closed.
    pub fn submit(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        self.opened.link.start(request)
    }

    /// Waits for the end of a request. `None` for a ticket whose outcome was taken.
    ///
    /// # Errors
    /// The backend itself is broken.
    pub fn wait(&self, ticket: Ticket) -> Result<Option<Outcome>> {
        self.opened.link.wait(ticket)
    }
}
