//! Callers' requests: through the cache, or beside it on what is cached.
//!
//! A cached request's memory is only ever copied from or to, here: so at its deadline it is answered at once, with its memory,
//! as `Indeterminate` (a write may have been done in part, and its pages may be written later). The exception is a cold read that
//! bypasses the frames: while the device has its memory, it is answered without, as a direct request. A direct request that still waits
//! for the cache has touched nothing and is answered as cancelled, as one that waits for a hold.
//!
//! A deadline is an event of the engine that nobody signals: the engine sleeps no longer than to it, and tells when it is over.

use baio_engine::{Caching, Completion, Durability, Memory, Notice, Op, Policy, Request, RequestId, Time, Wait};

use super::{NOBODY, OPERATION, PageCache, Role, owner_of, ticket_of, whole};
use crate::cache::eviction::Hint;
use crate::cache::{self, CacheDone, CacheError, CacheOp, CacheRequest, ObjectId};
use crate::core::requests::{Coming, Prepared};
use crate::core::{Core, Owner};
use crate::error::{Error, Fault};
use crate::holds::Parked;
use crate::object::Target;
use crate::operation::Event;
use crate::request::{Ended, Mode, SegmentOp, SegmentRequest, Ticket};

/// Bytes of requests that are gathered before the device is given its part at the latest.
const BATCH_BYTES: u64 = 256 << 10;

/// A durable write of so many bytes goes out alone: its copy takes as long as the device takes for it.
const LONE_BYTES: u64 = 64 << 10;

/// What [`Core::start`] gives.
type Started = std::result::Result<Ticket, SegmentRequest>;

/// A request that the cache has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    id: cache::RequestId,
    /// The engine's event that ends at its deadline.
    deadline: Option<RequestId>,
    /// That has happened.
    is_overdue: bool,
}

/// A direct request that waits for the cache.
#[derive(Debug)]
pub(super) struct Waiting {
    object: ObjectId,
    asked: Asked,
    parked: Parked,
    memory: Memory,
}

impl PageCache {
    /// The request of this ticket that has not ended in the cache.
    fn asked(&mut self, ticket: Ticket) -> Option<&mut Asked> {
        match self.known_role(ticket)? {
            Role::Request(asked) => Some(asked),
            Role::Waits(waiting) => Some(&mut waiting.asked),
            _ => None,
        }
    }

    pub(super) fn progress(&mut self, ticket: Ticket) -> Option<u64> {
        match *self.known_role(ticket)? {
            Role::Request(asked) => self.cache.progress(asked.id),
            _ => None,
        }
    }
}

impl Core {
    /// Starts a request that goes through the cache, or beside it on what is cached. Gives back what is neither.
    pub(in crate::core) fn start_with_cache(
        &mut self,
        request: SegmentRequest,
    ) -> std::result::Result<Started, SegmentRequest> {
        if request.mode != Mode::Cached {
            let Some(cached) = &mut self.cached else {
                return Err(request);
            };
            let Some(object) = cached.object_of(&self.objects, request.handle) else {
                return Err(request);
            };
            return Ok(self.start_on_cache(request, Some(object)));
        }
        let writes = matches!(request.op, SegmentOp::Write { .. });
        let cached = self.cached.as_mut();
        let object = cached.and_then(|cached| cached.object_for_mode(&self.objects, request.handle, writes));
        Ok(self.start_on_cache(request, object))
    }

    /// Gives a request to the cache: to be done there, or to make way for it.
    fn start_on_cache(&mut self, mut request: SegmentRequest, object: Option<ObjectId>) -> Started {
        if self.requests.is_full() {
            return Err(request);
        }
        let asked_len = request.memory.len();
        let object = match (self.prepare(&mut request, Coming::First), object) {
            (Ok(Prepared::Nothing), _) => Ok(None),
            (Ok(_), Some(object)) => Ok(Some(object)),
            (Ok(_), None) => self.object_for(&request).map(Some),
            (Err(error), _) => Err(error),
        };
        let Some(ticket) = self.requests.insert(&request) else {
            return Err(request);
        };
        let object = match object {
            Ok(Some(object)) => object,
            early => {
                self.finish_early(ticket, request.memory, early.map(|_| 0));
                return Ok(ticket);
            }
        };
        let Ok(deadline) = self.deadline_of(ticket, request.deadline) else {
            self.requests.take_back(ticket);
            if let Memory::Own(buffer) = &mut request.memory {
                buffer.set_len(asked_len); // A read across the end had cut it.
            }
            return Err(request);
        };
        self.objects.begin(request.handle);
        self.ask(ticket, request, object, deadline);
        Ok(ticket)
    }

