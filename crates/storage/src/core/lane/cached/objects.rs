//! What is cached, and what becomes of it.
//!
//! A file or a segment is cached from its first cached request on, for all handles on it: a file is known by device and
//! inode number, a segment by the place of its inode, which the cache's own handle on it says and which a rename changes for
//! all handles at once. When a segment has gone, so has its object: what is made later at the same place, under the same name,
//! or of the same blocks, is another. A file is forgotten after its last handle was closed, when what was changed is safe.
//!
//! | operation | what the cache is told |
//! |---|---|
//! | resize, larger | the new size, when handles learn it |
//! | resize, smaller | first to let go of what is to be cut off, and to keep out; then the new size; then that it may come in again |
//! | move | nothing: its I/Os are requests on a handle, and wait for the chunk in copy like all others |
//! | rename | nothing |
//! | delete | first to end its requests; when the record is written, or nobody knows whether it is, to forget the segment. What is dirty stays until then: a delete that fails leaves a segment that serves |

use baio_engine::{Caching, Durability, File, Kind, Memory};

use super::PageCache;
use crate::cache::eviction::Hint;
use crate::cache::{self, CacheOp, CacheRequest, ObjectId};
use crate::core::lane::Lane;
use crate::core::tags::NOBODY;
use crate::error::{Error, Fault, Result};
use crate::identity::Access;
use crate::object::{Object, ObjectState, Objects, Target};
use crate::request::{Asked, Handle, Requests, SegmentOp, SegmentRequest};
use crate::segment::probe::SlotAddress;

/// Bytes that are read ahead of a sequential reader at most.
const READAHEAD_BYTES: usize = 2 << 20;

/// What a lane knows of handles and of requests on them.
pub(in crate::core) struct Known<'a> {
    pub(in crate::core) objects: &'a mut Objects,
    pub(in crate::core) requests: &'a mut Requests,
}

/// A file or a segment of which pages may be cached.
#[derive(Debug)]
pub(super) struct Cached {
    /// Device and inode; none for a segment.
    file: Option<(u64, u64)>,
    pub(super) object: ObjectId,
    /// The cache's own.
    pub(super) handle: Handle,
}

/// What a handle was found to mean. No two lines of memory hold one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct Memo {
    generation: u32,
    epoch: u64,
    object: Option<ObjectId>,
    /// The cache's own handle is known to allow what this one does.
    is_ready: bool,
}

/// A range that an operation keeps the cache out of until it ends.
#[derive(Debug)]
pub(super) struct Cut {
    operation: u32,
    object: ObjectId,
    request: cache::RequestId,
}

fn reserve(object: ObjectId, start: u64, end: u64) -> CacheRequest {
    CacheRequest {
        object,
        op: CacheOp::Reserve { start, end },
        memory: Memory::None,
        hint: Hint::Normal,
    }
}

impl PageCache {
    /// The cached object that a handle means, if it is cached.
    pub(in crate::core) fn object_of(&mut self, objects: &Objects, handle: Handle) -> Option<ObjectId> {
        let index = handle.index as usize;
        if let Some(memo) = self.memo.get(index) {
            if (memo.generation, memo.epoch) == (handle.generation, self.epoch) {
                return memo.object;
            }
        }
        let target = &objects.get(handle)?.target;
        let object = self.look_up(objects, target).map(|at| self.objects[at].object);
        self.note(handle, object, false);
        object
    }

    /// How many bytes of a handle's file or segment there are for the cache, if it is cached.
    pub(in crate::core) fn size_of(&self, objects: &Objects, handle: Handle) -> Option<u64> {
        let memo = self.memo.get(handle.index as usize);
        let object = match memo.filter(|memo| (memo.generation, memo.epoch) == (handle.generation, self.epoch)) {
            Some(memo) => memo.object?,
            None => self.objects[self.look_up(objects, &objects.get(handle)?.target)?].object,
        };
        Some(self.cache.size(object))
    }

