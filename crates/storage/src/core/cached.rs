//! Requests through the page cache, and what the cache asks of the device.
//!
//! The cache does no I/O ([`crate::cache`]): here its reads, writes and flushes become direct requests like any caller's, under
//! tickets of their own and on a handle of the cache's own, so that everything else in the core treats them as such. Entries
//! of the table of requests are kept for them: a table full of callers who wait for the cache cannot stop it.
//!
//! ```text
//! caller --start--> cache --I/O--> start --> engine       a direct request on a cached file:
//!   ^                 |  ^                     |            start --> the cache lets go of the range, or writes it out,
//!   +----- end -------+  +---- its end --------+            --> engine --> the range is the cache's again
//! ```
//!
//! A file is cached from its first cached request on, for all handles on it, which are known by its identity.

use std::collections::VecDeque;

use baio_engine::{Caching, Completion, Durability, Errno, File, Kind, Memory, Notice, RequestId, Wait};

use super::Core;
use super::holds::Parked;
use super::requests::Coming;
use crate::cache::eviction::Hint;
use crate::cache::{self, Cache, CacheConfig, CacheDone, CacheError, CacheOp, CacheRequest, CacheStats};
use crate::cache::{Io, IoId, IoKind, ObjectId, PAGE_BYTES};
use crate::error::{Error, Fault, Result};
use crate::identity::Access;
use crate::object::Target;
use crate::request::{Ended, Handle, Mode, SegmentOp, SegmentRequest, Ticket};

/// Entries of the table of requests that are the cache's own.
const ENTRIES: u32 = 64;

/// Bytes that are read ahead of a sequential reader at most.
const READAHEAD_BYTES: usize = 512 << 10;

/// Bytes of requests that are gathered before the device is given its part at the latest.
const BATCH_BYTES: u64 = 256 << 10;

/// The owner of what nobody waits for: no ticket, for their generations have 30 bits.
const NOBODY: u64 = u64::MAX;

/// What [`Core::start`] gives.
type Started = std::result::Result<Ticket, SegmentRequest>;

/// A file of which pages may be cached.
#[derive(Debug)]
struct Cached {
    /// Of the file: device and inode.
    identity: (u64, u64),
    object: ObjectId,
    /// The cache's own.
    handle: Handle,
}

/// What a ticket is to the cache.
#[derive(Debug, Default)]
enum Role {
    /// Nothing.
    #[default]
    None,
    /// The cache's own I/O.
    Io(IoId),
    /// The same, which was answered while the kernel still has its memory.
    Held(IoId),
    /// A caller's request that the cache has.
    Request(cache::RequestId),
    /// A direct request that waits for the cache, to be started then.
    Waits(ObjectId, cache::RequestId, Box<Parked>, Memory),
    /// A direct write under way; the cache keeps out of its range.
    Reserved(ObjectId, cache::RequestId),
}

/// The page cache of a core.
#[derive(Debug)]
pub(super) struct PageCache {
    cache: Cache,
    files: Vec<Cached>,
    /// By the index of the ticket, for the use of that index that the number names.
    roles: Vec<(u32, Role)>,
    /// I/Os for which the engine had no room.
    delayed: VecDeque<Io>,
    /// The first failure of what nobody waits for.
    failed: Option<CacheError>,
    /// Everything that the cache wants has been started.
    is_served: bool,
    /// Bytes of requests since then.
    gathered: u64,
}

impl PageCache {
    fn role(&mut self, ticket: Ticket) -> &mut Role {
        let index = ticket.index as usize;
        if self.roles.len() <= index {
            self.roles.resize_with(index + 1, Default::default);
        }
        let (generation, role) = &mut self.roles[index];
        if *generation != ticket.generation {
            (*generation, *role) = (ticket.generation, Role::None);
        }
        role
    }
}

impl Core {
    /// Gives the core a page cache: from now on requests of [`Mode::Cached`] are served, on plain files. Its memory is taken
    /// from the core's arena at once, and kept.
    ///
    /// # Errors
    /// There is one already; `NoMemory` when the arena does not hold it; a budget below four pages.
    pub fn use_cache(&mut self, config: &CacheConfig) -> Result<()> {
        let fail = |fault| Error::new("make", "the page cache", fault);
        if self.cached.is_some() {
            return Err(fail(Fault::Occupied("this core has one".into())));
        }
        let cache = Cache::new(self.engine.arena(), *config).map_err(|error| match error {
            CacheError::NoMemory => fail(Fault::NoMemory {
                asked: config.bytes as u64,
            }),
            error => fail(Fault::Cache(error)),
        })?;
        self.requests.keep_entries(ENTRIES);
        self.cached = Some(Box::new(PageCache {
            cache,
            files: Vec::new(),
            roles: Vec::new(),
            delayed: VecDeque::new(),
            failed: None,
            is_served: true,
            gathered: 0,
        }));
        Ok(())
    }

