//! A request as a future, without an allocation.
//!
//! The first poll queues the request; nothing is submitted by polling, so futures that are joined go to the kernel
//! together. Dropping one abandons its request: the slot keeps the buffer until the kernel has let go of it. A deadline counts
//! also while a future waits for a slot: then the request ends as cancelled, and has had no effect.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use baio_client::NotTaken;
use baio_engine::{Durability, Errno, Memory, Time};
use baio_storage::{Error, Fault, Mode, Outcome, SegmentOp, SegmentRequest, StatusWord, Ticket};

use crate::buffer::IoBuf;
use crate::object::Object;
use crate::result::{Done, Failed};
use crate::trace::{self, Trace};
use crate::transport::{Begun, InLine, Lack, Notice, Transport};

/// A request on an open segment or file, which it keeps open. It is a future of its result; its methods change it before it is polled.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use baio::{Durability, File, Link, Local};
/// # let dir = std::env::temp_dir().join(format!("baio-request-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("journal");
/// let link = Local::new()?;
/// let file = File::options().write().create().open(&link, &path).wait()?;
/// let write = file.write_at(0, b"begin".to_vec()).durable(Durability::Data).within(std::time::Duration::from_secs(5));
/// assert_eq!(write.wait()?.bytes, 5);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok(()) }
/// ```
#[must_use = "a request that is never awaited never starts"]
pub struct Request<L: Transport, B: IoBuf> {
    object: Arc<Object<L>>,
    stage: Stage,
    /// Fewer bytes than asked are a failure.
    exact: bool,
    /// Memory that the device cannot use goes through a buffer of the arena.
    bounced: bool,
    cancelled: bool,
    /// Where it waits for a slot, or for a buffer of the arena.
    line: Option<InLine>,
    buffer: PhantomData<fn() -> B>,
}

enum Stage {
    /// Not started; boxed nowhere: the request lives in the future.
    Fresh(SegmentRequest),
    /// The core has it.
    Started(Started),
    /// The outcome has been given.
    Ended,
}

struct Started {
    ticket: Ticket,
    op: SegmentOp,
    asked: usize,
    /// The caller's memory, while a buffer of the arena is on its way in its place.
    behind: Option<Memory>,
    trace: Trace,
}

/// What a request was before it went.
#[derive(Clone, Copy)]
struct What {
    op: SegmentOp,
    asked: usize,
    mode: Mode,
}

impl What {
    fn of(request: &SegmentRequest) -> What {
        What {
            op: request.op,
            asked: request.memory.len(),
            mode: request.mode,
        }
    }
}

impl<L: Transport, B: IoBuf> fmt::Debug for Request<L, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Fresh(request) => request.op.name(),
            Stage::Started(_) => "under way",
            Stage::Ended => "ended",
        };
        write!(f, "Request({}, {stage})", self.object.name)
    }
}

impl<L: Transport, B: IoBuf> Request<L, B> {
    pub(crate) fn new(object: &Arc<Object<L>>, request: SegmentRequest) -> Request<L, B> {
        Request {
            object: Arc::clone(object),
            stage: Stage::Fresh(request),
            exact: false,
            bounced: false,
            cancelled: false,
            line: None,
            buffer: PhantomData,
        }
    }

    fn shape(mut self, change: impl FnOnce(&mut SegmentRequest)) -> Self {
        if let Stage::Fresh(request) = &mut self.stage {
            change(request);
        }
        self
    }

    /// Through which cache it goes: see [`Mode`].
    pub fn mode(self, mode: Mode) -> Self {
        self.shape(|request| request.mode = mode)
    }

    /// Through baio's page cache.
    pub fn cached(self) -> Self {
        self.mode(Mode::Cached)
    }

    /// Past every cache ([`Mode::Direct`]).
    pub fn direct(self) -> Self {
        self.mode(Mode::Direct)
    }

    /// How safe it must be when it completes.
    pub fn durable(self, durability: Durability) -> Self {
        self.shape(|request| request.durability = durability)
    }

    /// When to give up on it, by the link's clock ([`Link::now`](crate::Link::now)). If the device is at it then, it ends as indeterminate.
    pub fn deadline(self, at: Time) -> Self {
        self.shape(|request| request.deadline = Some(at))
    }

    /// Gives up on it after this time.
    pub fn within(self, duration: Duration) -> Self {
        let at = self.object.link.link_clock().after(duration);
        self.deadline(at)
    }

