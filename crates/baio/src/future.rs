//! A request as a future, without an allocation.
//!
//! The first poll queues the request; nothing is submitted by polling, so futures that are joined go to the kernel
//! together. Dropping one abandons its request: the slot keeps the buffer until the kernel has let go of it. A deadline counts
//! also while a future waits for a slot: then the request ends as cancelled, and has had no effect.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use baio_engine::{Caching, Errno, Memory};
use baio_storage::{Error, Fault, Outcome, SegmentRequest, Ticket};

use crate::link::Link;
use crate::opened::Opened;

/// A request under way on a segment, which it keeps open.
#[derive(Debug)]
#[must_use = "a request that is never polled never starts"]
pub struct InFlight<L: Link> {
    opened: Arc<Opened<L>>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Not started; boxed nowhere: the request lives in the future.
    Fresh(SegmentRequest),
    /// The core has it.
    Started(Ticket),
    /// The outcome has been given.
    Ended,
}

impl<L: Link> InFlight<L> {
    pub(crate) fn new(opened: Arc<Opened<L>>, request: SegmentRequest) -> InFlight<L> {
        InFlight {
            opened,
            stage: Stage::Fresh(request),
        }
    }

    fn start(&mut self, request: SegmentRequest, context: &mut Context<'_>) -> Poll<Outcome> {
        if !self.opened.link.is_driven() {
            return Poll::Ready(self.refused(request, Fault::NobodyDrives));
        }
        match self.opened.link.start(request) {
            Ok(ticket) => self.look(ticket, context),
            Err(request) => match self.opened.link.refusal() {
                Some(fault) => Poll::Ready(self.refused(request, fault)),
                None if request.deadline.is_some_and(|at| at <= self.opened.link.now()) => {
                    // It found no slot before its deadline.
                    Poll::Ready(self.refused(request, baio_engine::Error::Cancelled))
                }
                None => {
                    self.opened.link.wake_when_room(context.waker(), request.deadline);
                    self.stage = Stage::Fresh(request);
                    Poll::Pending
                }
            },
        }
    }

    /// The end of a request that never began.
    fn refused(&self, request: SegmentRequest, fault: impl Into<Fault>) -> Outcome {
        let info = &self.opened.info;
        let object = format!("{}/{}", info.owner_uid, info.name);
        let error = Error::new(request.op.name(), object, fault);
        let error = match request.op.offset() {
            Some(offset) => error.at(offset),
            None => error,
        };
        if let Some(status) = &request.status {
            status.end(Err(error.errno().unwrap_or(Errno::EIO)));
        }
        Outcome {
            tag: request.tag,
            result: Err(error),
            ..failed(Fault::Stale, request.memory)
        }
    }

    fn look(&mut self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Outcome> {
        match self.opened.link.poll(ticket, context.waker()) {
            Poll::Ready(Some(outcome)) => Poll::Ready(outcome),
            // The link was closed under the future.
            Poll::Ready(None) => Poll::Ready(failed(Fault::Stale, Memory::None)),
            Poll::Pending if self.opened.link.is_driven() => {
                self.stage = Stage::Started(ticket);
                Poll::Pending
            }
            Poll::Pending => {
                self.opened.link.abandon(ticket);
                Poll::Ready(undriven(Memory::None))
            }
        }
    }
}

impl<L: Link> Future for InFlight<L> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Fresh(request) => self.start(request, context),
            Stage::Started(ticket) => self.look(ticket, context),
            Stage::Ended => Poll::Ready(failed(Fault::Stale, Memory::None)),
        }
    }
}

impl<L: Link> Drop for InFlight<L> {
    fn drop(&mut self) {
        if let Stage::Started(ticket) = self.stage {
            self.opened.link.abandon(ticket);
        }
    }
}

/// With nobody to reap, waiting would last for ever.
fn undriven(memory: Memory) -> Outcome {
    failed(Fault::NobodyDrives, memory)
}

fn failed(fault: Fault, memory: Memory) -> Outcome {
    Outcome {
        ticket: Ticket::default(),
        tag: 0,
        result: Err(Error::new("await", "a request", fault)),
        bytes_done: 0,
        memory,
        took: Caching::Direct,
        iterations: 0,
        pin: None,
    }
}
