//! What an opened segment and an opened file have in common: their requests.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use baio_broker::control::{Call, Reply};
use baio_engine::{Buffer, Durability, Memory};
use baio_storage::cache::window::Pattern;
use baio_storage::{Answer, Command, Handle, Hint, Mode, Result, SegmentOp, SegmentRequest, Ticket};

use crate::buffer::{IoBuf, IoBufMut};
use crate::object::Object;
use crate::operation::{On, Operation};
use crate::request::Request;
use crate::transport::Transport;

/// An open segment or file, and its requests. [`Segment`](crate::Segment) and [`File`](crate::File) both deref to it. Clones share it. It is
/// closed when the last clone is dropped and its last request has ended.
///
/// A request is a future ([`Opened::read_at`] and others; `.wait()` blocks), or a ticket that is started now and collected
/// later ([`Opened::submit`]). Either may have a status word. A request that names no caching mode has that of the open segment or file
/// ([`Opened::default_mode`]); one that names no durability has none.
pub struct Opened<L: Transport> {
    object: Arc<Object<L>>,
    mode: Mode,
}

impl<L: Transport> Clone for Opened<L> {
    fn clone(&self) -> Opened<L> {
        Opened {
            object: Arc::clone(&self.object),
            mode: self.mode,
        }
    }
}

impl<L: Transport> fmt::Debug for Opened<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened({})", self.object.name)
    }
}

impl<L: Transport> Opened<L> {
    pub(crate) fn new(link: &L, handle: Handle, name: String, mode: Mode) -> Opened<L> {
        Opened {
            object: Arc::new(Object::new(link, handle, name)),
            mode,
        }
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// What it is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// The link it was opened on.
    #[must_use]
    pub fn link(&self) -> &L {
        &self.object.link
    }

    /// Its handle, which [`SegmentRequest`] and [`Pool`](crate::Pool) take. It is valid until the last clone is dropped.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.object.handle
    }

    /// The caching mode of requests that do not say one.
    #[must_use]
    pub fn default_mode(&self) -> Mode {
        self.mode
    }

