//! What a link needs of its way to a core. [`Local`](crate::Local) has the core in its own thread, [`Remote`](crate::Remote) reaches one
//! elsewhere; whatever a program calls ([`Link`](crate::Link), segments, files, logs, futures) is written once above these calls.
//!
//! | what for | calls |
//! |---|---|
//! | to send | `submit` a request, `submit_awaited` a future's, `ask` a command, `tell_link` what nobody answers |
//! | to take | `poll_request`, `poll_answer`, `next_ended`, `wait_for_ticket` |
//! | to drive | `turn_link`, `run_on_link`, `is_driven`, `while_others_drive`, `link_event` |
//! | memory | `link_arena`, `stand_in_line`, `lend_here` |
//! | to look | `link_facts`, `link_state`, `link_clock` |
//! | to end | `end_link` |
//!
//! Whoever is generic over a [`Link`](crate::Link) has these calls in scope. So no name is one that a trait of a program's own would have.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use baio_broker::control::{Call, Reply};
use baio_client::{NotTaken, WaitPlace};
use baio_engine::{Arena, Buffer, Memory, Time, Wait};
use baio_storage::cache::{Borrower, LentPages};
use baio_storage::{Error, Fault, Handle, Identity, Outcome, Result, SegmentRequest, Ticket};

/// Why a command was not taken.
#[derive(Debug)]
pub enum NotAsked {
    /// Every place is taken.
    Full(Box<Call>),
    /// The link takes nothing any more.
    Refused(Fault),
}

/// What a future waits for.
#[derive(Clone, Copy, Debug)]
pub enum Lack {
    /// A slot.
    Slot,
    /// A buffer of the arena of so many bytes.
    Bytes(usize),
}

/// Where it waits for that.
#[derive(Debug)]
pub struct InLine {
    pub(crate) place: WaitPlace,
    pub(crate) lack: Lack,
}

impl InLine {
    /// A place in the line for that, if there is one.
    pub(crate) fn at(place: Option<WaitPlace>, lack: Lack) -> Option<InLine> {
        place.map(|place| InLine { place, lack })
    }
}

/// A one-way call: nothing is answered.
#[derive(Debug)]
pub enum Notice<Q> {
    /// This request is to end early, as far as it can be ended.
    Cancel(Ticket),
    /// Nobody will take the outcome of this request.
    Abandon(Ticket),
    /// Nobody wants this answer any more.
    Leave(Q),
    /// Nobody has this handle any more: what is under way on it ends.
    Close(Handle),
    /// What this handle is called in messages.
    Named(Handle, String),
    /// Who stood in a line has what it waited for, or leaves that to the next.
    LeftLine {
        /// Where it stood.
        line: InLine,
        /// It has it.
        has_it: bool,
    },
    /// The last buffer of the arena that futures had taken for requests has been given back.
    MemoryCame,
    /// Something was appended to a log, or, if `calls_back`, it has a callback to call: whoever drives the link from outside is to look.
    Logged {
        /// The core is to look at its logs.
        calls_back: bool,
    },
}

/// What never changes of a link, and what it counts.
#[derive(Debug)]
pub struct Facts {
    /// The identity that access is checked for.
    pub identity: Identity,
    /// What it serves, for messages.
    pub name: String,
    /// Is the core in the thread of whoever has the link? Then somebody there has to turn it, and nobody has to be woken for what the next turn
    /// finds.
    pub is_here: bool,
    /// Requests that went through a buffer of the arena.
    pub bounces: Bounces,
}

impl Facts {
    pub(crate) fn new(identity: Identity, name: String, is_here: bool) -> Facts {
        Facts {
            identity,
            name,
            is_here,
            bounces: Bounces::default(),
        }
    }
}

/// Requests that went through a buffer of the arena.
#[derive(Debug, Default)]
pub struct Bounces {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Buffers that futures have taken for requests and not given back.
    under_way: AtomicUsize,
}

impl Bounces {
    /// How many, and their bytes.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (
            self.requests.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    /// One of so many bytes.
    pub(crate) fn count(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A future has taken a buffer for one.
    pub(crate) fn begin(&self, bytes: usize) {
        self.count(bytes);
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    /// It has given the buffer back. Was it the last that any had?
    pub(crate) fn end(&self) -> bool {
        self.under_way.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn is_any_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }
}

/// How a link stands at one moment.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Why it takes no requests any more; none while it does.
    pub refusal: Option<Fault>,
    /// Requests that have not ended, or whose end nobody has reaped.
    pub in_flight: usize,
}

/// A request that was begun, and its end if that is known already.
pub(crate) type Begun = (Ticket, Poll<Option<Outcome>>);

/// A way to a core. This crate's only: nobody else can name it.
pub trait Transport: Clone + Unpin + fmt::Debug + 'static {
    /// Names a command under way.
    type Question: Unpin + Send;

