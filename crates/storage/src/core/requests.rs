//! Requests on handles: checked, sent on their way, and answered.

use std::task::{Poll, Waker};

use baio_engine::{Argument, Completion, Errno, File, Kind, Memory, Notice, Op, Policy, Request, Space};

use super::lane::Lane;
use super::lane::cached::whole_sectors;
use super::tags::Recipient;
use super::{Core, no_volume, stale};
use crate::cache::ObjectId;
use crate::crossing::ToTable;
use crate::error::{Error, Fault, Result};
use crate::holds::Touched;
use crate::identity::Access;
use crate::object::{ObjectState, Route, Target};
use crate::request::{Asked, Handle, Mode, Outcome, Owner, SegmentOp, SegmentRequest, State, Ticket};

impl Core {
    /// Queues a request; the next turn submits it. Its outcome reports whatever is wrong with it.
    ///
    /// # Errors
    /// The request itself, when every slot is taken: take outcomes, turn, and try again.
    pub fn start(&mut self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        if self.lane.requests.is_full() {
            return Err(request);
        }
        self.lane.enter(Owner::Caller, request)
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
}

impl Lane {
    /// Takes a request into the table and sends it on its way: to the cache, to the engine, or behind a hold.
    pub(super) fn enter(
        &mut self,
        owner: Owner,
        mut request: SegmentRequest,
    ) -> std::result::Result<Ticket, SegmentRequest> {
        let (handle, asked) = (request.handle, request.memory.len());
        let way = self.must_be_free(owner, &request);
        let way = way.and_then(|()| self.check(&mut request, Coming::First));
        let way = way.map(|way| self.way_while_frozen(owner, &request, way));
        let way = way.and_then(|way| Ok((self.whom_to_ask(owner, &way, &request)?, way)));
        let Some(ticket) = self.requests.insert(owner, &request) else {
            return Err(uncut(request, asked));
        };
        let follows = way.is_ok() && self.stand_in_line(owner, ticket, &request);
        let has_status = request.status.is_some();
        if has_status && (follows || !matches!(way, Ok((None, Way::Device(..))))) {
            self.requests.begin_status(ticket);
        }
        match way {
            Ok(_) if follows => {
                self.objects.begin(handle);
                self.requests.keep(ticket, State::BehindWrites, request.memory);
                self.requests.watch(ticket);
            }
            Ok((None, Way::Device(file, op, policy))) => {
                let memory = std::mem::take(&mut request.memory);
                let is_reserved = !matches!(owner, Owner::Caller);
                if let Err(memory) = self.submit(ticket, (file, op, policy), memory, is_reserved) {
                    self.requests.free(ticket);
                    request.memory = memory;
                    return Err(uncut(request, asked));
                }
                if has_status {
                    self.requests.begin_status(ticket); // Not of one that goes back.
                }
                self.objects.begin(handle);
            }
            Ok((Some(object), _)) => self.ask(ticket, request, object, Coming::First),
            Ok((None, Way::Hold)) => {
                self.objects.begin(handle);
                self.hold_back(ticket, request.memory);
                self.requests.watch(ticket);
            }
            Ok((None, Way::Nothing | Way::Cache)) => self.tell(Outcome::early(ticket, request.memory, Ok(0)), None),
            Err(error) => self.tell(Outcome::early(ticket, request.memory, Err(error)), None),
        }
        Ok(ticket)
    }

