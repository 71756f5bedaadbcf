//! Callers' requests: through the cache, or beside it on what is cached.
//!
//! A direct request that still waits for the cache has touched nothing and is answered as cancelled, as one that waits for a hold.

use baio_engine::{Durability, File, Memory, Wait};

use crate::cache::eviction::Hint;
use crate::cache::{self, Cache, CacheDone, CacheError, CacheOp, CacheRequest, ObjectId, Started};
use crate::core::Core;
use crate::core::lane::Lane;
use crate::core::tags::Recipient;
use crate::core::ways::Coming;
use crate::crossing::ToTable;
use crate::error::{Error, Fault, Result};
use crate::identity::Access;
use crate::object::Target;
use crate::request::{Asked, Handle, Mode, Outcome, PinnedPage, SegmentOp, SegmentRequest, State, Ticket};

/// Bytes of requests that are gathered before the device is given its part at the latest.
const BATCH_BYTES: u64 = 256 << 10;

/// A durable write of so many bytes goes out alone: its copy takes as long as the device takes for it.
const LONE_BYTES: u64 = 64 << 10;

impl Core {
    /// How many bytes of a cached request are done so far: copied or, of a durable write, known to be safe. A long request moves
    /// on by windows of at most 1 MiB. `None` for a request that has ended, or that the cache has not.
    #[must_use]
    pub fn progress(&mut self, ticket: Ticket) -> Option<u64> {
        match self.lane.requests.state(ticket) {
            State::InCache(id) | State::Overdue(id) => self.lane.cached.as_ref()?.cache.progress(id),
            _ => None,
        }
    }
}

impl Lane {
    /// The cache's object that a request is about: of a cached one, made if it is the first on its file or segment; of a direct
    /// one, if it is cached.
    pub(in crate::core) fn object_asked(&mut self, request: &SegmentRequest) -> Result<Option<ObjectId>> {
        // What moves no bytes begins no caching.
        let is_cached = request.mode == Mode::Cached;
        match &mut self.cached {
            Some(cached) if !is_cached || request.op.names_its_range() => {
                Ok(cached.object_of(&self.objects, request.handle))
            }
            _ if is_cached => self.object_to_use(request).map(Some),
            _ => Ok(None),
        }
    }

    /// The object that a handle means, if it is cached.
    pub(in crate::core) fn object_known(&mut self, handle: Handle) -> Option<ObjectId> {
        self.cached.as_mut()?.object_of(&self.objects, handle)
    }

    fn object_to_use(&mut self, request: &SegmentRequest) -> Result<ObjectId> {
        let writes = request.op.changes_bytes();
        let cached = self.cached.as_mut();
        let known = cached.and_then(|cached| cached.object_for_mode(&self.objects, request.handle, writes));
        known.map_or_else(|| self.object_for(request), Ok)
    }

    /// Gives a request, whose memory it takes, to the cache: to be done there, or to make way for it.
    pub(in crate::core) fn ask(
        &mut self,
        ticket: Ticket,
        request: &mut SegmentRequest,
        object: ObjectId,
        coming: Coming,
    ) {
        let is_cached = request.mode == Mode::Cached;
        if is_cached && matches!(request.op, SegmentOp::Write { .. }) {
            self.date_change();
        }
        let Some(cached) = &mut self.cached else { return };
        let file = match self.objects.get(request.handle).map(|object| &object.target) {
            Some(Target::Plain(file)) => Some(file),
            Some(Target::Segment { .. }) | None => None,
        };
        let Part { op, waits, bytes } = part_of(&cached.cache, object, request, file);
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
        let id = match cached.cache.start_or_hit(Recipient::Request(ticket).tag(), to_do) {
            Started::UnderWay(id) => id,
            Started::Hit(bytes, memory) => return self.hit(ticket, bytes, memory),
        };
        cached.is_served = false;
        if coming == Coming::First {
            self.objects.begin(request.handle);
        }
        match waits {
            true => self.requests.keep(ticket, State::MakingWay(object, id), memory),
            false => self.requests.transition(ticket, State::InCache(id)),
        }
        let is_durable = request.durability != Durability::None && !request.op.is_sync();
        self.carry_out(bytes, is_durable && bytes >= LONE_BYTES);
        self.requests.watch(ticket);
    }

