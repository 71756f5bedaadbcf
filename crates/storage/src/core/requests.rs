//! Requests on handles: checked, translated for the engine, and answered.

use std::ops::Range;
use std::task::{Poll, Waker};

use baio_engine::{
    Argument, Completion, Engine, Errno, File, Kind, Memory, Notice, Op, Policy, Request, RequestId, Wait,
};

use super::{Core, Owner, stale};
use crate::error::{Error, Fault, Result};
use crate::holds::{Parked, Touched};
use crate::identity::Access;
use crate::object::{ObjectState, Route, Target};
use crate::request::{Ended, Handle, Mode, Outcome, SegmentOp, SegmentRequest, Ticket};

impl Core {
    /// Queues a request; the next turn submits it. Whatever is wrong with it is told by its outcome.
    ///
    /// # Errors
    /// The request itself, when every slot is taken: take outcomes, turn, and try again.
    pub fn start(&mut self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        let request = match self.start_with_cache(request) {
            Ok(started) => return started,
            Err(request) => request,
        };
        if self.requests.is_full() {
            return Err(request);
        }
        self.start_direct(request, Engine::submit)
    }

    /// The same for the cache's own, which others wait for.
    pub(super) fn start_for_cache(&mut self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        self.start_direct(request, Engine::submit_reserved)
    }

    fn start_direct(
        &mut self,
        mut request: SegmentRequest,
        submit: fn(&mut Engine, Request) -> std::result::Result<RequestId, Request>,
    ) -> std::result::Result<Ticket, SegmentRequest> {
        let asked = request.memory.len();
        let prepared = self.prepare(&mut request, Coming::First);
        let Some(ticket) = self.requests.insert(&request) else {
            return Err(request);
        };
        let range = request.range();
        let engine_request = match for_engine(ticket, prepared, &mut request) {
            Ok(engine_request) => engine_request,
            Err(result) => {
                self.finish_early(ticket, request.memory, result);
                return Ok(ticket);
            }
        };
        let parked = engine_request.op == Op::Event;
        match submit(&mut self.engine, engine_request) {
            Ok(id) => {
                self.requests.set_engine_id(ticket, id);
                self.objects.begin(request.handle);
                if parked {
                    self.park(ticket, id, &request, range);
                }
                Ok(ticket)
            }
            Err(back) => {
                self.requests.take_back(ticket);
                request.memory = back.memory;
                if let Memory::Own(buffer) = &mut request.memory {
                    buffer.set_len(asked); // A read across the end had cut it.
                }
                Err(request)
            }
        }
    }

    fn park(&mut self, ticket: Ticket, event: RequestId, request: &SegmentRequest, range: Range<u64>) {
        self.requests.set_parked(ticket, true);
        self.holds.park(Parked::new(ticket, event, request, range));
    }

    /// What a parked request waited for has happened, or it has been given up.
    fn parked_ended(&mut self, ticket: Ticket, ended: &Ended, completion: Completion) {
        let parked = self.holds.take(ticket);
        if completion.notice == Notice::Released {
            self.requests.released(ticket);
            self.left_cache(ticket);
            return self.handle_idle(ended.handle);
        }
        self.requests.left_engine(ticket);
        let woken = match (completion.result, parked) {
            (Err(error), _) => Err(self.explain(ended.handle, ended.op, error)),
            (Ok(_), Some(parked)) if !parked.cancelled => Ok(parked),
            _ => Err(self.explain(ended.handle, ended.op, baio_engine::Error::Cancelled)),
        };
        let going_on = match woken {
            Ok(parked) if !ended.abandoned => self.start_again(ticket, ended, &parked, completion.memory),
            Ok(_) => Some((completion.memory, Ok(0))), // Nobody will take the outcome.
            Err(error) => Some((completion.memory, Err(error))),
        };
        if let Some((memory, result)) = going_on {
            self.finish_early(ticket, memory, result);
            self.io_may_have_ended(ticket);
            self.left_cache(ticket);
            self.handle_idle(ended.handle);
        }
    }

    /// A request that was parked begins as if it had just come. Gives its outcome if it has one at once.
    pub(super) fn start_again(
        &mut self,
        ticket: Ticket,
        ended: &Ended,
        parked: &Parked,
        memory: Memory,
    ) -> Option<(Memory, Result<u32>)> {
        let mut request = SegmentRequest {
            mode: parked.mode,
            durability: parked.durability,
            deadline: parked.deadline,
            ..SegmentRequest::new(ended.handle, ended.op, memory)
        };
        let prepared = self.prepare(&mut request, Coming::Again);
        let range = request.range();
        let engine_request = match for_engine(ticket, prepared, &mut request) {
            Ok(engine_request) => engine_request,
            Err(result) => return Some((request.memory, result)),
        };
        let parks = engine_request.op == Op::Event;
        // It gave a slot back when it was woken, so this takes none that it did not have.
        match self.engine.submit_reserved(engine_request) {
            Ok(id) => {
                self.requests.start_again(ticket, id, range.clone());
                if parks {
                    self.park(ticket, id, &request, range);
                }
                None
            }
            Err(back) => {
                let error = self.explain(ended.handle, ended.op, baio_engine::Error::Full);
                Some((back.memory, Err(error)))
            }
        }
    }

