//! What a service can serve: whatever carries requests on handles, and is turned by one thread.
//!
//! A volume's core is one (`on_core.rs`), an engine with plain files another ([`crate::files`]).

use std::fmt;

use baio_engine::{Engine, Errno, Memory, SetupError, Wait};
use baio_ring::Shared;
use baio_ring::exchange::Parcel;
use baio_words::entry::{Completion, Tag};
use baio_words::{Handle, Identity, RequestFault, SegmentRequest, Ticket};

/// What lies between such a service and its client.
pub type Between<S> = Shared<Parcel<Memory, <S as Served>::Command, <S as Served>::Answer>>;

/// What becomes of a command.
#[derive(Debug)]
pub enum Begun<S: Served> {
    /// It takes turns: [`Served::take_answer`].
    Operation(S::Operation),
    /// It is done.
    Answered(S::Answer),
    /// The service is to end: what is under way ends first, then comes [`Served::close`].
    Close,
}

/// Carries requests on handles. Made, turned and dropped by the service's thread; its drop waits until the kernel has let go
/// of the client's memory, or keeps that.
pub trait Served: Sized {
    /// What it can be asked besides requests.
    type Command: Send + 'static;
    /// What it answers.
    type Answer: Send + 'static;
    /// Names a command under way.
    type Operation: fmt::Debug;
    /// Why it could not be made, or goes on no more.
    type Error: From<NotStarted> + fmt::Display + Send + 'static;

    /// The number in its handles.
    fn number(&self) -> u32;

    /// What it serves, for messages.
    fn name(&self) -> String;

    /// Whose doorbell is rung, and whose arena clients fill.
    fn engine(&self) -> &Engine;

    /// Queues a request; the next turn submits it. Whatever is wrong with it is told by its end.
    ///
    /// # Errors
    /// The request itself, when every slot is taken.
    fn start(&mut self, request: SegmentRequest<Memory>) -> Result<Ticket, SegmentRequest<Memory>>;

    /// Asks that a request end early. It ends all the same, once.
    fn cancel(&mut self, ticket: Ticket);

    /// The next end, in the order in which they came, with the request's memory. Its tag is [`tag_of`] the request's.
    fn next_end(&mut self) -> Option<(Completion, Memory)>;

    /// Closes a handle; what is under way on it ends. A stale one is none.
    fn close_handle(&mut self, handle: Handle);

    /// Requests that a turn may end.
    fn in_flight(&self) -> usize;

    /// What the system said, of why it goes on no more.
    fn errno(error: &Self::Error) -> Errno;

    /// Submits what is queued, sleeps as long as `wait` allows, reads what has completed. Returns how much that was.
    ///
    /// # Errors
    /// It cannot go on.
    fn turn(&mut self, wait: Wait) -> Result<usize, Self::Error>;

    /// Begins a command of this client.
    fn begin(&mut self, who: Identity, command: Self::Command) -> Begun<Self>;

    /// The answer to a command, once, when there is one.
    fn take_answer(&mut self, operation: &Self::Operation) -> Option<Self::Answer>;

    /// Nobody waits for the answer any more: what waits without having begun ends early. It is answered all the same.
    fn call_off(&mut self, operation: &Self::Operation) {
        let _ = operation;
    }

    /// The service is to end: what is under way ends soon.
    fn wind_down(&mut self) {}

    /// The answer to a command that might outlast all patience, when the service is to end: it is not waited for.
    fn give_up(&mut self, operation: &Self::Operation) -> Option<Self::Answer> {
        let _ = operation;
        None
    }

    /// The handle that an answer gives: it is closed when whoever asked has left.
    fn opened(answer: &Self::Answer) -> Option<Handle>;

    /// Nothing of the client's is under way: gives back what is served.
    fn close(self) -> Self::Answer;
}

/// Why there is no service though there was something to serve.
#[derive(Debug)]
pub enum NotStarted {
    /// Its thread could not be had.
    Thread(SetupError),
    /// Its thread has ended before it served.
    Ended,
}

impl NotStarted {
    /// What went wrong, in the words of a request.
    #[must_use]
    pub fn fault(&self) -> RequestFault {
        match self {
            NotStarted::Thread(error) => RequestFault::Io(baio_engine::Error::System(error.errno)),
            NotStarted::Ended => RequestFault::ServiceEnded,
        }
    }
}

/// A tag as a request carries it and its end hands it back.
#[must_use]
pub fn word_of(tag: Tag) -> u64 {
    u64::from(tag.generation) << 32 | u64::from(tag.index)
}

/// The tag in such a word.
#[must_use]
pub fn tag_of(word: u64) -> Tag {
    Tag {
        index: word as u32,
        generation: (word >> 32) as u32,
    }
}
