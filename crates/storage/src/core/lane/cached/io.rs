//! The cache's own I/O: what it wants is started as direct requests, and it is told how they ended.
//!
//! A segment whose move has stopped half-way lies in two places, and a request that crosses the mark between them is refused.
//! The cache merges neighbours and knows no mark: what it asks across one is made two requests here, and joined again when
//! both have ended.
//!
//! A file may end anywhere, and direct I/O only between sectors. So the page in which it ends goes through the kernel's page cache, to the
//! byte, and what comes before it is a request of its own. What a file does not have, because it ends before what is cached of it,
//! reads as zeros.

use std::ops::Range;

use baio_engine::{Caching, Completion, Durability, Errno, File, Kind, Memory, Vectored};

use super::PageCache;
use crate::cache::{Io, IoKind, ObjectId, PAGE_BYTES};
use crate::core::lane::Lane;
use crate::core::tags::Recipient;
use crate::error::Fault;
use crate::object::{Objects, Route, Target};
use crate::request::{CacheIo, Handle, Mode, Outcome, Owner, SegmentOp, SegmentRequest};
use crate::slot_map::SlotKey;

/// Two parts under way, and what they are parts of.
#[derive(Debug)]
pub(super) struct Join {
    whole: CacheIo,
    memory: [Memory; 2],
    /// Parts that have not been told as ended.
    left: u8,
    /// Parts that were, and whose memory is not back.
    held: u8,
    result: Result<u32, Errno>,
}

impl PageCache {
    /// The cache's own handle on an object.
    fn handle_of(&mut self, object: ObjectId) -> Option<Handle> {
        let at = self.place_of(object)?;
        Some(self.objects[at].handle)
    }

    /// Where an object stands in the list. Where it was found last is looked at first: this is asked for each I/O.
    pub(super) fn place_of(&mut self, object: ObjectId) -> Option<usize> {
        let index = object.index();
        if self.places.len() <= index {
            self.places.resize(index + 1, 0);
        }
        let at = self.places[index];
        if self.objects.get(at).is_some_and(|known| known.object == object) {
            return Some(at);
        }
        #[cfg(test)]
        tests::SEARCHES.set(tests::SEARCHES.get() + 1);
        let at = self.objects.iter().position(|known| known.object == object)?;
        self.places[index] = at;
        Some(at)
    }

    /// Makes two of a part: what lies below `at`, in bytes of the part, and the rest.
    fn split(&mut self, whole: CacheIo, at: u64, memory: Memory) -> [(CacheIo, Memory); 2] {
        let join = self.joins.insert(Join {
            whole,
            memory: [Memory::None, Memory::None],
            left: 2,
            held: 0,
            result: Ok(0),
        });
        let (below, above) = split_memory(memory, at);
        let part = |kind, second| CacheIo {
            kind,
            join: Some((join, second)),
            ..whole
        };
        let (one, other) = match whole.kind {
            IoKind::Read { offset, len } => (
                IoKind::Read { offset, len: at as u32 },
                IoKind::Read {
                    offset: offset + at,
                    len: len - at as u32,
                },
            ),
            IoKind::Write {
                offset,
                len,
                durability,
            } => (
                IoKind::Write {
                    offset,
                    len: at as u32,
                    durability,
                },
                IoKind::Write {
                    offset: offset + at,
                    len: len - at as u32,
                    durability,
                },
            ),
            sync @ IoKind::Sync { .. } => (sync, sync), // Unreachable: a sync has no range.
        };
        [(part(one, false), below), (part(other, true), above)]
    }