    /// Counters of the page cache, if there is one.
    #[must_use]
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.cached.as_ref().map(|cached| cached.cache.stats())
    }

    /// Starts a request that goes through the cache, or beside it on a cached file. Gives back what is neither.
    pub(super) fn start_with_cache(&mut self, request: SegmentRequest) -> std::result::Result<Started, SegmentRequest> {
        if request.mode == Mode::Cached {
            return Ok(self.start_on_cache(request, Core::object_for));
        }
        let Some(cached) = &self.cached else {
            return Err(request);
        };
        let identity = self.plain_file(request.handle).map(File::identity);
        let known = cached.files.iter().find(|cached| Some(cached.identity) == identity);
        match known.map(|cached| cached.object) {
            Some(object) => Ok(self.start_on_cache(request, move |_, _| Ok(object))),
            None => Err(request),
        }
    }

    fn plain_file(&self, handle: Handle) -> Option<&File> {
        match self.objects.get(handle)?.target.as_ref()? {
            Target::Plain(file) => Some(file),
            Target::Segment { .. } => None,
        }
    }

    /// Gives a request to the cache: to be done there, or to make way for it.
    fn start_on_cache(
        &mut self,
        mut request: SegmentRequest,
        object: impl FnOnce(&mut Core, &SegmentRequest) -> Result<ObjectId>,
    ) -> Started {
        if self.requests.is_full() {
            return Err(request);
        }
        let checked = self.prepare(&mut request, Coming::First);
        let object = checked.and_then(|_| object(self, &request));
        let Some(ticket) = self.requests.insert(&request) else {
            return Err(request);
        };
        let (object, cached) = match (object, &mut self.cached) {
            (Ok(object), Some(cached)) => (object, cached),
            (object, _) => {
                self.finish_early(ticket, request.memory, object.map(|_| 0));
                return Ok(ticket);
            }
        };
        self.objects.begin(request.handle);
        let range = request.range();
        let (start, end) = (range.start, range.end);
        let is_cached = request.mode == Mode::Cached;
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
        let asked = CacheRequest {
            object,
            op,
            memory: if waits {
                Memory::None
            } else {
                std::mem::take(&mut memory)
            },
            hint: Hint::Normal,
        };
        let id = cached.cache.start(owner_of(ticket), asked);
        *cached.role(ticket) = if waits {
            let parked = Parked::new(ticket, RequestId::default(), &request, range);
            Role::Waits(object, id, Box::new(parked), memory)
        } else {
            Role::Request(id)
        };
        // What it wants of the device waits for the turn, so that what is asked for together is read and written together; but
        // the device is not kept waiting while the bytes of many requests are copied.
        cached.is_served = false;
        cached.gathered += end - start;
        if cached.gathered >= BATCH_BYTES {
            self.serve_cache();
            // An error of the backend is told by the next turn as well.
            let _ = self.engine.turn(Wait::No);
        } else {
            self.take_done();
        }
        Ok(ticket)
    }

    /// The cache's object for a cached request's file; made if this is the first.
    fn object_for(&mut self, request: &SegmentRequest) -> Result<ObjectId> {
        let name = self
            .objects
            .get(request.handle)
            .map_or(String::new(), |object| object.name.clone());
        let fail = |fault| Error::new(request.op.name(), &name, fault);
        if request.deadline.is_some() {
            return Err(fail(Fault::NotYet("a deadline on a cached request")));
        }
        let Some(file) = self.plain_file(request.handle).cloned() else {
            return Err(fail(Fault::NotYet("mode `cached` on a segment")));
        };
        let Some(cached) = &mut self.cached else {
            return Err(fail(Fault::NoCache));
        };
        let access_of = |objects: &crate::object::Objects, handle| objects.get(handle).map(|object| object.access);
        let access = access_of(&self.objects, request.handle).unwrap_or(Access::Read);
        let identity = file.identity();
        if let Some(known) = cached.files.iter_mut().find(|cached| cached.identity == identity) {
            // The first handle on it may have been for reading only.
            if access == Access::Write && access_of(&self.objects, known.handle) != Some(Access::Write) {
                let _ = self.objects.close(known.handle);
                known.handle = self.objects.add(name, access, Target::Plain(file));
            }
            return Ok(known.object);
        }
        if !matches!(file.kind(), Kind::Regular | Kind::Block | Kind::Simulated) {
            return Err(fail(Fault::BadSize(
                "only regular files and disks can be cached".into(),
            )));
        }
        let size = file
            .size()
            .map_err(|errno| fail(Fault::Io(baio_engine::Error::System(errno))))?;
        if size % PAGE_BYTES as u64 != 0 {
            let what = format!("the file has {size} bytes; a cached one must have a multiple of {PAGE_BYTES}");
            return Err(fail(Fault::BadSize(what)));
        }
        let handle = self.objects.add(name.clone(), access, Target::Plain(file));
        let object = cached.cache.add(size, READAHEAD_BYTES);
        cached.files.push(Cached {
            identity,
            object,
            handle,
        });
        Ok(object)
    }

    /// Carries out what the cache wants, and tells what has ended there.
    pub(super) fn serve_cache(&mut self) {
        loop {
            self.take_done();
            let Some(cached) = &mut self.cached else { return };
            let Some(io) = cached.delayed.pop_front().or_else(|| cached.cache.next_io()) else {
                cached.is_served = true;
                cached.gathered = 0;
                return;
            };
            if let Err(io) = self.start_io(io) {
                // Something is under way, then, and its end comes here again.
                if let Some(cached) = &mut self.cached {
                    cached.delayed.push_front(io);
                }
                return;
            }
        }
    }

    /// Tells what has ended in the cache.
    fn take_done(&mut self) {
        while let Some(done) = self.cached.as_mut().and_then(|cached| cached.cache.next_done()) {
            self.cache_done(done);
        }
    }

    /// Requests that the cache has; and whether the next turn has something to carry out for it.
    pub(super) fn in_cache(&self) -> (usize, bool) {
        self.cached.as_ref().map_or((0, false), |cached| {
            (cached.cache.requests_under_way(), !cached.is_served)
        })
    }

    fn start_io(&mut self, io: Io) -> std::result::Result<(), Io> {
        let cached = self.cached.as_ref();
        let file = cached.and_then(|cached| cached.files.iter().find(|cached| cached.object == io.object));
        let Some(handle) = file.map(|file| file.handle) else {
            return Ok(()); // Every object of the cache has a file.
        };
        let (op, durability) = match io.kind {
            IoKind::Read { offset, .. } => (SegmentOp::Read { offset }, Durability::None),
            IoKind::Write { offset, durability, .. } => (SegmentOp::Write { offset }, durability),
            IoKind::Sync { durability } => (SegmentOp::Sync, durability),
        };
        let request = SegmentRequest {
            durability,
            ..SegmentRequest::new(handle, op, io.memory)
        };
        match self.start_for_cache(request) {
            Ok(ticket) => {
                if let Some(cached) = &mut self.cached {
                    *cached.role(ticket) = Role::Io(io.id);
                }
                self.io_may_have_ended(ticket);
                Ok(())
            }
            Err(request) => Err(Io {
                memory: request.memory,
                ..io
            }),
        }
    }

    /// Tells the cache of its I/O's end, if the ticket is one and has ended.
    pub(super) fn io_may_have_ended(&mut self, ticket: Ticket) {
        let Some(cached) = &mut self.cached else { return };
        let Role::Io(id) = *cached.role(ticket) else { return };
        let Some(outcome) = self.requests.take_ended(ticket) else {
            return;
        };
        let is_held = matches!(
            &outcome.result,
            Err(error) if matches!(error.fault, Fault::Io(baio_engine::Error::Indeterminate))
        );
        *cached.role(ticket) = if is_held { Role::Held(id) } else { Role::None };
        let result = outcome.result.map_err(|error| error.errno().unwrap_or(Errno::EIO));
        cached.cache.io_ended(id, result, outcome.memory);
    }

    /// The kernel has let go of an I/O that had been answered before.
    pub(super) fn io_released(&mut self, ticket: Ticket, memory: Memory) {
        let Some(cached) = &mut self.cached else { return };
        if let Role::Held(id) = *cached.role(ticket) {
            *cached.role(ticket) = Role::None;
            cached.cache.io_released(id, memory);
        }
    }

    /// Something has ended in the cache: a request, or the waiting of one.
    fn cache_done(&mut self, done: CacheDone) {
        let Some(cached) = &mut self.cached else { return };
        if done.owner == NOBODY {
            cached.failed = cached.failed.or(done.result.err());
            return;
        }
        let ticket = ticket_of(done.owner);
        let role = std::mem::take(cached.role(ticket));
        let Some(ended) = self.requests.ended(ticket) else {
            return;
        };
        let (memory, failed) = match (role, done.result) {
            (Role::Waits(object, id, parked, memory), Ok(_)) => {
                if matches!(ended.op, SegmentOp::Write { .. }) {
                    *cached.role(ticket) = Role::Reserved(object, id);
                }
                return self.granted(ticket, &ended, &parked, memory);
            }
            (Role::Waits(.., memory), result) => (memory, result),
            (_, result) => (done.memory, result),
        };
        let result = failed.map_err(|error| self.cache_failed(&ended, error, memory.len() as u64));
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
        self.handle_idle(ended.handle);
    }

    /// The cache has made way for a direct request.
    fn granted(&mut self, ticket: Ticket, ended: &Ended, parked: &Parked, memory: Memory) {
        let going_on = if ended.abandoned {
            Some((memory, Ok(0))) // Nobody will take the outcome.
        } else {
            self.start_again(ticket, ended, parked, memory)
        };
        if let Some((memory, result)) = going_on {
            self.finish_early(ticket, memory, result);
            self.left_cache(ticket);
            self.handle_idle(ended.handle);
        }
    }

    /// A direct request has ended: its range is the cache's again.
    pub(super) fn left_cache(&mut self, ticket: Ticket) {
        let Some(cached) = &mut self.cached else { return };
        if let Role::Reserved(object, id) = *cached.role(ticket) {
            *cached.role(ticket) = Role::None;
            cached.cache.release(object, id);
        }
    }

    fn cache_failed(&self, ended: &Ended, error: CacheError, len: u64) -> Error {
        let object = self.objects.get(ended.handle);
        let name = object.map_or("a closed handle", |object| &object.name);
        let fault = match error {
            CacheError::System(errno) => Fault::Io(baio_engine::Error::System(errno)),
            CacheError::Cancelled => Fault::Io(baio_engine::Error::Cancelled),
            CacheError::PastEnd => Fault::Beyond {
                len,
                size: self
                    .plain_file(ended.handle)
                    .and_then(|file| file.size().ok())
                    .unwrap_or_default(),
                write: true,
            },
            error => Fault::Cache(error),
        };
        let error = Error::new(ended.op.name(), name, fault);
        match ended.op {
            SegmentOp::Read { offset } | SegmentOp::Write { offset } => error.at(offset),
            SegmentOp::Sync => error,
        }
    }

    /// Asks that a request end early, if the cache has it.
    pub(super) fn cancel_in_cache(&mut self, ticket: Ticket) {
        let Some(cached) = &mut self.cached else { return };
        if let Role::Request(id) | Role::Waits(_, id, ..) = *cached.role(ticket) {
            cached.cache.cancel(id);
            self.serve_cache();
        }
    }

    /// What has grown old is written; what the engine had no room for is tried again.
    pub(super) fn turn_cache(&mut self) {
        let Some(cached) = &mut self.cached else { return };
        let now = self.engine.now();
        if cached.cache.next_tick().is_some_and(|at| at <= now) {
            cached.cache.tick(now);
        }
        self.serve_cache();
    }

    /// Makes everything durable that was written through the cache.
    pub(super) fn sync_cache(&mut self) -> Result<()> {
        let Some(cached) = &mut self.cached else {
            return Ok(());
        };
        cached.failed = None;
        for file in &cached.files {
            let asked = CacheRequest {
                object: file.object,
                op: whole(Durability::Full),
                memory: Memory::None,
                hint: Hint::Normal,
            };
            cached.cache.start(NOBODY, asked);
        }
        self.serve_cache();
        let under_way = |core: &Core| {
            core.cached
                .as_ref()
                .map_or(0, |cached| cached.cache.requests_under_way())
        };
        while under_way(self) > 0 {
            self.turn(Wait::one())?;
        }
        match self.cached.as_mut().and_then(|cached| cached.failed.take()) {
            Some(error) => Err(Error::new("write back", "the page cache", Fault::Cache(error))),
            None => Ok(()),
        }
    }
}

/// A sync of a whole object.
fn whole(durability: Durability) -> CacheOp {
    CacheOp::Sync {
        start: 0,
        end: u64::MAX,
        durability,
    }
}

fn owner_of(ticket: Ticket) -> u64 {
    u64::from(ticket.generation) << 32 | u64::from(ticket.index)
}

fn ticket_of(owner: u64) -> Ticket {
    Ticket {
        index: owner as u32,
        generation: (owner >> 32) as u32,
    }
}