    /// A request of so many bytes was given to the cache. What it wants of the device waits for the turn, so that what is asked for together
    /// is read and written together; but the device is not kept waiting while the bytes of many requests are copied.
    fn carry_out(&mut self, bytes: u64, is_lone: bool) {
        let bypasses = self.start_bypasses();
        let Some(cached) = &mut self.cached else { return };
        if bypasses {
            // Of a large write the device has its bytes before they are copied.
            if is_lone {
                let _ = self.engine.turn(Wait::No);
            }
            if let Some(cached) = &mut self.cached {
                cached.cache.copy_late();
            }
            return self.take_done();
        }
        // A range may be longer than all that can be gathered.
        cached.gathered = cached.gathered.saturating_add(bytes);
        if is_lone || cached.gathered >= BATCH_BYTES {
            self.serve_cache();
            // An error of the backend is told by the next turn as well.
            let _ = self.engine.turn(Wait::No);
        } else {
            self.take_done();
        }
    }

    /// A read that found everything in the cache ends as it begins.
    fn hit(&mut self, ticket: Ticket, bytes: u32, memory: Memory) {
        if let Some(cached) = self.cached.as_mut().filter(|cached| !cached.is_served) {
            // It was copied while others wait to be carried out.
            cached.gathered += u64::from(bytes);
            if cached.gathered >= BATCH_BYTES {
                self.serve_cache();
                let _ = self.engine.turn(Wait::No);
            }
        }
        let outcome = Outcome {
            bytes_done: bytes,
            iterations: 1,
            ..Outcome::early(ticket, memory, Ok(bytes))
        };
        self.tell(outcome, None);
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
        let ticket = match Recipient::of(done.owner) {
            Some(Recipient::Request(ticket)) => ticket,
            Some(Recipient::Operation { .. }) => {
                let (tag, ended) = (done.owner, done.result.map(drop).map_err(Fault::Cache));
                return self.to_table.push_back(ToTable::Uncached { tag, ended });
            }
            Some(Recipient::Driver) | None => {
                // A direct write may have ended before the range was its own: nothing has failed by that.
                let failed = done.result.err().filter(|error| *error != CacheError::Cancelled);
                cached.failed = cached.failed.or(failed);
                return;
            }
        };
        let Some(asked) = self.requests.asked(ticket) else {
            return;
        };
        match self.requests.state(ticket) {
            State::MakingWay(object, id) => {
                let memory = self.requests.take_in_hand(ticket);
                match done.result {
                    Ok(_) => self.granted(ticket, &asked, (object, id), memory),
                    Err(error) => self.end_waiting(ticket, memory, |core, asked| {
                        Err(core.cache_failed(asked, error, asked.len))
                    }),
                }
            }
            state @ (State::InCache(_) | State::Overdue(_)) => {
                self.done_in_cache(ticket, &asked, matches!(state, State::Overdue(_)), done);
            }
            _ if crate::seeded_bug("who-was-abandoned-is-on-the-device") => {
                self.requests.free(ticket);
                self.handle_idle(asked.handle);
            }
            _ => {} // Nothing else is asked for a ticket.
        }
    }

    fn done_in_cache(&mut self, ticket: Ticket, asked: &Asked, is_overdue: bool, done: CacheDone) {
        let result = done.result.map_err(|error| match error {
            CacheError::Cancelled if is_overdue => self.explain(asked, baio_engine::Error::Indeterminate),
            error => self.cache_failed(asked, error, done.memory.len() as u64),
        });
        let access = self
            .objects
            .get(asked.handle)
            .map_or(Access::Read, |object| object.access);
        let pin = done.pin.map(|pin| PinnedPage {
            handle: asked.handle,
            access,
            pin,
        });
        let outcome = Outcome {
            bytes_done: done.bytes_done,
            iterations: u16::try_from(done.iterations).unwrap_or(u16::MAX),
            pin,
            ..Outcome::early(ticket, done.memory, result)
        };
        self.tell(outcome, None);
        self.handle_idle(asked.handle);
    }

    /// Starts a request of the buffer pool in the cache.
    pub(in crate::core) fn start_in_cache(&mut self, ticket: Ticket, request: CacheRequest) {
        let Some(cached) = &mut self.cached else { return };
        let id = cached.cache_mut().start(Recipient::Request(ticket).tag(), request);
        self.requests.transition(ticket, State::InCache(id));
        self.take_done();
    }

