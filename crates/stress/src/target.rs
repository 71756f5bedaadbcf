//! How requests reach what they are made on. The loop knows only this; another kind of link is another implementation.

use std::path::Path;
use std::sync::Arc;

use baio_console::failure::Failure;
use baio_engine::{Config, Durability, Memory, Region, Stats, Wait};
use baio_storage::cache::CacheStats;
use baio_storage::{Error, Fault, SegmentOp};

use super::job::{Job, Lane};
use super::schedule::Piece;

mod on_core;
mod plain;
mod service;

pub(super) use on_core::OnCore;
pub(super) use plain::Plain;
pub(super) use service::Served;

/// The end of one request.
pub(super) struct Ended {
    pub(super) tag: u64,
    pub(super) memory: Memory,
    pub(super) result: Result<u32, Fault>,
}

/// The objects of one lane. Belongs to the lane's thread; so does the engine, unless it is shared.
pub(super) trait Target: Sized {
    /// What all lanes have together.
    type Shared: Send + Sync;

    /// Makes that, before any lane opens.
    fn share(job: &Job) -> Result<Self::Shared, Failure>;

    /// Opens everything that the lane of this number touches.
    fn open(job: &Job, lane: usize, shared: &Arc<Self::Shared>) -> Result<Self, Failure>;

    /// A buffer from this target's own memory.
    fn buffer(&mut self, len: usize) -> Option<Memory>;

    /// Queues a request; the loop never has more under way than the lane's depth.
    ///
    /// Gives the memory back when there is no slot, which is a mistake in the sizing, and when nothing is taken any more
    /// ([`refusal`](Target::refusal)).
    fn start(&mut self, piece: &Piece, memory: Memory, tag: u64) -> Result<(), Memory>;

    /// Why no request is taken any more; `None` as long as they are.
    fn refusal(&self) -> Option<Fault> {
        None
    }

    /// Submits what is queued and sleeps as long as `wait` allows.
    fn turn(&mut self, wait: Wait) -> Result<(), Fault>;

    /// The next end that a turn has found.
    fn next(&mut self) -> Option<Ended>;

    /// Makes durable what was written to an object, while nothing else is under way.
    fn sync(&mut self, object: usize, durability: Durability) -> Result<(), Fault>;

    fn stats(&self) -> Stats;

    /// Counters of our own cache, where requests go through it.
    fn cache_stats(&self) -> Option<CacheStats> {
        None
    }

    fn backend(&self) -> &'static str;

    /// Gives everything back.
    fn close(self) -> Result<(), Failure>;

    /// Gives back what was shared, when every lane has closed.
    fn end(shared: Arc<Self::Shared>) -> Result<(), Failure>;
}

/// Requests of a volume itself, beside the lane's.
const SLOTS_SPARE: u32 = 128;

/// What opening a volume needs beside the buffers.
const ARENA_SPARE: usize = 4 << 20;

/// Memory of the arena is handed out in words of this many bytes, which no large buffer shares.
const ARENA_WORD: u64 = 256 << 10;

/// Arenas up to this size are registered with the kernel, which pins them.
const REGISTERED_MAX: usize = 64 << 20;

/// An engine as large as the lane.
fn config(job: &Job, lane: &Lane) -> Config {
    let arena_bytes = ARENA_SPARE
        + if job.shared_memory {
            0
        } else {
            arena_bytes(job.request_size, lane.depth)
        };
    Config {
        backend: job.backend,
        slots: lane.depth + SLOTS_SPARE,
        reserved_slots: SLOTS_SPARE / 2,
        arena_bytes,
        register_arena: arena_bytes <= REGISTERED_MAX,
        ..Config::default()
    }
}

fn arena_bytes(request_size: u64, depth: u32) -> usize {
    let each = request_size.next_multiple_of(4096);
    let words = if each > ARENA_WORD / 2 {
        u64::from(depth) * each.div_ceil(ARENA_WORD)
    } else {
        u64::from(depth).div_ceil(ARENA_WORD / each)
    };
    (words * ARENA_WORD) as usize
}

/// The buffers of a lane: from its arena, or spans of one shared mapping.
pub(super) fn buffers(job: &Job, lane: &Lane, target: &mut impl Target) -> Result<Vec<Memory>, Failure> {
    let len = job.request_size as usize;
    let depth = lane.depth as usize;
    let refused = |said: String| {
        Failure::new(job.command, "ENOMEM", said)
            .on("the buffers")
            .needing(format!("{depth} buffers of {len} bytes"))
            .cured_by("choose a smaller depth or request size")
    };
    if !job.shared_memory {
        let each = (0..depth).map(|_| target.buffer(len));
        return each
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| refused("the arena has no room".to_owned()));
    }
    let step = len.next_multiple_of(4096) as u64;
    let region = Region::create(step as usize * depth).map_err(|error| refused(error.to_string()))?;
    (0..depth as u64)
        .map(|index| region.span(index * step, len as u32).map(Memory::Span))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| refused("the shared mapping has no room".to_owned()))
}

/// What a piece asks of a segment, or of a file on a core; only writes can be durable.
fn op_of(piece: &Piece, durability: Durability) -> (SegmentOp, Durability) {
    let offset = piece.offset;
    if piece.write {
        (SegmentOp::Write { offset }, durability)
    } else {
        (SegmentOp::Read { offset }, Durability::None)
    }
}

/// Tells why something could not be set up.
fn told(job: &Job, path: &Path, error: Error) -> Failure {
    Failure::from_storage(job.command, path.display().to_string(), &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_of_this_size_has_the_buffers() {
        for (size, depth) in [
            (512, 3),
            (4096, 1),
            (4096, 65),
            (12_288, 100),
            (65_536, 9),
            (135_168, 5),
            (1 << 20, 7),
        ] {
            let arena = baio_engine::Arena::new(arena_bytes(size, depth)).unwrap();
            let buffers: Vec<_> = (0..depth).map_while(|_| arena.buffer(size as usize)).collect();
            assert_eq!(buffers.len(), depth as usize, "{size} {depth}");
        }
    }
}