    fn ask(&mut self, ticket: Ticket, mut request: SegmentRequest, object: ObjectId, deadline: Option<RequestId>) {
        let is_cached = request.mode == Mode::Cached;
        if is_cached && matches!(request.op, SegmentOp::Write { .. }) {
            self.date_change();
        }
        let Some(cached) = &mut self.cached else { return };
        let range = request.range();
        let (start, end) = (range.start, range.end);
        let (op, waits) = match request.op {
            SegmentOp::Sync => (whole(request.durability), false),
            SegmentOp::Read { offset } if is_cached => (CacheOp::Read { offset }, false),
            SegmentOp::Write { offset } if is_cached => {
                let durability = request.durability;
                (CacheOp::Write { offset, durability }, false)
            }
            SegmentOp::Read { .. } => (CacheOp::WriteOut { start, end }, true),
            SegmentOp::Write { .. } => (CacheOp::Reserve { start, end }, true),
        };
        let mut memory = std::mem::take(&mut request.memory);
        let given = if waits {
            Memory::None
        } else {
            std::mem::take(&mut memory)
        };
        let to_do = CacheRequest {
            object,
            op,
            memory: given,
            hint: Hint::Normal,
        };
        let asked = Asked {
            id: cached.cache.start(owner_of(ticket), to_do),
            deadline,
            is_overdue: false,
        };
        *cached.role(ticket) = if waits {
            Role::Waits(Box::new(Waiting {
                object,
                asked,
                parked: Parked::new(ticket, RequestId::default(), &request, range),
                memory,
            }))
        } else {
            Role::Request(asked)
        };
        // What it wants of the device waits for the turn, so that what is asked for together is read and written together; but
        // the device is not kept waiting while the bytes of many requests are copied.
        let bypasses = self.start_bypasses();
        let Some(cached) = &mut self.cached else { return };
        cached.is_served = false;
        cached.gathered += if bypasses { 0 } else { end - start };
        let is_durable = request.durability != Durability::None && request.op != SegmentOp::Sync;
        let is_lone = is_durable && end - start >= LONE_BYTES;
        if is_lone || cached.gathered >= BATCH_BYTES {
            self.serve_cache();
            // An error of the backend is told by the next turn as well.
            let _ = self.engine.turn(Wait::No);
        } else {
            self.take_done();
        }
    }

    /// An event that ends when the request's time is over; an error when the engine has no room for it.
    fn deadline_of(&mut self, ticket: Ticket, at: Option<Time>) -> std::result::Result<Option<RequestId>, ()> {
        if at.is_none() {
            return Ok(None);
        }
        let policy = Policy {
            deadline: at,
            ..Policy::direct()
        };
        let event = Request::bare(Op::Event, None, policy).tagged(Owner::Deadline(ticket).tag());
        self.engine.submit(event).map(Some).map_err(drop)
    }

    /// A deadline is over, or its event has ended because the request has.
    pub(in crate::core) fn deadline_over(&mut self, ticket: Ticket) {
        let Some(cached) = &mut self.cached else { return };
        if let Some(asked) = cached.asked(ticket) {
            asked.deadline = None;
            asked.is_overdue = true;
            let id = asked.id;
            cached.cache.cancel(id);
            self.serve_cache();
        }
    }

    /// Tells what has ended in the cache.
    pub(in crate::core) fn take_done(&mut self) {
        while let Some(done) = self.cached.as_mut().and_then(|cached| cached.cache.next_done()) {
            self.cache_done(done);
        }
    }