    /// The cache has made way for a direct request. For a write it keeps out until that has ended.
    fn granted(&mut self, ticket: Ticket, asked: &Asked, (object, id): (ObjectId, cache::RequestId), memory: Memory) {
        if asked.op.changes_bytes() {
            self.requests.reserve(ticket, object, id);
        }
        self.start_again(ticket, memory);
    }

    /// A direct request has ended: its range is the cache's again.
    pub(in crate::core) fn give_back(&mut self, reserved: Option<(ObjectId, cache::RequestId)>) {
        if let (Some((object, id)), Some(cached)) = (reserved, &mut self.cached) {
            cached.cache_mut().release(object, id);
        }
    }

    fn cache_failed(&self, asked: &Asked, error: CacheError, len: u64) -> Error {
        let fault = match error {
            CacheError::System(errno) => Fault::Io(baio_engine::Error::System(errno)),
            CacheError::Cancelled => Fault::Io(baio_engine::Error::Cancelled),
            // Its segment is being deleted.
            CacheError::NoObject => Fault::Stale,
            CacheError::PastEnd => Fault::Beyond {
                len: if len == 0 { 4096 } else { len }, // A pin is of a page.
                size: self.size_now(asked),
                write: asked.op.changes_bytes(),
            },
            error => Fault::Cache(error),
        };
        self.explain_fault(asked, fault)
    }

    fn size_now(&self, asked: &Asked) -> u64 {
        let object = self.objects.get(asked.handle);
        match object.map(|object| &object.target) {
            Some(Target::Plain(file)) => file.size().unwrap_or_default(),
            Some(Target::Segment { size, .. }) => *size,
            None => 0,
        }
    }

    /// A request that the cache has ends early, and the cache tells so at once.
    pub(in crate::core) fn cancel_in_cache(&mut self, id: cache::RequestId) {
        if let Some(cached) = &mut self.cached {
            cached.cache_mut().cancel(id);
            self.serve_cache();
        }
    }
}

/// What the cache has to do with a request.
struct Part {
    op: CacheOp,
    /// It makes way, and the request goes to the device then.
    waits: bool,
    bytes: u64,
}

/// What the cache is asked for a request on a file or segment of its.
fn part_of(cache: &Cache, object: ObjectId, request: &SegmentRequest, file: Option<&File>) -> Part {
    let is_cached = request.mode == Mode::Cached;
    let range = request.range();
    let (start, end) = match request.op {
        // Of what is there no byte changes: only what is to be new is kept from others.
        SegmentOp::Allocate { .. } => (range.start.max(cache.size(object)).min(range.end), range.end),
        // What ends on its way ends at the device when its last page is there.
        SegmentOp::Read { .. } if !is_cached && needs_the_end(cache, object, range.end, file) => {
            (range.start, u64::MAX)
        }
        _ => (range.start, range.end),
    };
    let (op, waits) = match request.op {
        SegmentOp::Sync | SegmentOp::Fence => (CacheOp::whole(request.durability), false),
        SegmentOp::Read { offset } if is_cached => (CacheOp::Read { offset }, false),
        SegmentOp::Write { offset } if is_cached => {
            let durability = request.durability;
            (CacheOp::Write { offset, durability }, false)
        }
        SegmentOp::Read { .. } => (CacheOp::WriteOut { start, end }, true),
        SegmentOp::Truncate { len } => (CacheOp::Cut { from: len }, true),
        SegmentOp::Write { .. } | SegmentOp::Discard { .. } | SegmentOp::Zero { .. } | SegmentOp::Allocate { .. } => {
            (CacheOp::Reserve { start, end }, true)
        }
    };
    let bytes = end - start;
    Part { op, waits, bytes }
}

/// A read beside the cache needs what was changed of its range, and a file that is long enough on the device; nothing else.
fn needs_the_end(cache: &Cache, object: ObjectId, end: u64, file: Option<&File>) -> bool {
    let Some(file) = file.filter(|_| cache.ends_on_its_way(object)) else {
        return false;
    };
    file.size().is_ok_and(|bytes| cache.must_reach(object, end, bytes))
}
