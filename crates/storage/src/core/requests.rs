//! Requests on handles: checked, sent on their way, and answered.

use std::mem::take;
use std::task::{Poll, Waker};

use baio_engine::{Argument, Completion, Errno, File, Memory, Notice, Op, Policy, Request};

use super::Core;
use super::lane::Lane;
use super::tags::Recipient;
use super::ways::{Coming, Way};
use crate::cache::ObjectId;
use crate::crossing::ToTable;
use crate::error::{Error, Fault, Result};
use crate::holds::Touched;
use crate::object::Target;
use crate::request::{Asked, Handle, Outcome, Owner, SegmentOp, SegmentRequest, State, Ticket};

impl Core {
    /// Queues a request; the next turn submits it. Its outcome reports whatever is wrong with it.
    ///
    /// # Errors
    /// The request itself, when every slot is taken: take outcomes, turn, and try again.
    pub fn start(&mut self, mut request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        let is_full = self.lane.requests.is_full();
        let entered = (!is_full).then(|| self.lane.enter(Owner::Caller, &mut request));
        entered.flatten().ok_or(request)
    }

    /// Is every slot taken?
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.lane.requests.is_full()
    }

    /// Grows with each place of the table, or slot of the engine behind it, that comes free for a request that found none; and how many places are free
    /// now.
    #[must_use]
    pub fn places_freed(&self) -> (u64, usize) {
        (self.lane.requests.given_back(), self.lane.requests.free_places())
    }

    /// Takes the outcome of a request if it has ended; else remembers whom to wake, and keeps the outcome for it. `None` for a
    /// ticket that is not valid any more.
    pub fn poll(&mut self, ticket: Ticket, waker: Option<Waker>) -> Poll<Option<Outcome>> {
        self.lane.requests.poll(ticket, waker)
    }

    /// Takes the next outcome in the order of completion, of requests that nobody polls for with a waker.
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.lane.requests.next_finished()
    }

    /// Does the kernel still have a request whose outcome was taken? It was answered at its deadline then, and its slot and its part of the device
    /// are taken until the kernel lets go ([`Core::next_released`]). Never of a cached request: the I/O that the cache has begun for it is the
    /// cache's, may be for others too, and goes on whatever becomes of the request.
    #[must_use]
    pub fn is_held(&self, ticket: Ticket) -> bool {
        matches!(self.lane.requests.state(ticket), State::Left(_))
    }

    /// The next request of those that the kernel has let go of since they were answered ([`Core::is_held`]) or abandoned. They are noted from the
    /// first call on, so whoever has called once goes on calling.
    pub fn next_released(&mut self) -> Option<Ticket> {
        self.lane.requests.next_let_go()
    }
}

impl Lane {
    /// Takes a request into the table and sends it on its way: to the cache, to the engine, or behind a hold. `None`: there is no room, and it
    /// still has its memory.
    pub(super) fn enter(&mut self, owner: Owner, request: &mut SegmentRequest) -> Option<Ticket> {
        let (handle, asked) = (request.handle, request.memory.len());
        let way = self.must_be_free(owner, request);
        let way = way.and_then(|()| self.check(request, Coming::First));
        let way = way.map(|way| self.way_while_frozen(owner, request, way));
        let way = way.and_then(|way| Ok((self.whom_to_ask(owner, &way, request)?, way)));
        let Some(ticket) = self.requests.insert(owner, request) else {
            uncut(&mut request.memory, asked);
            return None;
        };
        let follows = way.is_ok() && self.stand_in_line(owner, ticket, request);
        let has_status = request.status.is_some();
        if has_status && (follows || !matches!(way, Ok((None, Way::Device(..))))) {
            self.requests.begin_status(ticket);
        }
        match way {
            Ok(_) if follows => {
                self.objects.begin(handle);
                self.requests
                    .keep(ticket, State::BehindWrites, take(&mut request.memory));
                self.requests.watch(ticket);
            }
            Ok((Some(object), _)) => self.ask(ticket, request, object, Coming::First),
            Ok((None, Way::Device(file, op, policy))) => {
                let memory = take(&mut request.memory);
                let is_reserved = !matches!(owner, Owner::Caller);
                if let Err(memory) = self.submit(ticket, (file, op, policy), memory, is_reserved) {
                    self.requests.free(ticket);
                    request.memory = memory;
                    uncut(&mut request.memory, asked);
                    return None;
                }
                if has_status {
                    self.requests.begin_status(ticket); // Not of one that goes back.
                }
                self.objects.begin(handle);
            }
            Ok((None, Way::Hold)) => {
                self.objects.begin(handle);
                self.hold_back(ticket, take(&mut request.memory));
                self.requests.watch(ticket);
            }
            Ok((None, Way::Nothing | Way::Cache)) => {
                self.tell(Outcome::early(ticket, take(&mut request.memory), Ok(0)), None);
            }
            Err(error) => self.tell(Outcome::early(ticket, take(&mut request.memory), Err(error)), None),
        }
        Some(ticket)
    }

