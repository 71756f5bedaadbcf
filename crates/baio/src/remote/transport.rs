//! The calls of every transport, over a ring.

use std::future::Future;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};

use baio_broker::control::{Call, Reply};
use baio_client::{Ended, NotTaken, WaitPlace};
use baio_engine::{Arena, CHUNK, Memory, Time, Wait};
use baio_storage::cache::{Borrower, LentPages};
use baio_storage::{Error, Fault, Handle, Outcome, Result, SegmentRequest, Ticket};
use baio_words::{Errno, IoError, RequestFault};

use super::Remote;
use super::carried::{Client, arena_of, outcome};
use super::logs::Asked;
use crate::request::bounce;
use crate::trace;
use crate::transport::{Begun, Facts, InLine, Lack, NotAsked, Notice, State, Transport};

/// By how much of the arena requests of this length wait for memory.
fn chunks(bytes: usize) -> u64 {
    bytes.div_ceil(CHUNK) as u64
}

/// Why nothing can be had of it, where it is the parent's of this process.
fn forked(client: &Client) -> Option<Fault> {
    client
        .is_forked()
        .then_some(Fault::from(RequestFault::Io(IoError::Forked)))
}

impl Transport for Remote {
    type Question = Asked;

    fn submit(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        self.start_or_copy(request)
    }

    fn submit_awaited(&self, request: SegmentRequest, waker: &Waker) -> std::result::Result<Begun, NotTaken<Memory>> {
        let ticket = self.client().start_shown(request, Some(waker))?;
        Ok((ticket, Poll::Pending))
    }

    fn ask(&self, call: Box<Call>) -> std::result::Result<Asked, NotAsked> {
        let client = self.client();
        if let Some(fault) = forked(client) {
            return Err(NotAsked::Refused(fault));
        }
        if self.is_far() {
            if let Some(asked) = self.0.logs.ask(client, &call) {
                return asked.map(Asked::Log);
            }
        }
        let asked = client.command(call).map_err(|call| match client.refusal() {
            Some(fault) => NotAsked::Refused(fault.into()),
            None => NotAsked::Full(call),
        });
        asked.map(Asked::Service)
    }

    fn tell_link(&self, notice: Notice<Asked>) {
        let client = self.client();
        match notice {
            Notice::Cancel(ticket) => client.cancel(ticket),
            Notice::Abandon(ticket) => {
                client.abandon(ticket);
                if self.is_far() && forked(client).is_none() {
                    self.0.behind.forget(ticket);
                }
            }
            Notice::Leave(Asked::Service(ticket)) => client.abandon(ticket),
            Notice::Leave(Asked::Log(asked)) => drop(asked), // A log that it would have given is closed.
            Notice::Close(handle) => client.close_handle(handle),
            Notice::Named(handle, name) => client.remember(handle, name),
            Notice::LeftLine { line, has_it } => match line.lack {
                Lack::Slot if has_it => client.room_taken(line.place),
                Lack::Slot => client.leave_room(line.place),
                Lack::Bytes(bytes) => client.leave_memory(line.place, chunks(bytes)),
            },
            Notice::MemoryCame => client.memory_came(), // Whoever waits for some looks whether anything else will come.
            Notice::Logged { .. } => {} // The appender, and whoever leaves a callback, rings for the service.
        }
    }

    fn poll_request(&self, ticket: Ticket, waker: &Waker) -> Poll<Option<Outcome>> {
        let polled = self.client().poll(ticket, waker).map(|ended| self.outcome(ended));
        self.expect_helper(&polled);
        polled
    }

    fn next_ended(&self) -> Option<Outcome> {
        let ended = self.client().next_outcome()?;
        Some(self.0.behind.restore(outcome(ended)))
    }

    fn wait_for_ticket(&self, ticket: Ticket) -> Result<Option<Outcome>> {
        Ok(self.outcome(self.client_to_wait()?.wait(ticket)))
    }

    fn turn_link(&self, wait: Wait) -> Result<usize> {
        let client = self.client_to_wait()?;
        // It would sleep on its parent's bell, and take answers that are its parent's.
        if let Some(fault) = forked(client) {
            return Err(Error::new("turn", client.name(), fault));
        }
        let turned = match wait {
            Wait::No => client.turn_once(),
            Wait::Until {
                count,
                min_wait,
                deadline,
            } => client.turn(count, min_wait, deadline),
        };
        turned.map_err(|fault| Error::new("turn", client.name(), fault))
    }

    fn poll_answer(&self, question: &Asked, waker: &Waker) -> Poll<Result<Reply>> {
        let question = match question {
            Asked::Service(ticket) => ticket,
            Asked::Log(asked) => match forked(self.client()) {
                Some(fault) => return Poll::Ready(Err(Error::new("ask the service of", self.client().name(), fault))),
                None => return asked.poll(waker),
            },
        };
        let polled = self.client().poll(*question, waker);
        self.expect_helper(&polled);
        polled.map(|ended| match ended {
            Some(Ended::Command(answer)) => answer.map_err(Error::from).and_then(|answer| answer),
            _ => {
                let fault = forked(self.client()).unwrap_or(Fault::Stale);
                Err(Error::new("ask the service of", self.client().name(), fault))
            }
        })
    }

    fn run_on_link<F: Future>(&self, future: F) -> Result<F::Output> {
        let client = self.client_to_wait()?;
        let done = client.block_on(future);
        done.map_err(|fault| Error::new("wait on", client.name(), fault))
    }

    fn is_driven(&self) -> bool {
        self.client().is_driven()
    }

