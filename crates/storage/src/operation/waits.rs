//! How an operation waits, and how it reaches the core.
//!
//! An operation is an `async fn` ([`Story`]), which the core polls when something has happened for it, with a waker that does nothing. For
//! the time of the poll the core lends it a [`Context`]: [`with`] reaches it. What is borrowed there ends with the closure, so the
//! compiler sees to it that nothing of the core is held while the operation waits.
//!
//! Every wait is a [`Wait`]. It says what it waits for, and takes that when it comes. Two things else may come: that the operation
//! is called off, then it fails; and what nobody waits for, which is a bug of ours ([`Context::unexpected`]).

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, Waker};

use baio_engine::Completion;
use scoped_tls_hkt::scoped_thread_local;

use super::{Answer, CALLED_OFF, Context, Event, Failed, Kind, Operation, Part, Step};
use crate::crossing::Awaited;
use crate::error::Fault;
use crate::holds::HoldId;
use crate::segment::probe::SlotAddress;

/// What an operation does, from its beginning to its answer.
pub(crate) type Story = Pin<Box<dyn Future<Output = Result<Answer, Failed>> + Send>>;

/// Who can lend a context: it itself. As a trait object all its lifetimes are one.
trait Lend {
    fn lend(&mut self, act: &mut dyn FnMut(&mut Context<'_>));
}

impl Lend for Context<'_> {
    fn lend(&mut self, act: &mut dyn FnMut(&mut Context<'_>)) {
        act(self);
    }
}

scoped_thread_local!(static mut LENT: for<'a> &'a mut (dyn Lend + 'a));

/// Reaches the core from within an operation. Not from within another such closure: the core is lent to one at a time.
pub(crate) fn with<T>(act: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let (mut act, mut acted) = (Some(act), None);
    LENT.with(|lent| lent.lend(&mut |cx| acted = act.take().map(|act| act(cx))));
    acted.unwrap_or_else(|| unreachable!("it is lent to whoever asks"))
}

/// Moves an operation on by the event in its context. Whatever fails ends it, and gives the token back.
pub(crate) fn step(story: &mut Story, mut cx: Context<'_>) -> Step {
    let mut nobody = task::Context::from_waker(Waker::noop());
    let begins = cx.event.take_if(|event| matches!(event, Event::Begin));
    let polled = match begins {
        Some(_) if cx.ends_early() => Poll::Ready(Err(CALLED_OFF.into())),
        _ => LENT.set(&mut cx, || story.as_mut().poll(&mut nobody)),
    };
    debug_assert!(cx.event.is_none(), "what has come is taken, or refused");
    match polled {
        // What waits on for the same thing says nothing anew.
        Poll::Pending => cx.waits_for.take().unwrap_or(Step::Requests),
        Poll::Ready(Ok(answer)) => Step::Done(Ok(answer)),
        Poll::Ready(Err(failed)) => {
            cx.release_token();
            Step::Done(Err(match failed {
                Failed::Fault(fault) => {
                    // What it says of others is for those who may see it.
                    let sight = cx.volume.device.sight(cx.subject.who);
                    cx.subject.error(fault.seen_with(sight))
                }
                Failed::Elsewhere(error) => error,
            }))
        }
    }
}

/// Takes an event of one kind.
type Take<T> = fn(&mut Option<Event>) -> Option<T>;

/// A wait for one thing.
struct Wait<T> {
    /// What is waited for, until the core knows it.
    step: Option<Step>,
    /// Takes that, if it is what has come.
    take: Take<T>,
}

impl<T> Future for Wait<T> {
    type Output = Result<T, Fault>;

    fn poll(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Result<T, Fault>> {
        with(|cx| {
            if let Some(step) = self.step.take() {
                *cx.waits_for = Some(step);
                return Poll::Pending;
            }
            if cx.event.is_none() {
                return Poll::Pending; // It was for another part of the operation.
            }
            if cx.ends_early() || matches!(cx.event, Some(Event::CalledOff)) {
                *cx.event = None;
                return Poll::Ready(Err(CALLED_OFF)); // What it has under way is nobody's then.
            }
            if let Some(taken) = (self.take)(cx.event) {
                return Poll::Ready(Ok(taken));
            }
            match cx.event.take() {
                // It was to look whether anybody wants it, and goes on.
                Some(Event::Turn) if cx.shown.kind.is_turned() => Poll::Pending,
                Some(event) => Poll::Ready(Err(cx.unexpected(&event))),
                None => Poll::Pending,
            }
        })
    }
}

fn wait<T>(step: Step, take: Take<T>) -> Wait<T> {
    Wait { step: Some(step), take }
}

/// A [`Take`] of one kind of event.
macro_rules! taking {
    ($($kind:pat => $taken:expr),+) => {
        |event| match event.take() {
            $(Some($kind) => Some($taken),)+
            other => {
                *event = other;
                None
            }
        }
    };
}

/// Waits for the end of one of the operation's requests.
pub(crate) async fn completed() -> Result<Completion, Fault> {
    wait(Step::Requests, taking!(Event::Completed(completion) => completion)).await
}

/// Waits for the table token.
pub(crate) async fn token() -> Result<(), Fault> {
    wait(Step::Token, taking!(Event::Token => ())).await
}

/// Gives the token back, and waits until whoever has claimed a segment ends. The token is there again then, and the operation looks
/// again: the segment may be gone, or have another name.
pub(crate) async fn unclaimed(at: SlotAddress) -> Result<(), Fault> {
    with(|cx| {
        cx.claims.wait_for(at);
        cx.release_token();
    });
    wait(Step::Unclaimed, taking!(Event::Token => ())).await
}

/// Waits for the end of the requests on the handles of a segment.
pub(crate) async fn drained(at: SlotAddress) -> Result<(), Fault> {
    wait(Step::Lane(Awaited::Drained(at)), taking!(Event::Drained => ())).await
}

/// Waits for the end of the requests that touch a range which the operation holds.
pub(crate) async fn quiet(hold: HoldId) -> Result<(), Fault> {
    wait(Step::Lane(Awaited::Quiet(hold)), taking!(Event::Drained => ())).await
}

/// Waits for word from the page cache: it has made safe and let go of what it was asked to, or cannot.
pub(crate) async fn uncached() -> Result<(), Fault> {
    wait(Step::Uncached, taking!(Event::Uncached(ended) => ended)).await?
}

/// Waits for the next turn: the operation has done as much in this one as it may.
pub(crate) async fn next_turn() -> Result<(), Fault> {
    wait(Step::Turn, taking!(Event::Turn => ())).await
}

/// Waits for a turn that somebody else asks for.
pub(crate) async fn turned() -> Result<(), Fault> {
    wait(Step::Requests, taking!(Event::Turn => ())).await
}

/// Waits for the end of all that changes the device.
pub(crate) async fn still() -> Result<(), Fault> {
    wait(Step::Still, taking!(Event::Still => ())).await
}

/// What happens to an operation with a thread.
pub(crate) enum Threaded {
    Ended,
    /// Somebody wants it to look whether it is wanted.
    Turned,
}

/// Waits for the end of a thread of the operation's own, which rings the doorbell then.
pub(crate) async fn thread() -> Result<Threaded, Fault> {
    wait(Step::Thread, THREADED).await
}

/// Waits on for that.
pub(crate) async fn thread_still() -> Result<Threaded, Fault> {
    wait(Step::Requests, THREADED).await
}

const THREADED: Take<Threaded> = taking!(Event::Thread => Threaded::Ended, Event::Turn => Threaded::Turned);

/// Begins another operation, and waits for its answer.
pub(crate) async fn answered(operation: Operation) -> Result<Answer, Failed> {
    let begin = Step::Begin(Box::new(operation));
    let answer = wait(begin, taking!(Event::Answered(answer) => answer)).await?;
    Ok(answer?)
}

impl Context<'_> {
    /// Takes the end of a request of this part, if that is what has come.
    pub(crate) fn take_completion_of(&mut self, part: Part) -> Option<Completion> {
        let is_its = |event: &mut Event| matches!(event, Event::Completed(completion) if Part::of(completion) == part);
        match self.event.take_if(is_its) {
            Some(Event::Completed(completion)) => Some(completion),
            _ => None,
        }
    }

    /// Is the operation to end at its next step? What only looks is, when it was called off; a freeze also when nobody waits for it.
    fn ends_early(&self) -> bool {
        let is_asked = || self.is_abandoned || self.claims.is_asked_to_end(self.index);
        match self.shown.kind {
            Kind::Freezes => is_asked(),
            _ => self.is_called_off && self.shown.taking != super::Taking::Alone,
        }
    }

    /// An event that the operation does not wait for is a bug of ours, and what it does to the table is anybody's guess: the
    /// operation ends, which frees the token, and the volume changes nothing more until it was opened again. (To wait on would
    /// be to wait for ever, with the token.)
    fn unexpected(&mut self, event: &Event) -> Fault {
        #[cfg(not(test))] // The unit tests look at what others get.
        debug_assert!(false, "operation {} does not wait for {}", self.index, event.name());
        self.volume.latch();
        Fault::Unexpected(event.name())
    }
}