    /// The cache's object, if the cache is asked first: to do it, or to make way for it. Its own are asked of nobody.
    fn whom_to_ask(&mut self, owner: Owner, way: &Way, request: &SegmentRequest) -> Result<Option<ObjectId>> {
        match (owner, way) {
            (Owner::Cache(_), _) | (_, Way::Nothing) => Ok(None),
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
                Ok(Some(object)) => return self.ask(ticket, request, object, Coming::Again),
                Ok(None) => {}
                Err(error) => way = Err(error),
            }
        }
        let is_callers = !matches!(owner, Owner::Cache(_));
        let is_to_clear = asked.op.changes_bytes() && is_callers && !self.requests.is_reserved(ticket);
        if matches!(way, Ok(Way::Device(..))) && (asked.op.is_sync() && is_callers || is_to_clear) {
            if let Some(object) = self.object_known(asked.handle) {
                return self.ask(ticket, request, object, Coming::Again);
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

    /// Checks a request against its object and translates it for the engine.
    pub(super) fn check(&self, request: &mut SegmentRequest, coming: Coming) -> Result<Way> {
        let operation = request.op.name();
        let object = self.objects.get(request.handle).ok_or_else(|| stale(operation))?;
        let offset = request.op.offset();
        let fail = |fault: Fault| {
            let error = Error::new(operation, &object.name, fault);
            match offset {
                Some(offset) => error.at(offset),
                None => error,
            }
        };
        let closed_since = coming == Coming::Again && object.state == ObjectState::Closed;
        if object.state != ObjectState::Open && !closed_since {
            return Err(fail(Fault::Stale));
        }
        if request.op.is_of_size() && !object.is_file() {
            return Err(fail(Fault::NotAFile));
        }
        let caching = self.caching_for(object, request).map_err(fail)?;
        let policy = Policy {
            caching,
            durability: request.durability,
            deadline: request.deadline,
            ..Policy::default()
        };
        match &object.target {
            // What is in the cache is not looked for in the file.
            Target::Plain(file) if goes_through_cache(request) => {
                let end = request.range().end;
                if request.op.changes_bytes() && !file.may_end_at(end) {
                    return Err(fail(Errno::EFBIG.into())); // Its page could never be written.
                }
                if request.op.changes_bytes() && !file.gives(baio_engine::Caching::Kernel) {
                    let size = self.plain_size(request.handle, file);
                    let size = size.map_err(|errno| fail(errno.into()))?;
                    whole_sectors(file, if end > size { end } else { 0 }).map_err(fail)?;
                }
                Ok(Way::Cache)
            }
            Target::Plain(file) => {
                if request.mode == Mode::Cached && request.op.names_its_range() && !request.op.is_of_size() {
                    // Through the cache only writes make a file longer.
                    let size = self.plain_size(request.handle, file);
                    let size = size.map_err(|errno| fail(errno.into()))?;
                    within(request, size).map_err(fail)?;
                }
                if !has_space(request, file, caching).map_err(fail)? {
                    return Ok(Way::Nothing);
                }
                let op = on_file(request.op, file, 0);
                Ok(Way::Device(file.clone(), op, policy))
            }
            Target::Segment {
                address,
                start,
                size,
                moving,
                ..
            } => {
                let ground = self.ground.as_ref().ok_or_else(|| no_volume(operation))?;
                if !within(request, *size).map_err(fail)? {
                    return Ok(Way::Nothing);
                }
                if goes_through_cache(request) {
                    return Ok(Way::Cache);
                }
                let file = &ground.file;
                if !has_space(request, file, caching).map_err(fail)? {
                    return Ok(Way::Nothing);
                }
                if !self.holds.is_empty() && self.holds.touch(&Touched::of(*address, request)) {
                    return Ok(Way::Hold);
                }
                let start = match moving {
                    None => *start,
                    Some(moving) => match moving.route(*start, &request.range()) {
                        Route::At(start) => start,
                        // While the move runs the block at the mark is held, so it has stopped.
                        Route::Across => return Err(fail(Fault::MoveStopped { mark: moving.mark })),
                        Route::Unknown => return Err(fail(Fault::Latched)),
                    },
                };
                Ok(Way::Device(file.clone(), on_file(request.op, file, start), policy))
            }
        }
    }

    fn caching_for(
        &self,
        object: &crate::object::Object,
        request: &SegmentRequest,
    ) -> std::result::Result<baio_engine::Caching, Fault> {
        let ground = self.ground.as_ref();
        let volume = ground.map_or(baio_engine::Caching::Direct, |ground| ground.caching);
        if request.op.is_sync() {
            return Ok(volume); // A sync covers the file, whatever cache its writes went through.
        }
        if request.op.changes_bytes() && object.access == Access::Read {
            return Err(Fault::ReadOnly);
        }
        object.route(request.mode, volume)
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
        if !is_held && matches!(owner, Owner::Caller) && asked.op.changes_bytes() {
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

/// Whether a request comes from its caller, or has waited here since and counts as under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    First,
    /// Its handle may have been closed meanwhile: it is under way, and ends.
    Again,
}

/// Where a checked request goes.
pub(super) enum Way {
    Device(File, Op, Policy),
    /// An operation holds a range that it touches.
    Hold,
    /// To the cache, which asks for what it needs by requests of its own.
    Cache,
    /// A read at the end, or a range of no bytes: there is nothing to do.
    Nothing,
}

/// A request that is given back, as it came: a read across the end had cut it.
fn uncut(mut request: SegmentRequest, len: usize) -> SegmentRequest {
    if let Memory::Own(buffer) = &mut request.memory {
        buffer.set_len(len);
    }
    request
}

/// Is it the page cache that moves its bytes? What moves none goes beside it, when the range has been cleared.
fn goes_through_cache(request: &SegmentRequest) -> bool {
    request.mode == Mode::Cached && matches!(request.op, SegmentOp::Read { .. } | SegmentOp::Write { .. })
}

/// May the space of the range be changed, if that is what is asked, and is there any? Aligned as a direct write, also of what is
/// cached: the device is asked for it in both cases, and what is no whole sector would have to be written.
fn has_space(request: &SegmentRequest, file: &File, caching: baio_engine::Caching) -> std::result::Result<bool, Fault> {
    match request.op {
        SegmentOp::Discard { offset, len } | SegmentOp::Zero { offset, len } => {
            file.check_space(caching, offset, len)?;
            Ok(len > 0)
        }
        // No byte changes, so none has to be aligned.
        SegmentOp::Allocate { len, .. } => Ok(len > 0),
        _ => Ok(true),
    }
}

/// Does a range lie in a segment of this size, and is there anything to do? Reads are cut at the end of the segment, as at
/// the end of a device; what changes bytes and crosses it is refused whole.
fn within(request: &mut SegmentRequest, size: u64) -> std::result::Result<bool, Fault> {
    let len = request.op.bytes(request.memory.len() as u64);
    match request.op {
        SegmentOp::Sync | SegmentOp::Fence | SegmentOp::Truncate { .. } | SegmentOp::Allocate { .. } => Ok(true),
        SegmentOp::Write { offset } | SegmentOp::Discard { offset, .. } | SegmentOp::Zero { offset, .. } => {
            if offset.checked_add(len).is_none_or(|end| end > size) {
                return Err(Fault::Beyond { len, size, write: true });
            }
            Ok(true)
        }
        SegmentOp::Read { offset } if offset >= size => Ok(false),
        SegmentOp::Read { offset } => {
            let left = size - offset;
            if len > left {
                match &mut request.memory {
                    Memory::Own(buffer) => buffer.set_len(left as usize),
                    Memory::Span(span) => span.cut(left as usize),
                    _ => {
                        return Err(Fault::Beyond {
                            len,
                            size,
                            write: false,
                        });
                    }
                }
            }
            Ok(true)
        }
    }
}

/// What a request is for the engine, on the file where its object begins at byte `start`. It was found to lie inside.
fn on_file(op: SegmentOp, file: &File, start: u64) -> Op {
    // Streams have no offsets.
    let position = |offset| (file.kind() != Kind::Stream).then(|| start + offset);
    match op {
        SegmentOp::Read { offset } => Op::Read {
            offset: position(offset),
        },
        SegmentOp::Write { offset } => Op::Write {
            offset: position(offset),
        },
        // A fence comes here when the writes before it are over.
        SegmentOp::Sync | SegmentOp::Fence => Op::Sync,
        SegmentOp::Discard { offset, len } => Op::Allocate {
            offset: start + offset,
            len,
            space: Space::Discard,
        },
        SegmentOp::Zero { offset, len } => Op::Allocate {
            offset: start + offset,
            len,
            space: Space::Zero,
        },
        SegmentOp::Truncate { len } => Op::Truncate { len },
        SegmentOp::Allocate { offset, len } => Op::Allocate {
            offset: start + offset,
            len,
            space: Space::Reserve,
        },
    }
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