    /// A part has ended; `held` when the kernel still has its memory.
    fn part_ended(&mut self, part: CacheIo, result: Result<u32, Errno>, memory: Memory, held: bool) {
        let Some((at, second)) = part.join else {
            return self.cache_mut().io_ended(part.id, result, memory);
        };
        let Some(join) = self.joins.get_mut(at) else {
            return; // A part has its join.
        };
        let asked = match part.kind {
            IoKind::Read { len, .. } | IoKind::Write { len, .. } => len,
            IoKind::Sync { .. } => 0,
        };
        // What lies behind a part that gave less than was asked for would not be in its place.
        let result = result.and_then(|done| if done < asked { Err(Errno::EIO) } else { Ok(done) });
        join.memory[usize::from(second)] = memory;
        join.left -= 1;
        join.held += u8::from(held);
        join.result = match (join.result, result) {
            (Ok(one), Ok(other)) => Ok(one + other),
            (Err(errno), _) | (_, Err(errno)) => Err(errno),
        };
        if crate::seeded_bug("half-is-the-whole") && join.left == 1 {
            return self.part_ended(CacheIo { join: None, ..part }, result, Memory::None, false);
        }
        if join.left > 0 {
            return;
        }
        let (whole, result) = (join.whole, join.result);
        if join.held > 0 {
            return self.part_ended(whole, result, Memory::None, true);
        }
        let memory = self.end_join(at);
        self.part_ended(whole, result, memory, false);
    }

    /// The kernel has let go of a part that was told as ended.
    fn part_released(&mut self, part: CacheIo, memory: Memory) {
        let Some((at, second)) = part.join else {
            return self.cache_mut().io_released(part.id, memory);
        };
        let Some(join) = self.joins.get_mut(at) else {
            return; // A part has its join.
        };
        join.memory[usize::from(second)] = memory;
        join.held -= 1;
        if join.held == 0 && join.left == 0 {
            let whole = join.whole;
            let memory = self.end_join(at);
            self.part_released(whole, memory);
        }
    }

    fn end_join(&mut self, at: SlotKey) -> Memory {
        self.joins.remove(at).map_or(Memory::None, |join| {
            let [below, above] = join.memory;
            join_memory(below, above)
        })
    }
}

impl Lane {
    /// Carries out what the cache wants, and tells what has ended there.
    pub(in crate::core) fn serve_cache(&mut self) {
        loop {
            self.take_done();
            let Some(cached) = &mut self.cached else { return };
            let next = cached.delayed.pop_front();
            let next = next.or_else(|| cached.cache.next_io_now().map(whole_of));
            let Some((part, memory)) = next else {
                cached.is_served = !cached.cache.is_put_off();
                cached.gathered = 0;
                return;
            };
            if let Err(delayed) = self.start_part(part, memory) {
                // Something is under way, then, and its end comes here again.
                if let Some(cached) = &mut self.cached {
                    cached.delayed.push_front(delayed);
                }
                return;
            }
        }
    }

    /// Starts what is about callers' own memory: it goes off as direct requests do, as soon as some have gathered in the engine.
    /// Says whether there was anything.
    pub(super) fn start_bypasses(&mut self) -> bool {
        let mut any = false;
        while let Some(cached) = self.cached.as_mut().filter(|cached| cached.delayed.is_empty()) {
            let Some((part, memory)) = cached.cache.next_bypass().map(whole_of) else {
                break;
            };
            any = true;
            if let Err(delayed) = self.start_part(part, memory) {
                if let Some(cached) = &mut self.cached {
                    cached.delayed.push_back(delayed);
                }
            }
        }
        any
    }

    fn start_part(&mut self, part: CacheIo, memory: Memory) -> Result<(), (CacheIo, Memory)> {
        let Some(cached) = &mut self.cached else {
            return Ok(());
        };
        let Some(handle) = cached.handle_of(part.object) else {
            // The segment has gone before its I/O was started.
            cached.part_ended(part, Err(Errno::ESTALE), memory, false);
            return Ok(());
        };
        if let Some(at) = seam(&self.objects, handle, part.kind).or_else(|| tail(&self.objects, handle, part.kind)) {
            if part.bypasses {
                // One buffer cannot be made two; the pages of frames can, and those come next.
                cached.part_ended(part, Err(Errno::EAGAIN), memory, false);
                return Ok(());
            }
            let [one, other] = cached.split(part, at, memory);
            cached.delayed.push_front(other);
            cached.delayed.push_front(one);
            return Ok(());
        }
        let (op, durability) = match part.kind {
            IoKind::Read { offset, .. } => (SegmentOp::Read { offset }, Durability::None),
            IoKind::Write { offset, durability, .. } => (SegmentOp::Write { offset }, durability),
            IoKind::Sync { durability } => (SegmentOp::Sync, durability),
        };
        let mut request = SegmentRequest {
            durability,
            mode: mode_of(&self.objects, handle, part.kind),
            ..SegmentRequest::new(handle, op, memory)
        };
        match self.enter(Owner::Cache(part), &mut request) {
            Some(_) => Ok(()),
            None => Err((part, request.memory)),
        }
    }

