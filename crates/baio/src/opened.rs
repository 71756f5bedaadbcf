//! What an opened segment and an opened file have in common: their requests.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use baio_broker::control::{Call, Reply};
use baio_client::NotTaken;
use baio_engine::{Buffer, Durability, Memory};
use baio_storage::cache::window::Pattern;
use baio_storage::{Answer, Command, Handle, Hint, Mode, Result, SegmentOp, SegmentRequest, Ticket};

use crate::buffer::{IoBuf, IoBufMut};
use crate::object::Object;
use crate::operation::{On, Operation};
use crate::request::Request;
use crate::transport::Transport;

/// An opened segment or file, and its requests: [`Segment`](crate::Segment) and [`File`](crate::File) are this. Clones share it;
/// the last one, and the last request, closes it.
///
/// Requests come in three shapes: as futures ([`Opened::read_at`] and its kind, which block with `.wait()`), as tickets that are
/// started now and looked at later ([`Opened::submit`]), and, for either, with a status word. Where caching mode or durability are
/// not said they are those that it was opened with ([`Opened::default_mode`]) and none.
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

    /// Its capability, which requests of the lower shapes and [`Pool`](crate::Pool) name. It is valid until the last clone is dropped.
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

    /// Reads as many bytes as the buffer has at byte `offset`; fewer only at the end.
    pub fn read_at<B: IoBufMut>(&self, offset: u64, buffer: B) -> Request<L, B> {
        self.read_into(offset, buffer)
    }

    /// The same, and fewer are a failure.
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

    /// The same, and fewer bytes written than asked are a failure: on streams only is there a difference.
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

    /// Makes every write *submitted* before this durable, by whatever handle on it: it waits for them first, also for those that
    /// fail, which say so themselves. What is submitted after it does not delay it.
    pub fn fence(&self, durability: Durability) -> Request<L, ()> {
        self.request_of(SegmentOp::Fence, ())
            .mode(Mode::Direct)
            .durable(durability)
    }

    /// Gives the space of `len` bytes at byte `offset` back. They read as zeros from then on; both are multiples of what a direct write
    /// needs. `EOPNOTSUPP` from a device or file system that cannot promise that. Not durable before a [`Opened::sync`].
    pub fn discard(&self, offset: u64, len: u64) -> Request<L, ()> {
        self.request_of(SegmentOp::Discard { offset, len }, ())
    }

    /// Makes `len` bytes at byte `offset` read as zeros and keeps their space, so that a later write needs none; both are multiples of
    /// what a direct write needs. Not durable before a [`Opened::sync`].
    pub fn zero(&self, offset: u64, len: u64) -> Request<L, ()> {
        self.request_of(SegmentOp::Zero { offset, len }, ())
    }

    // The lower shapes.

    /// A request without durability, to be changed as needed: its fields are public. For [`Opened::run`] and [`Opened::submit`].
    #[must_use]
    pub fn request(&self, op: SegmentOp, memory: impl Into<Memory>) -> SegmentRequest {
        SegmentRequest {
            mode: self.mode,
            ..SegmentRequest::new(self.handle(), op, memory)
        }
    }

    /// Any request, as a future. Its `tag` is not told again: the future is its name.
    pub fn run(&self, request: SegmentRequest) -> Request<L, Memory> {
        Request::new(&self.object, request)
    }

    /// Queues a request, to be looked at by its ticket ([`Link::poll`](crate::Link::poll), [`Link::wait`](crate::Link::wait)), its status word, or the
    /// link's queue of outcomes. Many can be queued before one turn submits them all.
    ///
    /// # Errors
    /// The request itself, when every slot is taken or the link is closed.
    pub fn submit(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        let begun = self.object.link.submit(request, None);
        begun.map(|(ticket, _)| ticket).map_err(NotTaken::into_request)
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

    /// Begins to read pages of 4 KiB that will be wanted, wherever they lie. Gives how many of the pages it went over: it stops at a
    /// quarter of the cache, and where the device has enough to do. Says nothing when a read fails.
    pub fn prefetch(&self, pages: &[Range<u64>]) -> Operation<L, u64> {
        self.hint(Hint::Prefetch(pages.to_vec()), |pages| pages)
    }

    /// Pages that will not be wanted again leave the cache, changed ones when they have been written. Gives how many left at once.
    pub fn drop_cached(&self, pages: Range<u64>) -> Operation<L, u64> {
        self.hint(Hint::Drop(pages), |pages| pages)
    }

    /// Pages of this range stay in the cache once they are in, until this handle is dropped: a quarter of it at most for one user, half of it for
    /// all.
    pub fn keep_cached(&self, pages: Range<u64>) -> Operation<L, ()> {
        self.hint(Hint::Keep(pages), drop)
    }

    /// Ends [`Opened::keep_cached`] for these pages.
    pub fn keep_cached_no_more(&self, pages: Range<u64>) -> Operation<L, ()> {
        self.hint(Hint::KeepNoMore(pages), drop)
    }

    /// How cached reads will go, by whichever handle: in order, at random, or to be found out.
    pub fn read_pattern(&self, pattern: Pattern) -> Operation<L, ()> {
        self.hint(Hint::Pattern(pattern), drop)
    }

    /// Makes safe the pages whose first change since they were clean is no later than this LSN. It waits for the log where it must
    /// ([`Link::set_durable_lsn`](crate::Link::set_durable_lsn)).
    pub fn flush_to(&self, lsn: u64) -> Operation<L, ()> {
        let handle = self.handle();
        self.ask(Call::FlushTo { handle, lsn }, |reply| reply.is_done().then_some(()))
    }
}