    /// A status word that changes when it completes.
    pub fn status(self, status: StatusWord) -> Self {
        self.shape(|request| request.status = Some(status))
    }

    /// Fails if fewer bytes were moved than asked, because the segment or file ends before.
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Lets a direct request go through a buffer of the arena, with a copy, if its own memory does not begin at a multiple of 4096. Without
    /// this such memory is refused. The link counts these requests (`bounced_requests`, `bounced_bytes` of its metrics).
    pub fn bounced(mut self) -> Self {
        self.bounced = true;
        self
    }

    /// Asks that it end early, if that is possible. Await it all the same: it has a result. If it was not polled yet, it
    /// ends as cancelled and has no effect.
    pub fn cancel(&mut self) {
        self.cancelled = true;
        if let Stage::Started(started) = &self.stage {
            self.object.link.tell_link(Notice::Cancel(started.ticket));
        }
    }

    /// Waits for its end in this thread, and drives the link meanwhile. Do not call it in a signal handler: it may wait for what it interrupted.
    ///
    /// # Errors
    /// As its future; and that the link could not be driven to its end.
    pub fn wait(self) -> Result<Done<B>, Failed<B>> {
        let link = self.object.link.clone();
        link.run_on_link(self).unwrap_or_else(|error| {
            Err(Failed {
                error,
                buffer: None,
                bytes_done: 0,
            })
        })
    }

    fn start(&mut self, request: SegmentRequest, context: &mut Context<'_>) -> Poll<Result<Done<B>, Failed<B>>> {
        let link = &self.object.link;
        if self.cancelled {
            return Poll::Ready(self.refused(request, baio_engine::Error::Cancelled));
        }
        if let Some(fault) = link.nobody_drives() {
            return Poll::Ready(self.refused(request, fault));
        }
        if self.bounced && must_bounce(&request) {
            return self.start_copied(request, context);
        }
        let what = What::of(&request);
        match link.submit_awaited(request, context.waker()) {
            Ok(started) => self.started(what, None, started),
            Err(NotTaken::Hidden(request)) => self.start_copied(request, context),
            Err(NotTaken::Full(request)) => self.not_started(request, context),
        }
    }

    /// Through a buffer of the arena: the device cannot use its memory, or the core cannot be shown it.
    fn start_copied(
        &mut self,
        mut request: SegmentRequest,
        context: &mut Context<'_>,
    ) -> Poll<Result<Done<B>, Failed<B>>> {
        if !request.op.changes_bytes() && !request.memory.is_writable() {
            return Poll::Ready(self.refused(request, baio_engine::Error::ReadOnlyMemory));
        }
        let (link, what) = (&self.object.link, What::of(&request));
        let own = match bounce(link, &mut request) {
            Ok(own) => own,
            // Others under way may hold what it needs, and give it back.
            Err(error) => return self.wait_for_memory(request, error, context),
        };
        self.leave_memory();
        let link = &self.object.link;
        match link.submit_awaited(request, context.waker()) {
            Ok(started) => {
                link.link_facts().bounces.begin(what.asked);
                self.started(what, Some(own), started)
            }
            Err(back) => {
                let mut request = back.into_request();
                request.memory = own;
                self.not_started(request, context)
            }
        }
    }

    fn started(
        &mut self,
        what: What,
        behind: Option<Memory>,
        (ticket, polled): Begun,
    ) -> Poll<Result<Done<B>, Failed<B>>> {
        if let Some(line) = self.line.take() {
            self.object.link.tell_link(Notice::LeftLine { line, has_it: true });
        }
        let What { op, asked, mode } = what;
        let started = Started {
            ticket,
            op,
            asked,
            behind,
            trace: trace::request_begins(op, asked, mode, self.object.name.as_str()),
        };
        self.looked(started, polled)
    }

    fn not_started(&mut self, request: SegmentRequest, context: &mut Context<'_>) -> Poll<Result<Done<B>, Failed<B>>> {
        let link = &self.object.link;
        match link.link_state().refusal {
            Some(fault) => Poll::Ready(self.refused(request, fault)),
            None if request.deadline.is_some_and(|at| at <= link.link_clock()) => {
                // It found no slot before its deadline.
                Poll::Ready(self.refused(request, baio_engine::Error::Cancelled))
            }
            None => self.wait_for_room(request, context),
        }
    }