    /// As [`Link::start`](crate::Link::start).
    #[allow(
        clippy::result_large_err,
        reason = "a request comes back as it was, and a box would be an allocation"
    )]
    fn submit(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest>;

    /// The same for a future: nobody else takes its outcome, however soon that comes; and memory that the core cannot be shown where it lies
    /// comes back, to go through a buffer of the arena.
    #[allow(
        clippy::result_large_err,
        reason = "a request comes back as it was, and a box would be an allocation"
    )]
    fn submit_awaited(&self, request: SegmentRequest, waker: &Waker) -> std::result::Result<Begun, NotTaken<Memory>>;

    /// Begins a command.
    fn ask(&self, call: Box<Call>) -> std::result::Result<Self::Question, NotAsked>;

    /// Passes a one-way call on.
    fn tell_link(&self, notice: Notice<Self::Question>);

    /// As [`Link::poll`](crate::Link::poll).
    fn poll_request(&self, ticket: Ticket, waker: &Waker) -> Poll<Option<Outcome>>;

    /// The answer of a command, once, if it has come; else remembers whom to wake.
    fn poll_answer(&self, question: &Self::Question, waker: &Waker) -> Poll<Result<Reply>>;

    /// As [`Link::next_outcome`](crate::Link::next_outcome).
    fn next_ended(&self) -> Option<Outcome>;

    /// As [`Link::wait`](crate::Link::wait).
    fn wait_for_ticket(&self, ticket: Ticket) -> Result<Option<Outcome>>;

    /// As [`Link::turn`](crate::Link::turn).
    fn turn_link(&self, wait: Wait) -> Result<usize>;

    /// As [`Link::block_on`](crate::Link::block_on).
    fn run_on_link<F: Future>(&self, future: F) -> Result<F::Output>;

    /// Is anybody there who will reap what is started?
    fn is_driven(&self) -> bool;

    /// Runs `sleep` if other threads drive the link; they end it. None: nobody else does, so this thread has to drive it.
    fn while_others_drive<T>(&self, sleep: impl FnOnce() -> T) -> Option<T>;

    /// As [`Link::event_fd`](crate::Link::event_fd).
    fn link_event(&self) -> Result<OwnedFd>;

    /// Whose buffers move without a copy, and why none is taken from it any more.
    fn link_arena(&self) -> (Option<Arc<Arena>>, Option<Fault>);

    /// Wakes `waker` when what is lacking may be there, when it never will be, and at `until` if whoever reaps sleeps in this link. A place in
    /// another line is given up. False: nobody will ever free what is lacking.
    fn stand_in_line(&self, line: &mut Option<InLine>, lack: Lack, waker: &Waker, until: Option<Time>) -> bool;

    /// Lends cached pages directly, where there is no hop.
    fn lend_here(&self, borrower: &Borrower, handle: Handle, pages: Range<u64>) -> Option<LentPages>;

    /// What never changes of it.
    fn link_facts(&self) -> &Facts;

    /// How it stands now.
    fn link_state(&self) -> State;

    /// As [`Link::now`](crate::Link::now).
    fn link_clock(&self) -> Time;

    /// As [`Link::close`](crate::Link::close).
    fn end_link(self) -> Result<()>;

    /// As [`Link::buffer`](crate::Link::buffer).
    fn take_buffer(&self, len: usize) -> Result<Buffer> {
        let facts = self.link_facts();
        let failed = |fault| Error::new("take a buffer for", facts.name.clone(), fault);
        let arena = match self.link_arena() {
            (Some(arena), None) => arena,
            (_, refusal) => return Err(failed(refusal.unwrap_or(Fault::Stale))),
        };
        let found = arena.buffer(len).or_else(|| {
            if !facts.is_here {
                // Memory of abandoned requests may lie in the ring.
                let _ = self.turn_link(Wait::No);
            }
            arena.buffer(len)
        });
        found.ok_or_else(|| failed(Fault::NoMemory { asked: len as u64 }))
    }

    /// Why a future would wait for ever: nobody reaps.
    fn nobody_drives(&self) -> Option<Fault> {
        (!self.is_driven()).then(|| self.link_state().refusal.unwrap_or(Fault::NobodyDrives))
    }
}
