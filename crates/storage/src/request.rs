//! Requests on segments and files: what is asked, what comes of it, and how one is told.

mod table;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use baio_engine::{Caching, Durability, Errno, Memory, Time};

use crate::cache::PagePin;
use crate::error::Result;
use crate::identity::Access;

pub(crate) use table::{Ended, Requests};

/// Names an opened segment or file. Valid on the core that gave it, until it is closed or its segment is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Which core gave it: on another one it is a stranger.
    pub(crate) core: u32,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Handle {
    /// A handle as a peer names it: the core's number, its place there, and which use of that place. Naming gives no
    /// rights: a core refuses what it did not give.
    #[must_use]
    pub fn from_parts(core: u32, index: u32, generation: u32) -> Handle {
        Handle {
            core,
            index,
            generation,
        }
    }

    /// Its three parts, in this order.
    #[must_use]
    pub fn parts(self) -> (u32, u32, u32) {
        (self.core, self.index, self.generation)
    }
}

/// Through which cache a request goes; the choice is per request (seed 004 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Past every cache.
    #[default]
    Direct,
    /// Through our own page cache; the core must have one ([`Core::use_cache`](crate::Core::use_cache)). A plain write is done
    /// after the copy, and safe after a sync. A plain file keeps the size that it had at its first cached request, and that
    /// must be a multiple of 4 KiB; whoever else writes it is not seen in cached pages.
    Cached,
    /// Through the kernel's page cache; on plain files only.
    Kernel,
    /// The same, dropped behind the request; on plain files only.
    Uncached,
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
}

impl SegmentOp {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SegmentOp::Read { .. } => "read",
            SegmentOp::Write { .. } => "write",
            SegmentOp::Sync => "sync",
        }
    }
}

/// One operation on a handle.
#[derive(Debug)]
pub struct SegmentRequest {
    /// On what.
    pub handle: Handle,
    /// What.
    pub op: SegmentOp,
    /// From or into which memory; comes back with the outcome.
    pub memory: Memory,
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

impl SegmentRequest {
    /// A direct request without durability, deadline or status word.
    #[must_use]
    pub fn new(handle: Handle, op: SegmentOp, memory: impl Into<Memory>) -> SegmentRequest {
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
    pub(crate) fn range(&self) -> Range<u64> {
        match self.op {
            SegmentOp::Read { offset } | SegmentOp::Write { offset } => {
                offset..offset.saturating_add(self.memory.len() as u64)
            }
            SegmentOp::Sync => 0..0,
        }
    }
}

/// Names a request in flight, until its outcome has been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The end of one request.
#[derive(Debug)]
pub struct Outcome {
    /// Which.
    pub ticket: Ticket,
    /// The caller's name for it.
    pub tag: u64,
    /// Bytes transferred, or why not.
    pub result: Result<u32>,
    /// Bytes that were transferred, also when an error ended it half-way.
    pub bytes_done: u32,
    /// The request's memory; `None` while the kernel may still write it (after a deadline): it then goes back to the arena.
    pub memory: Memory,
    /// The caching mode that really carried it.
    pub took: Caching,
    /// Iterations that it ran; a cached sync runs none.
    pub iterations: u16,
    /// The page that was pinned, for [`Core::pin`](crate::Core::pin) and [`Core::pin_new`](crate::Core::pin_new).
    pub pin: Option<PinnedPage>,
}

/// Where a request with a status word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not completed, or nobody has reaped the completion.
    InFlight,
    /// Completed with so many bytes.
    Done(u32),
    /// Failed.
    Failed(Errno),
}

/// A page held in a core's memory until [`Core::unpin`](crate::Core::unpin); one that is dropped instead is held as long as it is cached at all. It
/// outlives its handle. It is stale when its segment was deleted or resized.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the page is held until the pin is given back"]
pub struct PinnedPage {
    /// As it was pinned by; it also says by which core.
    pub(crate) handle: Handle,
    /// May it be changed?
    pub(crate) access: Access,
    pub(crate) pin: PagePin,
}

impl PinnedPage {
    /// Which page of its file or segment: its first byte is at this number times 4096.
    #[must_use]
    pub fn page(&self) -> u64 {
        self.pin.page()
    }
}

/// A word in the application's memory that tells how a request stands: the paper's way to be notified (seed 004 §6).
/// It moves only when somebody reaps: turns the core, waits, or drives it.
#[derive(Clone, Debug, Default)]
pub struct StatusWord(Arc<AtomicI64>);

impl StatusWord {
    const IN_FLIGHT: i64 = i64::MIN;

    /// A word for one request at a time.
    #[must_use]
    pub fn new() -> StatusWord {
        StatusWord(Arc::new(AtomicI64::new(StatusWord::IN_FLIGHT)))
    }

    /// How the request stands.
    #[must_use]
    pub fn get(&self) -> Status {
        // Acquire: whoever sees the request done also sees the bytes that were read.
        match self.0.load(Ordering::Acquire) {
            StatusWord::IN_FLIGHT => Status::InFlight,
            errno if errno < 0 => Status::Failed(Errno::from_raw(-errno as i32)),
            bytes => Status::Done(bytes as u32),
        }
    }

    /// A request that moves it is under way: for links that keep the request's table themselves.
    pub fn begin(&self) {
        self.0.store(StatusWord::IN_FLIGHT, Ordering::Release);
    }

    /// The request has ended.
    pub fn end(&self, result: std::result::Result<u32, Errno>) {
        let word = match result {
            Ok(bytes) => i64::from(bytes),
            Err(errno) => -i64::from(errno.raw()),
        };
        self.0.store(word, Ordering::Release);
    }
}

impl Ticket {
    /// A ticket of a link that keeps the table of its requests itself.
    #[must_use]
    pub fn from_parts(index: u32, generation: u32) -> Ticket {
        Ticket { index, generation }
    }

    /// Its place in the table, and which use of that place.
    #[must_use]
    pub fn parts(self) -> (u32, u32) {
        (self.index, self.generation)
    }

    /// Generations fit beside the index and the owner's mark in an engine tag.
    const GENERATION_MASK: u32 = (1 << 30) - 1;
}