    /// The cache's object, if the cache is asked first: to do it, or to make way for it. Its own are asked of nobody.
    fn whom_to_ask(&mut self, owner: Owner, way: &Way, request: &SegmentRequest) -> Result<Option<ObjectId>> {
        match (owner, way) {
            (Owner::Cache(_), _) | (_, Way::Nothing) => Ok(None),
            // All else that a log asks for goes on to the device when the cache has made way, and this the cache would do itself. What it had
            // changed of what the log reads was written out before that was read: the sync of that is the device's.
            (Owner::Log(_), _) if request.op.is_sync() => Ok(None),
            // It keeps the cache out when it begins, and not while an operation holds a part of its range.
            (Owner::Caller | Owner::Log(_), Way::Hold) if request.op.changes_bytes() => {
                self.object_asked(request).map(|_| None)
            }
            (Owner::Caller | Owner::Log(_), _) => self.object_asked(request),
        }
    }

    /// Callers' writes stand in the line of their file or segment until they are over, so that fences know of them wherever they
    /// are. Says whether this is a fence that has to wait for some.
    fn stand_in_line(&mut self, owner: Owner, ticket: Ticket, request: &SegmentRequest) -> bool {
        let is_fence = request.op == SegmentOp::Fence;
        if !matches!(owner, Owner::Caller) || !is_fence && !request.op.changes_bytes() {
            return false;
        }
        let Some(line) = self.objects.line(request.handle) else {
            return false;
        };
        if is_fence {
            let failures = self.file_of(request.handle).map_or(0, File::failures);
            self.requests.note_failures(ticket, failures);
            return self.requests.must_follow(ticket, line);
        }
        self.requests.count_write(ticket, line);
        false
    }

    /// The file that a handle's syncs are about.
    fn file_of(&self, handle: Handle) -> Option<&File> {
        match &self.objects.get(handle)?.target {
            Target::Plain(file) => Some(file),
            Target::Segment { .. } => self.ground.as_ref().map(|ground| &ground.file),
        }
    }

    fn hold_back(&mut self, ticket: Ticket, memory: Memory) {
        self.requests.keep(ticket, State::Held, memory);
        self.holds.wait(ticket);
    }

    /// Gives a request to the engine, or its memory back when that has no slot. What others may wait for can use the reserved ones.
    fn submit(
        &mut self,
        ticket: Ticket,
        (file, op, policy): (File, Op, Policy),
        memory: Memory,
        is_reserved: bool,
    ) -> std::result::Result<(), Memory> {
        let request = Request {
            target: None,
            op,
            file: Some(file),
            memory,
            policy,
            tag: Recipient::Request(ticket).tag(),
        };
        let submitted = match is_reserved {
            false => self.engine.submit(request),
            true => self.engine.submit_reserved(request),
        };
        match submitted {
            Ok(id) => {
                self.requests.transition(ticket, State::AtDevice(id));
                Ok(())
            }
            Err(back) => Err(back.memory),
        }
    }

