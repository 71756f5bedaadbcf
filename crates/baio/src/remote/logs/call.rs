//! A question to the broker, and an answer to who has asked.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use baio_broker::control::{self, Reply};
use baio_client::{Ended, Places, WaitPlace};
use baio_storage::{Command, Error, Fault, Result, Ticket};

use super::super::carried::Client;

/// Names a command under way.
#[derive(Debug)]
pub enum Asked {
    /// The service has it.
    Service(Ticket),
    /// A log of this process.
    Log(LogAsked),
}

/// Something that was asked of a log of this process.
pub struct LogAsked(Arc<Slot>);

impl fmt::Debug for LogAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogAsked")
    }
}

#[derive(Default)]
struct Slot(Mutex<Answer>);

#[derive(Default)]
struct Answer {
    answer: Option<Result<Reply>>,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has asked, and who is to answer.
pub(super) fn asked(what: &'static str, name: String) -> (LogAsked, Answerer) {
    let slot = Arc::new(Slot::default());
    let answerer = Answerer {
        slot: Some(Arc::clone(&slot)),
        what,
        name,
    };
    (LogAsked(slot), answerer)
}

impl LogAsked {
    /// The answer, once, if it has come; else remembers whom to wake.
    pub(in super::super) fn poll(&self, waker: &Waker) -> Poll<Result<Reply>> {
        // Before the lock: it may run anybody's code, as a drop may.
        let waker = waker.clone();
        let mut answer = self.0.lock();
        if let Some(answer) = answer.answer.take() {
            return Poll::Ready(answer);
        }
        let old = answer.waker.replace(waker);
        drop(answer);
        drop(old);
        Poll::Pending
    }
}

/// Answers once; when it is dropped before, that the link has ended.
pub(super) struct Answerer {
    slot: Option<Arc<Slot>>,
    pub(super) what: &'static str,
    pub(super) name: String,
}

impl Answerer {
    pub(super) fn give(mut self, answer: Result<Reply>) {
        self.put(answer);
    }

    pub(super) fn fail(self, fault: impl Into<Fault>) {
        let error = Error::new(self.what, self.name.clone(), fault);
        self.give(Err(error));
    }

    fn put(&mut self, answer: Result<Reply>) {
        let Some(slot) = self.slot.take() else { return };
        let waker = {
            let mut slot = slot.lock();
            slot.answer = Some(answer);
            slot.waker.take()
        };
        // Anybody's code: its panic is its own. What nobody wants any more goes with the slot.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some(waker) = waker {
                waker.wake();
            }
            drop(slot);
        }));
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        if self.slot.is_some() {
            let error = Error::new(self.what, self.name.clone(), Fault::ServiceEnded);
            self.put(Err(error));
        }
    }
}

/// A question to the broker: asked as soon as there is a place for it.
pub(super) enum Call {
    /// And where it waits for a place.
    Fresh(Box<control::Call>, Option<WaitPlace>),
    Asked(Ticket),
    Over,
}

impl Call {
    pub(super) fn new(command: Command) -> Call {
        Call::Fresh(Box::new(command.into()), None)
    }

    /// Nobody will take the answer; what it would have opened is closed.
    pub(super) fn leave(self, client: &Arc<Client>) {
        match self {
            Call::Asked(ticket) => client.abandon(ticket),
            Call::Fresh(_, Some(place)) => client.leave_room(place),
            Call::Fresh(_, None) | Call::Over => {}
        }
    }

    /// The answer, once. It is asked in a place of these.
    pub(super) fn poll(&mut self, client: &Arc<Client>, places: Places, waker: &Waker) -> Poll<Result<Reply>> {
        let stale = || Error::new("ask the broker of", client.name(), Fault::Stale);
        let ticket = match std::mem::replace(self, Call::Over) {
            Call::Fresh(call, mut place) => match client.command_in(places, call) {
                Ok(ticket) => {
                    if let Some(place) = place {
                        client.room_taken(place);
                    }
                    ticket
                }
                Err(call) => {
                    if let Some(fault) = client.refusal() {
                        return Poll::Ready(Err(Error::new(call.name(), client.name(), Fault::from(fault))));
                    }
                    client.wake_when_room(&mut place, waker, None);
                    *self = Call::Fresh(call, place);
                    return Poll::Pending;
                }
            },
            Call::Asked(ticket) => ticket,
            Call::Over => return Poll::Ready(Err(stale())),
        };
        match client.poll(ticket, waker) {
            Poll::Pending => {
                *self = Call::Asked(ticket);
                Poll::Pending
            }
            Poll::Ready(Some(Ended::Command(answer))) => {
                Poll::Ready(answer.map_err(Error::from).and_then(|answer| answer))
            }
            Poll::Ready(_) => Poll::Ready(Err(stale())),
        }
    }
}