    /// The outcome of a request that never reached the engine.
    pub(super) fn finish_early(&mut self, ticket: Ticket, memory: Memory, result: Result<u32>) {
        let completion = Completion {
            accepted: None,
            id: RequestId::default(),
            tag: 0,
            notice: Notice::Completed,
            result: Ok(0),
            bytes_done: 0,
            memory,
            took: baio_engine::Caching::Direct,
            iterations: 0,
        };
        self.fired.extend(self.requests.finish(ticket, completion, result));
    }

    /// Checks a request against its object and translates it for the engine.
    pub(super) fn prepare(&self, request: &mut SegmentRequest, coming: Coming) -> Result<Prepared> {
        let operation = request.op.name();
        let object = self.objects.get(request.handle).ok_or_else(|| stale(operation))?;
        let offset = offset_of(request.op);
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
        let caching = self.caching_for(object, request).map_err(fail)?;
        let policy = Policy {
            caching,
            durability: request.durability,
            deadline: request.deadline,
            ..Policy::default()
        };
        match &object.target {
            Some(Target::Plain(file)) => {
                let op = match request.op {
                    SegmentOp::Read { offset } => Op::Read {
                        offset: position(file, offset),
                    },
                    SegmentOp::Write { offset } => Op::Write {
                        offset: position(file, offset),
                    },
                    SegmentOp::Sync => Op::Sync,
                };
                Ok(Prepared::Submit(file.clone(), op, policy))
            }
            Some(Target::Segment {
                address,
                start,
                size,
                moving,
            }) => {
                let volume = self.volume_or(operation)?;
                if !within(request, *size).map_err(fail)? {
                    return Ok(Prepared::Nothing);
                }
                if request.mode == Mode::Cached {
                    return Ok(Prepared::Cached);
                }
                if !self.holds.is_empty() && self.holds.touch(&Touched::of(*address, request)) {
                    return Ok(Prepared::Park);
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
                Ok(Prepared::Submit(
                    volume.device.file.clone(),
                    on_device(request.op, start),
                    policy,
                ))
            }
            None => Err(fail(Fault::Stale)),
        }
    }

    fn caching_for(
        &self,
        object: &crate::object::Object,
        request: &SegmentRequest,
    ) -> std::result::Result<baio_engine::Caching, Fault> {
        let volume = self
            .volume
            .as_ref()
            .map_or(baio_engine::Caching::Direct, |volume| volume.device.caching);
        if request.op == SegmentOp::Sync {
            return Ok(volume); // A sync covers the file, whatever cache its writes went through.
        }
        let writes = matches!(request.op, SegmentOp::Write { .. });
        if writes && object.access == Access::Read {
            return Err(Fault::ReadOnly);
        }
        object.route(request.mode, volume)
    }

    pub(super) fn request_ended(&mut self, ticket: Ticket, completion: Completion) {
        let Some(ended) = self.requests.ended(ticket) else {
            return;
        };
        if ended.parked {
            return self.parked_ended(ticket, &ended, completion);
        }
        if completion.notice == Notice::Released {
            self.requests.released(ticket);
            if self.cached.is_some() {
                self.io_released(ticket, completion.memory);
                self.left_cache(ticket);
            }
            return self.left(&ended);
        }
        // Answered at its deadline, but the kernel still has its memory: the end is told by a `Released` notice.
        let still_runs = completion.result == Err(baio_engine::Error::Indeterminate);
        let result = completion
            .result
            .map_err(|error| self.explain(ended.handle, ended.op, error))
            .and_then(|done| self.must_be_whole(&ended, done));
        if !still_runs {
            self.requests.left_engine(ticket);
        }
        self.fired.extend(self.requests.finish(ticket, completion, result));
        if self.cached.is_some() {
            self.io_may_have_ended(ticket);
        }
        if !still_runs {
            if self.cached.is_some() {
                self.left_cache(ticket);
            }
            self.left(&ended);
        }
    }

    /// A read in a segment that stops short has met the end of a device that shrank since the open: the engine takes that for
    /// the end of a file, but a segment ends where its inode says. What else is gone nobody knows, so the metadata is left as it is.
    fn must_be_whole(&mut self, ended: &Ended, done: u32) -> Result<u32> {
        let SegmentOp::Read { offset } = ended.op else {
            return Ok(done);
        };
        if u64::from(done) >= ended.range.end.saturating_sub(ended.range.start)
            || self.objects.address(ended.handle).is_none()
        {
            return Ok(done);
        }
        let name = self.objects.get(ended.handle).map(|object| object.name.clone());
        let fault = match &mut self.volume {
            Some(volume) => {
                volume.latch();
                volume.must_fit().err()
            }
            None => None,
        };
        // A device of the right size that gives less than was asked for has failed as well.
        let fault = fault.unwrap_or_else(|| Fault::from(Errno::EIO));
        let stopped_at = offset.saturating_add(u64::from(done));
        Err(Error::new(ended.op.name(), name.unwrap_or_default(), fault).at(stopped_at))
    }

    /// The device is done with a request.
    fn left(&mut self, ended: &Ended) {
        if !self.holds.is_empty()
            && let Some(address) = self.objects.address(ended.handle)
        {
            let range = ended.range.clone();
            self.holds.ended(&Touched { address, range });
        }
        self.handle_idle(ended.handle);
    }

    fn explain(&self, handle: Handle, op: SegmentOp, error: baio_engine::Error) -> Error {
        let name = self
            .objects
            .get(handle)
            .map_or("a closed handle", |object| &object.name);
        match offset_of(op) {
            Some(offset) => Error::new(op.name(), name, in_segment(error, offset)).at(offset),
            None => Error::new(op.name(), name, error),
        }
    }

    /// Takes the outcome of a request if it has ended; else remembers whom to wake, and keeps the outcome for it. `None` for a
    /// ticket that is not valid any more.
    pub fn poll(&mut self, ticket: Ticket, waker: Option<Waker>) -> Poll<Option<Outcome>> {
        self.requests.poll(ticket, waker)
    }

    /// Takes the next outcome in the order of completion, of requests that nobody polls for with a waker.
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.requests.next_finished()
    }