    /// The object that a handle means for a cached request; none as well if a write may be more than the cache's own handle allows.
    pub(in crate::core) fn object_for_mode(
        &mut self,
        objects: &Objects,
        handle: Handle,
        writes: bool,
    ) -> Option<ObjectId> {
        let object = self.object_of(objects, handle)?;
        let is_ready = self.memo.get(handle.index as usize).is_some_and(|memo| memo.is_ready);
        (is_ready || !writes).then_some(object)
    }

    fn note(&mut self, handle: Handle, object: Option<ObjectId>, is_ready: bool) {
        let index = handle.index as usize;
        if self.memo.len() <= index {
            self.memo.resize(index + 1, Memo::default());
        }
        self.memo[index] = Memo {
            generation: handle.generation,
            epoch: self.epoch,
            object,
            is_ready,
        };
    }

    fn look_up(&self, objects: &Objects, target: &Target) -> Option<usize> {
        match target {
            Target::Plain(file) => {
                let identity = file.identity();
                self.objects.iter().position(|known| known.file == Some(identity))
            }
            Target::Segment { address, .. } => self.segment(objects, *address),
        }
    }

    fn segment(&self, objects: &Objects, address: SlotAddress) -> Option<usize> {
        self.objects
            .iter()
            .position(|known| objects.address(known.handle) == Some(address))
    }

    /// Begins to cache a file or segment. Direct writes of it that are under way have asked nobody: their ranges are reserved
    /// now, before anything can be brought in.
    fn add(&mut self, known: Known<'_>, name: String, access: Access, target: Target, size: u64) -> ObjectId {
        let (file, owner, grows) = match &target {
            Target::Plain(file) => (Some(file.identity()), None, file.kind() == Kind::Regular),
            Target::Segment { owner_uid, .. } => (None, Some(*owner_uid), false),
        };
        let handle = known.objects.add(name, access, target);
        let object = match owner {
            Some(uid) => self.cache.add_of(uid, size, READAHEAD_BYTES),
            None => self.cache.add(size, READAHEAD_BYTES),
        };
        if grows {
            self.cache.let_grow(object);
        }
        self.objects.push(Cached { file, object, handle });
        self.epoch += 1;
        let writes: Vec<_> = known.requests.writes_under_way().collect();
        for (ticket, handle, range) in writes {
            if self.object_of(known.objects, handle) != Some(object) || crate::seeded_bug("first-comers-are-forgotten")
            {
                continue;
            }
            let id = self.cache_mut().start(NOBODY, reserve(object, range.start, range.end));
            known.requests.reserve(ticket, object, id);
        }
        object
    }

    /// The end of an operation ends what it keeps the cache out of.
    pub(in crate::core) fn release_cuts(&mut self, operation: u32) {
        while let Some(at) = self.cuts.iter().position(|cut| cut.operation == operation) {
            let cut = self.cuts.swap_remove(at);
            self.cache_mut().release(cut.object, cut.request);
        }
    }
}

impl PageCache {
    /// A segment is about to go: whoever waits in the cache is told so at the next turn.
    pub(in crate::core) fn refuse(&mut self, objects: &Objects, address: SlotAddress) {
        if let Some(at) = self.segment(objects, address) {
            let object = self.objects[at].object;
            self.cache_mut().end_requests(object);
        }
    }

    /// A segment has gone, or nobody knows whether it has: nothing of it may be written any more.
    pub(in crate::core) fn forget(&mut self, objects: &mut Objects, address: SlotAddress) {
        if let Some(at) = self.segment(objects, address) {
            let known = self.objects.remove(at);
            self.epoch += 1;
            self.cache_mut().discard(known.object);
            objects.close(known.handle);
        }
    }

    /// A segment has this many bytes now.
    pub(in crate::core) fn resized(&mut self, objects: &Objects, address: SlotAddress, bytes: u64) {
        let Some(at) = self.segment(objects, address) else {
            return;
        };
        let object = self.objects[at].object;
        // One of the two is nothing. What is cut off was reserved, so nothing of it is cached.
        let cache = self.cache_mut();
        let _ = cache.shrink(object, bytes).and_then(|()| cache.grow(object, bytes));
    }