    /// Something has ended in the cache: a request, or the waiting of one.
    fn cache_done(&mut self, done: CacheDone) {
        let Some(cached) = &mut self.cached else { return };
        cached.told += 1;
        if done.owner == NOBODY {
            // A direct write may have ended before the range was its own: nothing has failed by that.
            let failed = done.result.err().filter(|error| *error != CacheError::Cancelled);
            cached.failed = cached.failed.or(failed);
            return;
        }
        if done.owner & OPERATION != 0 {
            let uncached = done.result.map(drop).map_err(Fault::Cache);
            return self.step(done.owner as u32, Event::Uncached(uncached));
        }
        let ticket = ticket_of(done.owner);
        let role = std::mem::take(cached.role(ticket));
        let (asked, waiting) = match role {
            Role::Request(asked) => (asked, None),
            Role::Waits(waiting) => (waiting.asked, Some(waiting)),
            _ => return, // Nothing else is asked for a ticket.
        };
        if let Some(event) = asked.deadline {
            self.engine.cancel(event);
        }
        let Some(ended) = self.requests.ended(ticket) else {
            return;
        };
        // What only waits for the cache has done nothing yet.
        let is_overdue = asked.is_overdue && waiting.is_none();
        let memory = match (waiting, done.result) {
            (Some(waiting), Ok(_)) => return self.granted(ticket, &ended, *waiting),
            (Some(waiting), Err(_)) => waiting.memory,
            (None, _) => done.memory,
        };
        let result = done.result.map_err(|error| match error {
            CacheError::Cancelled if is_overdue => {
                self.explain_cached(&ended, Fault::Io(baio_engine::Error::Indeterminate))
            }
            error => self.cache_failed(&ended, error, memory.len() as u64),
        });
        let completion = Completion {
            accepted: None,
            id: RequestId::default(),
            tag: 0,
            notice: Notice::Completed,
            result: Ok(0),
            bytes_done: done.bytes_done,
            memory,
            took: Caching::Direct,
            iterations: u16::try_from(done.iterations).unwrap_or(u16::MAX),
        };
        self.fired.extend(self.requests.finish(ticket, completion, result));
        if let Some(pin) = done.pin {
            self.hand_over(ticket, ended.handle, pin);
        }
        self.handle_idle(ended.handle);
    }

    /// Starts a request of the buffer pool in the cache.
    pub(in crate::core) fn start_in_cache(&mut self, ticket: Ticket, request: CacheRequest) {
        let Some(cached) = &mut self.cached else { return };
        let asked = Asked {
            id: cached.cache.start(owner_of(ticket), request),
            deadline: None,
            is_overdue: false,
        };
        *cached.role(ticket) = Role::Request(asked);
        cached.is_served = false;
        self.take_done();
    }

    /// The cache has made way for a direct request.
    fn granted(&mut self, ticket: Ticket, ended: &Ended, waiting: Waiting) {
        let Waiting {
            object,
            asked,
            parked,
            memory,
        } = waiting;
        if matches!(ended.op, SegmentOp::Write { .. })
            && let Some(cached) = &mut self.cached
        {
            *cached.role(ticket) = Role::Reserved(object, asked.id);
        }
        let going_on = if ended.abandoned {
            Some((memory, Ok(0))) // Nobody will take the outcome.
        } else {
            self.start_again(ticket, ended, &parked, memory)
        };
        if let Some((memory, result)) = going_on {
            self.finish_early(ticket, memory, result);
            self.left_cache(ticket);
            self.handle_idle(ended.handle);
        }
    }

    /// A direct request has ended: its range is the cache's again.
    pub(in crate::core) fn left_cache(&mut self, ticket: Ticket) {
        let Some(cached) = &mut self.cached else { return };
        if let Role::Reserved(object, id) = *cached.role(ticket) {
            *cached.role(ticket) = Role::None;
            cached.cache.release(object, id);
            cached.is_served = false;
        }
    }

    fn cache_failed(&self, ended: &Ended, error: CacheError, len: u64) -> Error {
        let fault = match error {
            CacheError::System(errno) => Fault::Io(baio_engine::Error::System(errno)),
            CacheError::Cancelled => Fault::Io(baio_engine::Error::Cancelled),
            // Its segment is being deleted.
            CacheError::NoObject => Fault::Stale,
            CacheError::PastEnd => Fault::Beyond {
                len,
                size: self.size_now(ended),
                write: true,
            },
            error => Fault::Cache(error),
        };
        self.explain_cached(ended, fault)
    }

    fn size_now(&self, ended: &Ended) -> u64 {
        let object = self.objects.get(ended.handle);
        match object.and_then(|object| object.target.as_ref()) {
            Some(Target::Plain(file)) => file.size().unwrap_or_default(),
            Some(Target::Segment { size, .. }) => *size,
            None => 0,
        }
    }

    fn explain_cached(&self, ended: &Ended, fault: Fault) -> Error {
        let object = self.objects.get(ended.handle);
        let name = object.map_or("a closed handle", |object| &object.name);
        let error = Error::new(ended.op.name(), name, fault);
        match ended.op {
            SegmentOp::Read { offset } | SegmentOp::Write { offset } => error.at(offset),
            SegmentOp::Sync => error,
        }
    }

    /// Asks that a request end early, if the cache has it.
    pub(in crate::core) fn cancel_in_cache(&mut self, ticket: Ticket) {
        let Some(cached) = &mut self.cached else { return };
        if let Some(asked) = cached.asked(ticket) {
            let id = asked.id;
            cached.cache.cancel(id);
            self.serve_cache();
        }
    }
}
