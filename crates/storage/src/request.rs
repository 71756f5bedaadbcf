//! Requests on segments and files: what is asked, what comes of it, and how one is told.

mod fences;
mod state;
mod table;

use baio_engine::{Caching, Memory};
pub use baio_words::{Handle, Mode, SegmentOp, Status, StatusWord, Ticket};

use crate::cache::PagePin;
use crate::error::Result;
use crate::identity::Access;

pub(crate) use state::{Asked, CacheIo, LogIo, Owner, State};
pub(crate) use table::Requests;

/// One operation on a handle, with the engine's memory.
pub type SegmentRequest = baio_words::SegmentRequest<Memory>;

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
    /// The request's memory; `None` while the kernel may still be at it (after a deadline, or after a cancel of a cached request
    /// whose memory the device has itself): it then goes back to the arena. After a read across the end of a segment it shows what there was to be
    /// read; [`Memory::show`] shows the rest again.
    pub memory: Memory,
    /// The caching mode that really carried it.
    pub took: Caching,
    /// Iterations that it ran; a cached sync runs none.
    pub iterations: u16,
    /// The page that was pinned, for [`Core::pin`](crate::Core::pin) and [`Core::pin_new`](crate::Core::pin_new).
    pub pin: Option<PinnedPage>,
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

// It is moved on every request's way out.
const _: () = assert!(size_of::<Outcome>() <= 128);