    /// The cache's I/O has ended; `is_held` when the kernel still has its memory.
    pub(in crate::core) fn io_ended(&mut self, part: CacheIo, mut ended: Outcome, is_held: bool) {
        if let (IoKind::Read { len, .. }, Ok(done)) = (part.kind, &mut ended.result) {
            let handle = self.cached.as_mut().and_then(|cached| cached.handle_of(part.object));
            let file = handle.and_then(|handle| plain(&self.objects, handle));
            if *done < len && file.is_some_and(|file| file.kind() == Kind::Regular) {
                clear(&mut ended.memory, *done as usize..len as usize);
                *done = len;
            }
        }
        let Some(cached) = &mut self.cached else { return };
        if let Err(error) = &ended.result {
            if matches!(error.fault, Fault::MoveStopped { .. }) {
                // It waited for a move that has stopped inside its range: now it can be made two.
                cached.delayed.push_back((part, ended.memory));
                cached.is_served = false;
                return;
            }
        }
        let result = ended.result.map_err(|error| error.errno().unwrap_or(Errno::EIO));
        cached.part_ended(part, result, ended.memory, is_held);
    }

    /// Bytes that a completion brings to the cache, to be copied; none if it is a direct request's.
    pub(in crate::core) fn cached_bytes(&self, completion: &Completion) -> u64 {
        match Recipient::of(completion.tag) {
            Some(Recipient::Request(ticket)) if matches!(self.requests.owner(ticket), Some(Owner::Cache(io)) if !io.bypasses) => {
                completion.result.as_ref().map_or(0, |bytes| u64::from(*bytes))
            }
            _ => 0,
        }
    }

    /// The kernel has let go of an I/O that had been answered before.
    pub(in crate::core) fn io_released(&mut self, part: CacheIo, memory: Memory) {
        if let Some(cached) = &mut self.cached {
            cached.part_released(part, memory);
        }
    }
}

fn whole_of(io: Io) -> (CacheIo, Memory) {
    let part = CacheIo {
        id: io.id,
        object: io.object,
        kind: io.kind,
        join: None,
        bypasses: io.bypasses,
    };
    (part, io.memory)
}

/// Where a request must be made two, in bytes of the request: it crosses the mark of a move.
fn seam(objects: &Objects, handle: Handle, kind: IoKind) -> Option<u64> {
    let (IoKind::Read { offset, len } | IoKind::Write { offset, len, .. }) = kind else {
        return None;
    };
    let Target::Segment {
        start,
        moving: Some(moving),
        ..
    } = &objects.get(handle)?.target
    else {
        return None;
    };
    let range = offset..offset + u64::from(len);
    if moving.route(*start, &range) != Route::Across {
        return None;
    }
    let marks = [moving.mark, moving.mark + moving.doubt];
    let inside = marks.into_iter().find(|mark| range.start < *mark && *mark < range.end);
    // Marks lie between blocks, and so between pages.
    inside
        .map(|mark| mark - offset)
        .filter(|at| at % PAGE_BYTES as u64 == 0)
}

fn plain(objects: &Objects, handle: Handle) -> Option<&File> {
    match &objects.get(handle)?.target {
        Target::Plain(file) => Some(file),
        Target::Segment { .. } => None,
    }
}