    /// Keeps the cache out of the bytes of a segment from `from` on, until the operation ends. Also when nothing of them is cached: somebody
    /// may begin to cache it meanwhile.
    pub(in crate::core) fn cut(
        &mut self,
        known: Known<'_>,
        (operation, tag): (u32, u64),
        name: &str,
        target: Target,
        from: u64,
    ) {
        let Target::Segment { size, .. } = target else { return };
        let object = match self.look_up(known.objects, &target) {
            Some(at) => self.objects[at].object,
            None => self.add(known, name.to_owned(), Access::Write, target, size),
        };
        let request = self.cache_mut().start(tag, reserve(object, from, size));
        self.cuts.push(Cut {
            operation,
            object,
            request,
        });
    }

    /// Begins to write back what was changed of segments; how many syncs that are.
    pub(in crate::core) fn write_back(&mut self, objects: &Objects, tag: u64) -> usize {
        // One that is being deleted takes no writes any more.
        let is_open = |object: &Object| object.state == ObjectState::Open;
        let is_segment = |known: &&Cached| known.file.is_none() && objects.get(known.handle).is_some_and(is_open);
        let segments: Vec<ObjectId> = self
            .objects
            .iter()
            .filter(is_segment)
            .map(|known| known.object)
            .collect();
        let sync = |object| CacheRequest {
            object,
            op: CacheOp::whole(Durability::Full),
            memory: Memory::None,
            hint: Hint::Normal,
        };
        let cache = self.cache_mut();
        self.syncs = segments
            .into_iter()
            .map(|object| cache.start(tag, sync(object)))
            .collect();
        self.syncs.len()
    }

    /// Nobody waits for that any more.
    pub(in crate::core) fn is_written_back(&mut self) {
        self.syncs.clear();
    }
}

impl Lane {
    /// A handle on a file was closed. When it was the last, what was changed is written now, and the file is forgotten when that is
    /// safe: the cache's own descriptors would keep a file that was unlinked, and its pages what the file no longer holds.
    pub(in crate::core) fn file_closed(&mut self, file: &File) {
        let Some(cached) = &mut self.cached else { return };
        let identity = file.identity();
        let Some(known) = cached.objects.iter_mut().find(|known| known.file == Some(identity)) else {
            return;
        };
        if !self.objects.is_file_open(identity, known.handle) {
            if !cached.left.contains(&known.object) {
                cached.left.push(known.object);
            }
            let object = known.object;
            cached.cache_mut().write_soon(object);
            self.forget_left();
        }
    }

    /// A caller's request that may have changed the size of a plain file has ended at the device, well with what it gave: what is cached
    /// ends where the file does. Its range is still reserved, so nothing is cached behind the end of a file that was cut.
    pub(in crate::core) fn note_size(&mut self, asked: &Asked, done: Option<u32>) {
        let Some(cached) = &mut self.cached else { return };
        let Some(Target::Plain(file)) = self.objects.get(asked.handle).map(|object| &object.target) else {
            return;
        };
        let Some(object) = cached.object_of(&self.objects, asked.handle) else {
            return;
        };
        let before = cached.cache.size(object);
        let now = match (asked.op, done) {
            (SegmentOp::Truncate { len }, Some(_)) => len,
            // Of what nobody knows whether it happened the file is asked.
            (SegmentOp::Truncate { len }, None) if file.size() == Ok(len) => len,
            (SegmentOp::Truncate { .. }, None) | (SegmentOp::Discard { .. }, _) => before,
            (SegmentOp::Write { offset }, Some(done)) => offset.saturating_add(u64::from(done)),
            (_, Some(_)) => asked.range().end,
            (_, None) if asked.range().end > before => file.size().unwrap_or(before),
            (_, None) => before,
        };
        let now = match asked.op {
            SegmentOp::Truncate { .. } => now,
            _ => now.max(before),
        };
        if now != before {
            let cache = cached.cache_mut();
            let _ = cache.shrink(object, now).and_then(|()| cache.grow(object, now));
        }
    }