    /// A buffer for requests, from the link's arena.
    ///
    /// # Errors
    /// `NoMemory` when the arena is used up.
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        self.object.link.take_buffer(len)
    }

    /// Its size in bytes now.
    pub fn size(&self) -> Operation<L, u64> {
        let handle = self.handle();
        self.ask(Command::Size { handle }, |reply| match reply {
            Reply::Answer(Answer::Count { value }) => Some(value),
            _ => None,
        })
    }

    /// An operation that keeps it open.
    pub(crate) fn ask<T>(
        &self,
        call: impl Into<Call>,
        read: impl FnOnce(Reply) -> Option<T> + Send + Sync + 'static,
    ) -> Operation<L, T> {
        self.ask_for(call, |_, reply| read(reply))
    }

    /// The same for what keeps it open in its turn.
    pub(crate) fn ask_for<T>(
        &self,
        call: impl Into<Call>,
        read: impl FnOnce(Opened<L>, Reply) -> Option<T> + Send + Sync + 'static,
    ) -> Operation<L, T> {
        let mode = self.mode;
        Operation::trying(On::Object(Arc::clone(&self.object)), call, move |on, reply| match on {
            On::Object(object) => {
                let object = Arc::clone(object);
                read(Opened { object, mode }, reply).map(Ok)
            }
            On::Link(_) => None,
        })
    }

    /// What it is, for requests and operations, which keep it open.
    pub(crate) fn object(&self) -> &Arc<Object<L>> {
        &self.object
    }

    pub(crate) fn request_of<B: IoBuf>(&self, op: SegmentOp, buffer: B) -> Request<L, B> {
        Request::new(&self.object, self.request(op, buffer.into_memory()))
    }

    fn read_into<B: IoBufMut>(&self, offset: u64, buffer: B) -> Request<L, B> {
        Request::new(
            &self.object,
            self.request(SegmentOp::Read { offset }, buffer.into_room()),
        )
    }

    /// Reads at byte `offset` until the buffer is full; fewer bytes only at the end of the segment or file.
    pub fn read_at<B: IoBufMut>(&self, offset: u64, buffer: B) -> Request<L, B> {
        self.read_into(offset, buffer)
    }

    /// The same; it fails if the end comes before the buffer is full.
    pub fn read_exact_at<B: IoBufMut>(&self, offset: u64, buffer: B) -> Request<L, B> {
        self.read_at(offset, buffer).exact()
    }

    /// Reads into several buffers, one behind the other.
    pub fn read_vectored_at<B>(&self, offset: u64, buffers: Vec<B>) -> Request<L, Vec<B>>
    where
        Vec<B>: IoBufMut,
    {
        self.read_into(offset, buffers)
    }

    /// Writes the buffer at byte `offset`. Not durable before a [`Opened::sync`], unless it is asked to be
    /// ([`Request::durable`]).
    pub fn write_at<B: IoBuf>(&self, offset: u64, buffer: B) -> Request<L, B> {
        self.request_of(SegmentOp::Write { offset }, buffer)
    }

    /// The same; it fails if fewer bytes were written than asked. That makes a difference on streams only.
    pub fn write_all_at<B: IoBuf>(&self, offset: u64, buffer: B) -> Request<L, B> {
        self.write_at(offset, buffer).exact()
    }

    /// Writes several buffers, one behind the other.
    pub fn write_vectored_at<B>(&self, offset: u64, buffers: Vec<B>) -> Request<L, Vec<B>>
    where
        Vec<B>: IoBuf,
    {
        self.request_of(SegmentOp::Write { offset }, buffers)
    }

    /// Makes every write completed before this durable.
    pub fn sync(&self, durability: Durability) -> Request<L, ()> {
        self.request_of(SegmentOp::Sync, ())
            .mode(Mode::Direct)
            .durable(durability)
    }

    /// Makes every write durable that was *submitted* before this, through any handle on the same segment or file. It waits for them to end
    /// first; one that fails says so in its own result. Writes submitted later do not delay it.
    pub fn fence(&self, durability: Durability) -> Request<L, ()> {
        self.request_of(SegmentOp::Fence, ())
            .mode(Mode::Direct)
            .durable(durability)
    }

    /// Gives back the space of `len` bytes at byte `offset`, which read as zeros from then on. Both numbers must be aligned as for a direct
    /// write. Fails with `EOPNOTSUPP` where a device or file system cannot promise that. Not durable before a [`Opened::sync`].
    pub fn discard(&self, offset: u64, len: u64) -> Request<L, ()> {
        self.request_of(SegmentOp::Discard { offset, len }, ())
    }

    /// Makes `len` bytes at byte `offset` read as zeros and keeps their space, so that a later write needs none. Both numbers must be aligned
    /// as for a direct write. Not durable before a [`Opened::sync`].
    pub fn zero(&self, offset: u64, len: u64) -> Request<L, ()> {
        self.request_of(SegmentOp::Zero { offset, len }, ())
    }

    // The lower shapes.

    /// Makes a request for [`Opened::run`] and [`Opened::submit`], without durability. Its fields are public: change them as needed.
    #[must_use]
    pub fn request(&self, op: SegmentOp, memory: impl Into<Memory>) -> SegmentRequest {
        SegmentRequest {
            mode: self.mode,
            ..SegmentRequest::new(self.handle(), op, memory)
        }
    }

    /// Any request, as a future. Its `tag` is not used.
    pub fn run(&self, request: SegmentRequest) -> Request<L, Memory> {
        Request::new(&self.object, request)
    }

    /// Queues a request. Collect it later by its ticket ([`Link::poll`](crate::Link::poll), [`Link::wait`](crate::Link::wait)), by its status word, or
    /// from the link's queue of outcomes ([`Link::next_outcome`](crate::Link::next_outcome)). Many can be queued before one turn submits them all.
    ///
    /// # Errors
    /// The request itself, when every slot is taken or the link is closed.
    pub fn submit(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        self.object.link.submit(request)
    }

    // The page cache.

    fn hint<T>(&self, hint: Hint, read: fn(u64) -> T) -> Operation<L, T>
    where
        T: 'static,
    {
        let handle = self.handle();
        self.ask(Command::Hint { handle, hint }, move |reply| match reply {
            Reply::Answer(Answer::Count { value }) => Some(read(value)),
            _ => None,
        })
    }

    /// Begins to read pages of 4 KiB into the cache that will be needed soon. Returns how many of the pages it got through: it stops at a
    /// quarter of the cache, and when the device is busy enough. A read that fails is not reported.
    pub fn prefetch(&self, pages: &[Range<u64>]) -> Operation<L, u64> {
        self.hint(Hint::Prefetch(pages.to_vec()), |pages| pages)
    }

    /// Drops pages from the cache that will not be needed again. Clean pages leave at once. Dirty pages, and pages in use, are evicted
    /// before all other pages as soon as they may be. Returns how many left at once.
    pub fn drop_cached(&self, pages: Range<u64>) -> Operation<L, u64> {
        self.hint(Hint::Drop(pages), |pages| pages)
    }

    /// Keeps pages of this range in the cache once they are there, until this handle is dropped. One user may keep a quarter of the cache, all
    /// together half of it.
    pub fn keep_cached(&self, pages: Range<u64>) -> Operation<L, ()> {
        self.hint(Hint::Keep(pages), drop)
    }

    /// Ends [`Opened::keep_cached`] for these pages.
    pub fn keep_cached_no_more(&self, pages: Range<u64>) -> Operation<L, ()> {
        self.hint(Hint::KeepNoMore(pages), drop)
    }

    /// Says how cached reads will come, through any handle: in order, at random, or not known.
    pub fn read_pattern(&self, pattern: Pattern) -> Operation<L, ()> {
        self.hint(Hint::Pattern(pattern), drop)
    }

    /// Makes those dirty pages durable whose first change has this LSN or an earlier one. It waits for the log where it must
    /// ([`Link::set_durable_lsn`](crate::Link::set_durable_lsn)).
    pub fn flush_to(&self, lsn: u64) -> Operation<L, ()> {
        let handle = self.handle();
        self.ask(Call::FlushTo { handle, lsn }, |reply| reply.is_done().then_some(()))
    }
}