/// Does it end where no direct request can?
fn ends_askew(file: &File, kind: IoKind) -> bool {
    let (IoKind::Read { offset, len } | IoKind::Write { offset, len, .. }) = kind else {
        return false;
    };
    let end = offset + u64::from(len);
    end % u64::from(file.direct_limits().offset) != 0 && file.gives(Caching::Kernel)
}

/// Where a request must be made two, in bytes of the request, because its last page goes another way.
fn tail(objects: &Objects, handle: Handle, kind: IoKind) -> Option<u64> {
    let (IoKind::Read { len, .. } | IoKind::Write { len, .. }) = kind else {
        return None;
    };
    let last = u64::from(len) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    (last > 0 && ends_askew(plain(objects, handle)?, kind)).then_some(last)
}

/// Which way the cache's own I/O goes.
fn mode_of(objects: &Objects, handle: Handle, kind: IoKind) -> Mode {
    match plain(objects, handle) {
        Some(file) if ends_askew(file, kind) || !file.gives(Caching::Direct) => Mode::Kernel,
        _ => Mode::Direct,
    }
}

/// Makes these bytes zero.
fn clear(memory: &mut Memory, bytes: Range<usize>) {
    const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    for at in bytes.clone().step_by(PAGE_BYTES) {
        memory.copy_in_at(at, &ZEROS[..PAGE_BYTES.min(bytes.end - at)]);
    }
}

/// The pages below `at` bytes, and the others.
fn split_memory(memory: Memory, at: u64) -> (Memory, Memory) {
    let Memory::Many(mut list) = memory else {
        return (memory, Memory::None); // Never so: more than one page is a list.
    };
    let count = (at / PAGE_BYTES as u64) as usize;
    let mut above = Vectored::with_capacity(list.parts().len().saturating_sub(count));
    let mut below = Vectored::with_capacity(count);
    for (nth, part) in list.drain().enumerate() {
        let side = if nth < count { &mut below } else { &mut above };
        drop(side.push(part));
    }
    (Memory::Many(below), Memory::Many(above))
}

fn join_memory(below: Memory, above: Memory) -> Memory {
    let (Memory::Many(mut list), Memory::Many(mut rest)) = (below, above) else {
        return Memory::None; // Both were made lists.
    };
    for part in rest.drain() {
        drop(list.push(part));
    }
    Memory::Many(list)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use baio_engine::sim::{Disk, Sim};
    use baio_engine::{Engine, EngineOptions, File};

    use super::*;
    use crate::cache::CacheOptions;
    use crate::core::Core;
    use crate::identity::Access;

    thread_local! {
        /// How often an object was looked for among all.
        pub(super) static SEARCHES: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn an_object_is_looked_for_once_and_not_for_each_of_its_ios() {
        const FILES: u64 = 20;
        let config = EngineOptions {
            arena_bytes: 4 << 20,
            ..EngineOptions::default()
        };
        let engine = Engine::simulated(Sim::new(1).unwrap(), &config).unwrap();
        let mut core = Core::around(engine, None, &config);
        core.use_cache(&CacheOptions {
            bytes: 1 << 20,
            ..CacheOptions::default()
        })
        .unwrap();
        let disks: Vec<Disk> = (0..FILES).map(|_| Disk::new(1 << 20)).collect();
        let files = disks.iter().map(|disk| File::simulated(disk, "disk"));
        let handles: Vec<Handle> = files.map(|file| core.add_file(file, Access::Write)).collect();
        let writes = |core: &Core| core.cache_stats().unwrap().writes;
        for page in 0..5 {
            for &handle in &handles {
                let memory = core.buffer(4096).unwrap();
                let write = SegmentRequest {
                    mode: Mode::Cached,
                    durability: Durability::Data,
                    ..SegmentRequest::new(handle, SegmentOp::Write { offset: page * 4096 }, memory)
                };
                let ticket = core.start(write).unwrap();
                core.wait(ticket).unwrap().unwrap().result.unwrap();
            }
        }
        assert!(writes(&core) >= 5 * FILES, "{}", writes(&core));
        assert!(SEARCHES.get() <= FILES as usize, "{} searches", SEARCHES.get());
    }
}