    /// The service does, but what this thread has queued is to reach it before.
    fn while_others_drive<T>(&self, sleep: impl FnOnce() -> T) -> Option<T> {
        let client = self.client_to_wait().ok()?;
        let has_more = match client.refusal_and_in_flight() {
            (Some(_), _) => return None, // Waiting for the link says why.
            (None, in_flight) => in_flight > 0,
        };
        if has_more {
            client.look_once();
        }
        let slept = sleep();
        if has_more {
            client.look_once(); // As if it had reaped meanwhile.
        }
        Some(slept)
    }

    fn link_event(&self) -> Result<OwnedFd> {
        let client = self.client();
        let failed = |fault: Fault| Error::new("wait for", client.name(), fault);
        let fd = client.event_fd().map_err(|fault| failed(fault.into()))?;
        let copy = baio_process::descriptor::duplicate(&*fd);
        copy.map_err(|errno| failed(Errno::from_raw(errno.raw_os_error()).into()))
    }

    fn link_arena(&self) -> (Option<Arc<Arena>>, Option<Fault>) {
        self.client()
            .kept(|kept, refusal| (kept.arena.clone(), refusal.map(Fault::from)))
    }

    fn stand_in_line(&self, line: &mut Option<InLine>, lack: Lack, waker: &Waker, until: Option<Time>) -> bool {
        if matches!(lack, Lack::Bytes(bytes) if !(self.is_far() && self.fits(bytes) && self.gives_back())) {
            return false;
        }
        let mut place = line.take().map(|line| line.place);
        match lack {
            Lack::Slot => self.client().wake_when_room(&mut place, waker, until),
            Lack::Bytes(bytes) => self.wake_when_memory(&mut place, bytes, waker, until),
        }
        *line = InLine::at(place, lack);
        true
    }

    fn lend_here(&self, _: &Borrower, _: Handle, _: Range<u64>) -> Option<LentPages> {
        None // The cache is behind a hop.
    }

    fn link_facts(&self) -> &Facts {
        &self.0.facts
    }

    fn link_state(&self) -> State {
        let (refusal, in_flight) = self.client().refusal_and_in_flight();
        State {
            refusal: refusal.map(Fault::from),
            in_flight,
        }
    }

    fn link_clock(&self) -> Time {
        Time::monotonic()
    }

    fn end_link(self) -> Result<()> {
        let client = self.client_to_wait()?;
        if let Some(fault) = forked(client) {
            return Err(Error::new("close", client.name(), fault));
        }
        if self.is_far() {
            let left = self.leave_broker(client);
            trace::link_closed(|| client.name().to_owned(), left.as_ref().map(drop));
            return left;
        }
        let ended = || Err(Error::new("close", client.name(), Fault::ServiceEnded));
        let Some(ticket) = client.begin_close(Box::new(Call::Close)) else {
            if let Some(fault @ (RequestFault::ServiceEnded | RequestFault::ServiceFailed(_))) = client.refusal() {
                return Err(Error::new("close", client.name(), fault));
            }
            // Another thread closes: its command is under way until the volume has been given back.
            client.wait_for_all();
            return Ok(());
        };
        let closed = match client.wait(ticket) {
            Some(Ended::Command(answer)) => answer.map_err(Error::from).and_then(|closed| closed).map(drop),
            _ => ended(),
        };
        self.0.join();
        client.look_once();
        trace::link_closed(|| client.name().to_owned(), closed.as_ref().map(drop));
        closed
    }
}

impl Remote {
    fn fits(&self, bytes: usize) -> bool {
        arena_of(self.client()).is_some_and(|arena| bytes <= arena.size())
    }

    /// A request by ticket: memory that a broker cannot be shown goes through a buffer of the arena.
    fn start_or_copy(&self, mut request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        let behind = &self.0.behind;
        let is_marked = self.is_far() && behind.wants(request.tag);
        let is_hidden = match is_marked {
            true => self.client().must_copy(&request.memory),
            false => match self.client().start_shown(request, None) {
                Ok(ticket) => return Ok(ticket),
                Err(NotTaken::Full(request)) => return Err(request),
                Err(NotTaken::Hidden(back)) => {
                    request = back;
                    true
                }
            },
        };
        let must_copy = is_hidden && (request.op.changes_bytes() || request.memory.is_writable());
        if !must_copy && !is_marked {
            return self.client().start(request);
        }
        let len = request.memory.len();
        let own = match must_copy.then(|| bounce(self, &mut request)) {
            Some(Ok(own)) => Some(own),
            // There may be room when others have ended, and their outcomes were taken.
            Some(Err(_)) if self.fits(len) && (self.gives_back() || self.client().has_untaken()) => {
                return Err(request);
            }
            // There never will be: it ends at once, with `ENOBUFS`.
            Some(Err(_)) | None => None,
        };
        let is_bounced = own.is_some();
        behind.keep(&mut request, own);
        let tag = request.tag;
        match self.client().start(request) {
            Ok(ticket) => {
                behind.started(tag, ticket);
                if is_bounced {
                    self.0.facts.bounces.count(len);
                }
                Ok(ticket)
            }
            Err(mut request) => {
                behind.undo(&mut request);
                Err(request)
            }
        }
    }

    fn wake_when_memory(&self, place: &mut Option<WaitPlace>, bytes: usize, waker: &Waker, until: Option<Time>) {
        let client = self.client();
        client.wake_when_memory(place, chunks(bytes), waker, until);
        if self.gives_back() {
            // Some may have come since it was asked for: what is taken here and given back calls whoever waits.
            drop(arena_of(client).and_then(|arena| arena.buffer(bytes)));
        } else {
            client.memory_came(); // Nobody else would tell.
        }
    }
}