    /// A request in hand, which waited, begins as if it had just come.
    pub(super) fn start_again(&mut self, ticket: Ticket, memory: Memory) {
        let Some(asked) = self.requests.asked(ticket) else {
            return;
        };
        let mut request = asked.with(memory);
        let owner = self.requests.owner(ticket).unwrap_or(Owner::Caller);
        let way = self.must_be_free(owner, &request);
        let way = way.and_then(|()| self.check(&mut request, Coming::Again));
        let mut way = way.map(|way| self.way_while_frozen(owner, &request, way));
        if matches!(way, Ok(Way::Cache)) {
            match self.object_asked(&request) {
                Ok(Some(object)) => return self.ask(ticket, &mut request, object, Coming::Again),
                Ok(None) => {}
                Err(error) => way = Err(error),
            }
        }
        let is_callers = !matches!(owner, Owner::Cache(_));
        let is_to_clear = asked.op.changes_bytes() && is_callers && !self.requests.is_reserved(ticket);
        if matches!(way, Ok(Way::Device(..))) && (asked.op.is_sync() && is_callers || is_to_clear) {
            if let Some(object) = self.object_known(asked.handle) {
                return self.ask(ticket, &mut request, object, Coming::Again);
            }
        }
        let memory = request.memory;
        self.requests.set_len(ticket, memory.len() as u64);
        match way {
            Ok(Way::Device(file, op, policy)) => {
                let is_reserved = !matches!(owner, Owner::Caller);
                if let Err(memory) = self.submit(ticket, (file, op, policy), memory, is_reserved) {
                    self.requests.put_off(ticket, memory);
                }
            }
            Ok(Way::Hold) => {
                let reserved = self.requests.take_reservation(ticket);
                self.hold_back(ticket, memory);
                self.give_back(reserved);
            }
            // What the cache does was given to it above.
            Ok(Way::Nothing | Way::Cache) => self.end_waiting(ticket, memory, |_, _| Ok(0)),
            Err(error) => self.end_waiting(ticket, memory, |_, _| Err(error)),
        }
    }

    /// A request in hand, which waited, ends without having begun.
    pub(super) fn end_waiting(
        &mut self,
        ticket: Ticket,
        memory: Memory,
        result: impl FnOnce(&Lane, &Asked) -> Result<u32>,
    ) {
        let Some(asked) = self.requests.asked(ticket) else {
            return;
        };
        let reserved = self.requests.take_reservation(ticket);
        let result = result(self, &asked);
        self.tell(Outcome::early(ticket, memory, result), None);
        self.give_back(reserved);
        self.handle_idle(asked.handle);
    }

    /// Tells a request's end to whose it is. `held` by the engine under this id, when the kernel still has its memory.
    pub(super) fn tell(&mut self, mut outcome: Outcome, held: Option<baio_engine::RequestId>) {
        let ticket = outcome.ticket;
        // Another sync of the file has failed since the fence was asked for: it may have been the report of what came before it, and
        // the engine knows only since when the fence's own sync was under way.
        if let (Ok(_), Some((asked, failures))) = (&outcome.result, self.requests.asked_of_fence(ticket)) {
            if let Some(errno) = self.file_of(asked.handle).and_then(|file| file.failed_since(failures)) {
                outcome.result = Err(self.explain(&asked, baio_engine::Error::Poisoned(errno)));
            }
        }
        match self.requests.owner(ticket) {
            Some(Owner::Caller) => self.fired.extend(self.requests.finish(outcome, held)),
            Some(Owner::Cache(io)) => {
                match held {
                    Some(id) => self.requests.transition(ticket, State::Left(id)),
                    None => self.requests.free(ticket),
                }
                self.io_ended(io, outcome, held.is_some());
            }
            Some(Owner::Log(io)) => {
                match held {
                    Some(id) => self.requests.transition(ticket, State::Left(id)),
                    None => self.requests.free(ticket),
                }
                self.log_io_ended(io, outcome);
            }
            None => {}
        }
    }

