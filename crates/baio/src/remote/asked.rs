//! What takes a while besides requests, as a future: making, opening, deleting, listing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use baio_broker::control::{Command, Reply};
use baio_client::{Ended, Unasked};
use baio_storage::{Error, Fault, Result, Ticket};

use super::Remote;

/// A question to the service, and then its answer. Dropping it gives up the answer, not what was asked for: that may
/// happen all the same.
#[must_use = "a question that is never polled is never asked"]
pub struct Asked<T> {
    remote: Remote,
    stage: Stage,
    read: fn(&Remote, Reply) -> Option<T>,
}

enum Stage {
    Fresh(Box<Command>),
    Started(Ticket),
    Ended,
}

impl<T> std::fmt::Debug for Asked<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Asked({:?})", self.remote)
    }
}

impl<T> Asked<T> {
    pub(super) fn new(remote: &Remote, command: Command, read: fn(&Remote, Reply) -> Option<T>) -> Asked<T> {
        Asked {
            remote: remote.clone(),
            stage: Stage::Fresh(Box::new(command)),
            read,
        }
    }

    fn start(&mut self, command: Box<Command>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let client = self.remote.client();
        if !client.is_driven() {
            return Poll::Ready(Err(self.failed(Fault::NobodyDrives)));
        }
        match client.command(command) {
            Ok(ticket) => self.look(ticket, context),
            Err(command) => match client.refusal() {
                Some(fault) => Poll::Ready(Err(self.failed(fault.into()))),
                None => {
                    client.wake_when_room(context.waker(), None);
                    self.stage = Stage::Fresh(command);
                    Poll::Pending
                }
            },
        }
    }

    fn look(&mut self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Result<T>> {
        match self.remote.client().poll(ticket, context.waker()) {
            Poll::Ready(Some(Ended::Command(answer))) => {
                Poll::Ready(self.answer(answer.map_err(Error::from).flatten()))
            }
            Poll::Ready(_) => Poll::Ready(Err(self.failed(Fault::Stale))),
            Poll::Pending => {
                self.stage = Stage::Started(ticket);
                Poll::Pending
            }
        }
    }

    fn answer(&self, answer: Result<Reply>) -> Result<T> {
        // A reply to another question: only a service that is wrong gives it.
        (self.read)(&self.remote, answer?).ok_or_else(|| self.failed(Fault::ServiceEnded))
    }

    fn failed(&self, fault: Fault) -> Error {
        Error::new("ask the service of", self.remote.client().name(), fault)
    }

    /// Waits for the answer in this thread.
    pub(super) fn wait(mut self) -> Result<T> {
        let Stage::Fresh(command) = std::mem::replace(&mut self.stage, Stage::Ended) else {
            return Err(self.failed(Fault::Stale));
        };
        match self.remote.client().ask(command) {
            Ok(answer) => self.answer(answer),
            Err(Unasked::Refused(fault)) => Err(self.failed(fault.into())),
            Err(Unasked::Full) => Err(self.failed(Fault::Io(baio_engine::Error::Full))),
            Err(Unasked::Lost(error)) => Err(error.into()),
        }
    }
}

impl<T> Future for Asked<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Fresh(command) => self.start(command, context),
            Stage::Started(ticket) => self.look(ticket, context),
            Stage::Ended => Poll::Ready(Err(self.failed(Fault::Stale))),
        }
    }
}

impl<T> Drop for Asked<T> {
    fn drop(&mut self) {
        if let Stage::Started(ticket) = self.stage {
            self.remote.client().abandon(ticket);
        }
    }
}
