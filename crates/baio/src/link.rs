//! How a caller reaches a core.

use std::task::{Poll, Waker};

use baio_engine::{Buffer, Time};
use baio_storage::{Fault, Handle, Outcome, Result, SegmentRequest, Ticket};

/// A way to a core. [`crate::Local`] embeds it in the caller's thread; [`crate::Remote`] reaches one on a thread of its own.
/// Whatever the link, a segment has the same methods; only the auto traits differ.
pub trait Link: Clone + Unpin {
    /// A buffer of `len` bytes from this link's arena: requests on it move without a copy.
    ///
    /// # Errors
    /// `NoMemory` when the arena is used up.
    fn buffer(&self, len: usize) -> Result<Buffer>;

    /// Queues a request. It is submitted when the loop is about to sleep, when somebody drives the link, or when enough
    /// have gathered.
    ///
    /// # Errors
    /// The request itself, when every slot is taken or the link is closed.
    fn start(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest>;

    /// Takes the outcome of a request if it has ended; else remembers whom to wake. `None` for a ticket that is not valid
    /// any more. Reaps nothing by itself.
    fn poll(&self, ticket: Ticket, waker: &Waker) -> Poll<Option<Outcome>>;

    /// Wakes `waker` when a slot may be free, and at `until` if whoever reaps sleeps in this link.
    fn wake_when_room(&self, waker: &Waker, until: Option<Time>);

    /// The link's clock, which deadlines are of.
    fn now(&self) -> Time;

    /// Why the link takes no requests any more; `None` while it does.
    fn refusal(&self) -> Option<Fault>;

    /// Is anybody there who will reap what is started?
    fn is_driven(&self) -> bool;

    /// Waits for the end of a request, reaping meanwhile. `None` for a ticket that is not valid any more.
    ///
    /// # Errors
    /// The backend itself is broken.
    fn wait(&self, ticket: Ticket) -> Result<Option<Outcome>>;

    /// Nobody will take the outcome; the request keeps its memory until the kernel has let go of it.
    fn abandon(&self, ticket: Ticket);

    /// Size in bytes of what is behind a handle.
    ///
    /// # Errors
    /// `Stale` when that is gone.
    fn size(&self, handle: Handle) -> Result<u64>;

    /// Closes a handle; what is under way on it ends.
    fn close_handle(&self, handle: Handle);
}