    fn wait_for_room(
        &mut self,
        request: SegmentRequest,
        context: &mut Context<'_>,
    ) -> Poll<Result<Done<B>, Failed<B>>> {
        self.leave_memory();
        let link = &self.object.link;
        link.stand_in_line(&mut self.line, Lack::Slot, context.waker(), request.deadline);
        self.stage = Stage::Fresh(request);
        Poll::Pending
    }

    fn wait_for_memory(
        &mut self,
        request: SegmentRequest,
        error: Error,
        context: &mut Context<'_>,
    ) -> Poll<Result<Done<B>, Failed<B>>> {
        let (link, lack) = (&self.object.link, Lack::Bytes(request.memory.len()));
        // A slot that came free is another's.
        if let Some(line) = self.line.take_if(|line| matches!(line.lack, Lack::Slot)) {
            link.tell_link(Notice::LeftLine { line, has_it: false });
        }
        if !link.stand_in_line(&mut self.line, lack, context.waker(), request.deadline) {
            return Poll::Ready(self.refused_by(request, error));
        }
        if let Some(fault) = link.link_state().refusal {
            return Poll::Ready(self.refused(request, fault)); // What is under way gives back for others no more.
        }
        if request.deadline.is_some_and(|at| at <= link.link_clock()) {
            return Poll::Ready(self.refused(request, baio_engine::Error::Cancelled));
        }
        self.stage = Stage::Fresh(request);
        Poll::Pending
    }

    fn leave_memory(&mut self) {
        if let Some(line) = self.line.take_if(|line| matches!(line.lack, Lack::Bytes(_))) {
            self.object.link.tell_link(Notice::LeftLine { line, has_it: false });
        }
    }

    /// A buffer of the arena that it had is there for others.
    fn given_back(&self) {
        let link = &self.object.link;
        if link.link_facts().bounces.end() {
            link.tell_link(Notice::MemoryCame);
        }
    }

    /// It waits for nothing any more.
    fn leave_line(&mut self) {
        if let Some(line) = self.line.take() {
            self.object.link.tell_link(Notice::LeftLine { line, has_it: false });
        }
    }

    /// The end of a request that never began.
    fn refused(&self, request: SegmentRequest, fault: impl Into<Fault>) -> Result<Done<B>, Failed<B>> {
        let error = Error::new(request.op.name(), self.object.name.as_str(), fault);
        let error = match request.op.offset() {
            Some(offset) => error.at(offset),
            None => error,
        };
        self.refused_by(request, error)
    }

    fn refused_by(&self, request: SegmentRequest, error: Error) -> Result<Done<B>, Failed<B>> {
        if let Some(status) = &request.status {
            status.end(Err(error.errno().unwrap_or(Errno::EIO)));
        }
        Err(Failed {
            error,
            buffer: B::from_memory(request.memory),
            bytes_done: 0,
        })
    }

    fn look(&mut self, started: Started, context: &mut Context<'_>) -> Poll<Result<Done<B>, Failed<B>>> {
        let polled = self.object.link.poll_request(started.ticket, context.waker());
        self.looked(started, polled)
    }

    fn looked(&mut self, started: Started, polled: Poll<Option<Outcome>>) -> Poll<Result<Done<B>, Failed<B>>> {
        let link = &self.object.link;
        match polled {
            Poll::Ready(Some(outcome)) => {
                let (trace, result) = self.result(started, outcome);
                let told = result.as_ref().map(|done| done.bytes);
                trace::request_ended(trace, told.map_err(|failed| (&failed.error, failed.bytes_done)));
                Poll::Ready(result)
            }
            // The link was closed under the future.
            Poll::Ready(None) => {
                let fault = link.link_state().refusal.unwrap_or(Fault::Stale);
                Poll::Ready(self.lost(&started, fault))
            }
            Poll::Pending if link.is_driven() => {
                self.stage = Stage::Started(started);
                Poll::Pending
            }
            // With nobody to reap, waiting would last for ever.
            Poll::Pending => {
                link.tell_link(Notice::Abandon(started.ticket));
                Poll::Ready(self.lost(&started, Fault::NobodyDrives))
            }
        }
    }

    fn lost(&self, started: &Started, fault: Fault) -> Result<Done<B>, Failed<B>> {
        if started.behind.is_some() {
            self.given_back();
        }
        Err(Failed {
            error: Error::new(started.op.name(), self.object.name.as_str(), fault),
            buffer: None,
            bytes_done: 0,
        })
    }