    /// Turns the core until the request has ended. `None` for a ticket that is not valid any more.
    ///
    /// # Errors
    /// The backend itself is broken.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Option<Outcome>> {
        loop {
            if let Poll::Ready(outcome) = self.requests.poll(ticket, None) {
                return Ok(outcome);
            }
            self.turn(Wait::one())?;
        }
    }

    /// Nobody will take the outcome. What has not begun does not, a cached write may have been done in part. The request's memory
    /// returns to the arena when the kernel has let go of it.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let Some(pin) = self.requests.take_pin(ticket) {
            self.unpin(pin);
        }
        match self.requests.abandon(ticket) {
            Some(id) => self.engine.abandon(id),
            // It would wait on there, with its memory and its slot, for what may never come.
            None if crate::seeded_bug("who-was-abandoned-is-on-the-device") => {}
            None => self.cancel_in_cache(ticket),
        }
    }

    /// Asks that a request end early.
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(id) = self.requests.engine_id(ticket) {
            self.engine.cancel(id);
            self.holds.cancel(ticket);
        } else {
            self.cancel_in_cache(ticket);
        }
    }
}

/// Whether a request comes from its caller or has waited for a hold since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    First,
    /// Its handle may have been closed meanwhile: it is under way, and ends.
    Again,
}

/// What a checked request becomes.
pub(super) enum Prepared {
    Submit(File, Op, Policy),
    /// An operation holds a range that it touches.
    Park,
    /// The cache is asked, and what it asks in turn is prepared by itself.
    Cached,
    /// A read at the end: there is nothing to read.
    Nothing,
}

/// A checked request as the engine takes it, with its memory; or its outcome, if it has one without the engine.
fn for_engine(
    ticket: Ticket,
    prepared: Result<Prepared>,
    request: &mut SegmentRequest,
) -> std::result::Result<Request, Result<u32>> {
    let (file, op, policy) = match prepared {
        Ok(Prepared::Submit(file, op, policy)) => (Some(file), op, policy),
        Ok(Prepared::Park) => {
            let deadline = request.deadline;
            let policy = Policy {
                deadline,
                ..Policy::direct()
            };
            (None, Op::Event, policy)
        }
        // Only the cache prepares such a one, and does not come here with it.
        Ok(Prepared::Cached) => return Err(Err(Error::new("start", "a cached request", Fault::NoCache))),
        Ok(Prepared::Nothing) => return Err(Ok(0)),
        Err(error) => return Err(Err(error)),
    };
    Ok(Request {
        target: None,
        op,
        file,
        memory: std::mem::take(&mut request.memory),
        policy,
        tag: Owner::Request(ticket).tag(),
    })
}

/// Does a range lie in a segment of this size, and is there anything to do? Reads are cut at the end of the segment, as at
/// the end of a device; writes that cross it are refused whole.
fn within(request: &mut SegmentRequest, size: u64) -> std::result::Result<bool, Fault> {
    let len = request.memory.len() as u64;
    match request.op {
        SegmentOp::Sync => Ok(true),
        SegmentOp::Write { offset } => {
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

/// What a request on a segment is on the device, where the segment begins at `start`. It was found to lie inside.
fn on_device(op: SegmentOp, start: u64) -> Op {
    match op {
        SegmentOp::Read { offset } => Op::Read {
            offset: Some(start + offset),
        },
        SegmentOp::Write { offset } => Op::Write {
            offset: Some(start + offset),
        },
        SegmentOp::Sync => Op::Sync,
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

/// Streams have no offsets.
fn position(file: &File, offset: u64) -> Option<u64> {
    (file.kind() != Kind::Stream).then_some(offset)
}

fn offset_of(op: SegmentOp) -> Option<u64> {
    match op {
        SegmentOp::Read { offset } | SegmentOp::Write { offset } => Some(offset),
        SegmentOp::Sync => None,
    }
}