    /// Forgets the files that nobody has open and of which nothing is left to do.
    pub(in crate::core) fn forget_left(&mut self) {
        let Some(cached) = self.cached.as_mut().filter(|cached| !cached.left.is_empty()) else {
            return;
        };
        let (objects, before) = (&mut self.objects, cached.objects.len());
        let mut left = std::mem::take(&mut cached.left);
        left.retain(|&object| {
            if !cached.cache.may_forget(object) {
                return true; // Who else has it open is asked when it can go.
            }
            let Some(at) = cached.place_of(object) else {
                return false;
            };
            let known = &cached.objects[at];
            let (file, handle) = (known.file, known.handle);
            if file.is_none_or(|identity| objects.is_file_open(identity, handle)) {
                return false;
            }
            if cached.cache.forget(object).is_ok() {
                cached.objects.remove(at);
                objects.close(handle);
            }
            false
        });
        cached.left = left;
        if cached.objects.len() < before {
            cached.epoch += 1;
            cached.is_served = false; // Their frames may have gone to who waits.
        }
    }

    /// The cache's object for a cached request; made if this is the first on its file or segment.
    pub(in crate::core) fn object_for(&mut self, request: &SegmentRequest) -> Result<ObjectId> {
        let object = self.objects.get(request.handle);
        let name = object.map_or(String::new(), |object| object.name.clone());
        let fail = |fault| {
            let error = Error::new(request.op.name(), &name, fault);
            match request.op.offset() {
                Some(offset) => error.at(offset),
                None => error,
            }
        };
        let Some((target, access)) = object.map(|object| (object.target.clone(), object.access)) else {
            return Err(fail(Fault::Stale));
        };
        let Some(cached) = &mut self.cached else {
            return Err(fail(Fault::NoCache));
        };
        if let Some(at) = cached.look_up(&self.objects, &target) {
            let known = &mut cached.objects[at];
            // The first handle on a file may have been for reading only.
            let known_access = self.objects.get(known.handle).map(|object| object.access);
            if access == Access::Write && known_access != Some(Access::Write) {
                let _ = self.objects.close(known.handle);
                known.handle = self.objects.add(name, access, target);
                cached.epoch += 1;
            }
            let object = cached.objects[at].object;
            cached.note(request.handle, Some(object), true);
            return Ok(object);
        }
        let (access, size) = match &target {
            Target::Plain(file) => (access, size_of(file).map_err(fail)?),
            // The volume is open for writing, and what its callers may do has been checked.
            Target::Segment { size, .. } => (Access::Write, *size),
        };
        let known = Known {
            objects: &mut self.objects,
            requests: &mut self.requests,
        };
        Ok(cached.add(known, name, access, target, size))
    }
}

/// The size of a file that can be cached.
fn size_of(file: &File) -> std::result::Result<u64, Fault> {
    if !matches!(file.kind(), Kind::Regular | Kind::Block | Kind::Foreign) {
        return Err(Fault::BadSize("only regular files and disks can be cached".into()));
    }
    let size = file
        .size()
        .map_err(|errno| Fault::Io(baio_engine::Error::System(errno)))?;
    whole_sectors(file, size)?;
    Ok(size)
}

/// Its last page goes through the kernel's page cache, unless it ends between two sectors.
pub(in crate::core) fn whole_sectors(file: &File, size: u64) -> std::result::Result<(), Fault> {
    let sector = u64::from(file.direct_limits().offset);
    if file.gives(Caching::Kernel) || size % sector == 0 {
        return Ok(());
    }
    Err(Fault::BadSize(format!(
        "{size} bytes are no multiple of {sector}, and the file was opened for direct I/O alone; open it with both descriptions to cache it"
    )))
}