    fn result(&self, started: Started, mut outcome: Outcome) -> (Trace, Result<Done<B>, Failed<B>>) {
        let Started {
            op,
            asked,
            behind,
            trace,
            ..
        } = started;
        let memory = match behind {
            Some(behind) => {
                let own = unbounce(op, behind, &outcome);
                drop(std::mem::take(&mut outcome.memory));
                self.given_back();
                own
            }
            None => whole(outcome.memory, asked),
        };
        let filled = match (op, &outcome.result) {
            (SegmentOp::Read { .. }, Ok(bytes)) => *bytes as usize,
            _ => 0,
        };
        let buffer = B::from_filled(memory, filled);
        let error = match (outcome.result, buffer) {
            (Ok(bytes), Some(buffer)) if !self.exact || bytes as usize == asked => {
                let done = Done {
                    bytes: bytes as usize,
                    buffer,
                    took: outcome.took,
                    iterations: outcome.iterations,
                };
                return (trace, Ok(done));
            }
            (Ok(bytes), buffer) => (self.too_few(op, asked, bytes), buffer),
            (Err(error), buffer) => (error, buffer),
        };
        let failed = Failed {
            error: error.0,
            buffer: error.1,
            bytes_done: outcome.bytes_done as usize,
        };
        (trace, Err(failed))
    }

    /// Fewer bytes than asked, where that is a failure.
    fn too_few(&self, op: SegmentOp, asked: usize, bytes: u32) -> Error {
        let offset = op.offset().unwrap_or(0);
        let fault = Fault::Beyond {
            len: asked as u64,
            size: offset.saturating_add(u64::from(bytes)),
            write: op.changes_bytes(),
        };
        Error::new(op.name(), self.object.name.as_str(), fault).at(offset)
    }
}

/// Can the device not use its memory, for all that is known?
fn must_bounce(request: &SegmentRequest) -> bool {
    const SAFE: u64 = 4096;
    let usable = request.op.changes_bytes() || request.memory.is_writable();
    request.mode == Mode::Direct && usable && request.memory.misplaced(SAFE)
}

/// Puts a buffer of the arena in the place of the request's memory, which is given back.
pub(crate) fn bounce<L: Transport>(link: &L, request: &mut SegmentRequest) -> Result<Memory, Error> {
    let mut buffer = link.take_buffer(request.memory.len())?;
    if request.op.changes_bytes() {
        request.memory.copy_out_at(0, &mut buffer);
    }
    Ok(std::mem::replace(&mut request.memory, Memory::Own(buffer)))
}

/// As it went in: a read across the end of a segment was cut to what there is.
fn whole(mut memory: Memory, asked: usize) -> Memory {
    if memory.len() < asked {
        memory.show(asked);
    }
    memory
}

/// The caller's memory again, with what was read. While the kernel may still be at the arena's buffer, it is as it was.
pub(crate) fn unbounce(op: SegmentOp, mut memory: Memory, outcome: &Outcome) -> Memory {
    if let (SegmentOp::Read { .. }, Memory::Own(buffer)) = (op, &outcome.memory) {
        let bytes = outcome.result.as_ref().map_or(outcome.bytes_done, |bytes| *bytes) as usize;
        memory.copy_in_at(0, &buffer[..bytes.min(buffer.len())]);
    }
    memory
}

impl<L: Transport, B: IoBuf> Future for Request<L, B> {
    type Output = Result<Done<B>, Failed<B>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Done<B>, Failed<B>>> {
        let this = self.get_mut();
        let polled = match std::mem::replace(&mut this.stage, Stage::Ended) {
            Stage::Fresh(request) => this.start(request, context),
            Stage::Started(started) => this.look(started, context),
            Stage::Ended => Poll::Ready(Err(Failed {
                error: Error::new("await", "a request that has ended", Fault::Stale),
                buffer: None,
                bytes_done: 0,
            })),
        };
        if polled.is_ready() {
            this.leave_line();
        }
        polled
    }
}

impl<L: Transport, B: IoBuf> Drop for Request<L, B> {
    fn drop(&mut self) {
        self.leave_line();
        if let Stage::Started(started) = &self.stage {
            self.object.link.tell_link(Notice::Abandon(started.ticket));
            if started.behind.is_some() {
                self.given_back();
            }
        }
    }
}
