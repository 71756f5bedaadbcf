//! Calls that wait for a slot of the core.

use std::cell::Cell;
use std::task::{Poll, Waker};

use baio_storage::{Core, Error, Identity, Result};

use super::{Begun, Call, Doing, Reply, begin};

/// A request of the buffer pool that found every slot taken. It begins when it is polled and there is one; nobody is woken for that.
pub struct Waiting {
    who: Identity,
    /// `None` once it has begun, or was called off.
    call: Cell<Option<Call>>,
    begun: Cell<Option<Box<Doing>>>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiting")
    }
}

impl Waiting {
    pub(super) fn new(who: Identity, call: Call) -> Waiting {
        Waiting {
            who,
            call: Cell::new(Some(call)),
            begun: Cell::new(None),
        }
    }

    pub(super) fn poll(&self, core: &mut Core, waker: Option<Waker>) -> Poll<Result<Reply>> {
        let doing = match (self.begun.take(), self.call.take()) {
            (Some(doing), _) => doing,
            (None, Some(call)) if core.is_full() => {
                self.call.set(Some(call));
                return Poll::Pending;
            }
            (None, Some(call)) => match begin(core, self.who, call) {
                Begun::Doing(doing) => Box::new(doing),
                Begun::Answered(answer) => return Poll::Ready(answer),
                Begun::Close => return Poll::Ready(Ok(Reply::DONE)), // Only a request of the buffer pool waits here.
            },
            (None, None) => {
                let fault = baio_engine::Error::Cancelled;
                return Poll::Ready(Err(Error::new("wait for", "a slot", fault)));
            }
        };
        let polled = doing.poll(core, waker);
        if polled.is_pending() {
            self.begun.set(Some(doing));
        }
        polled
    }

    pub(super) fn cancel(&self, core: &mut Core) {
        drop(self.call.take());
        if let Some(doing) = self.begun.take() {
            doing.cancel(core);
            self.begun.set(Some(doing));
        }
    }

    /// Nobody wants the answer any more.
    pub(super) fn abandon(&self, core: &mut Core) {
        if let Some(doing) = self.begun.take() {
            let _ = doing.abandon(core);
        }
    }
}