    /// The engine has completed a request, or has let go of one that was answered or given up before.
    pub(super) fn request_ended(&mut self, ticket: Ticket, completion: Completion) {
        let (Some(asked), Some(owner)) = (self.requests.asked(ticket), self.requests.owner(ticket)) else {
            return;
        };
        // The driver's own requests may have tags that look like ours.
        let is_its_own = match self.requests.state(ticket) {
            State::AtDevice(id) | State::Answered(id) | State::Left(id) => id == completion.id,
            _ => false,
        };
        if !is_its_own {
            return;
        }
        // Answered at its deadline, but the kernel still has its memory: the end is told by a `Released` notice.
        let is_held =
            completion.notice == Notice::Completed && completion.result == Err(baio_engine::Error::Indeterminate);
        let held = is_held.then_some(completion.id);
        // A log makes its file longer, too. The cache knows the size itself.
        if !is_held && !matches!(owner, Owner::Cache(_)) && asked.op.changes_bytes() {
            self.note_size(&asked, completion.result.ok());
        }
        let reserved = if is_held {
            None
        } else {
            self.requests.take_reservation(ticket)
        };
        match (self.requests.state(ticket), owner) {
            (State::AtDevice(_), _) => {
                let result = completion.result.map_err(|error| self.explain(&asked, error));
                let result = result.and_then(|done| self.must_be_whole(&asked, done));
                self.tell(Outcome::told(ticket, completion, result), held);
            }
            _ if is_held => {} // It was given up before this was read.
            (_, Owner::Caller | Owner::Log(_)) => self.requests.released(ticket),
            (_, Owner::Cache(io)) => {
                self.requests.released(ticket);
                self.io_released(io, completion.memory);
            }
        }
        if !is_held {
            self.give_back(reserved);
            self.left(&asked);
        }
    }

    /// A read in a segment that stops short has met the end of a device that shrank since the open: the engine takes that for
    /// the end of a file, but a segment ends where its inode says. What else is gone nobody knows, so the metadata is left as it is.
    /// A discard behind that end does nothing and says nothing, so the device is asked for its size.
    fn must_be_whole(&mut self, asked: &Asked, done: u32) -> Result<u32> {
        let (offset, is_short) = match asked.op {
            SegmentOp::Read { offset } => (offset, u64::from(done) < asked.len),
            SegmentOp::Discard { offset, .. } => (offset, false),
            _ => return Ok(done),
        };
        if !is_short && !asked.op.names_its_range() || self.objects.address(asked.handle).is_none() {
            return Ok(done);
        }
        let fault = self.ground.as_ref().and_then(|ground| ground.must_fit().err());
        if !is_short && fault.is_none() {
            return Ok(done);
        }
        self.to_table.push_back(ToTable::Shrunk);
        let name = self.objects.get(asked.handle).map(|object| object.name.clone());
        // A device of the right size that gives less than was asked for has failed as well.
        let fault = fault.unwrap_or_else(|| Fault::from(Errno::EIO));
        let stopped_at = offset.saturating_add(u64::from(done));
        Err(Error::new(asked.op.name(), name.unwrap_or_default(), fault).at(stopped_at))
    }

    /// The device is done with a request.
    fn left(&mut self, asked: &Asked) {
        if !self.holds.is_empty() {
            if let Some(place) = Touched::by(asked, &self.objects) {
                self.holds.ended(&place);
            }
        }
        self.handle_idle(asked.handle);
    }

    /// What the engine said of a request, in words of its segment or file.
    pub(super) fn explain(&self, asked: &Asked, error: baio_engine::Error) -> Error {
        match asked.op.offset() {
            Some(offset) => self.explain_fault(asked, in_segment(error, offset)),
            None => self.explain_fault(asked, error),
        }
    }

    pub(super) fn explain_fault(&self, asked: &Asked, fault: impl Into<Fault>) -> Error {
        let object = self.objects.get(asked.handle);
        let name = object.map_or("a closed handle", |object| &object.name);
        let error = Error::new(asked.op.name(), name, fault);
        match asked.op.offset() {
            Some(offset) => error.at(offset),
            None => error,
        }
    }
}

/// Memory of a request that is given back, as it came: a read across the end had cut it.
fn uncut(memory: &mut Memory, len: usize) {
    memory.show(len);
}

/// The engine names the offset on the device; the caller gave one in the segment.
fn in_segment(error: baio_engine::Error, offset: u64) -> baio_engine::Error {
    match error {
        baio_engine::Error::Misaligned {
            argument: argument @ Argument::Offset,
            need,
            ..
        } => baio_engine::Error::Misaligned {
            argument,
            value: offset,
            need,
        },
        error => error,
    }
}
