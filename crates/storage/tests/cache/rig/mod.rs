//! What the tests of the cache share: a device in memory, and the handling of an I/O's memory.

pub(crate) mod device;
pub(crate) mod hand;
pub(crate) mod world;

use std::sync::Arc;

use baio_engine::{Arena, Buffer, Memory};
use baio_storage::cache::eviction::Hint;
use baio_storage::cache::{Cache, CacheOp, CacheRequest, Io, ObjectId, RequestId};

pub(crate) use crate::harness::Random;

pub(crate) const PAGE: usize = 4096;

/// Copies `from` into the memory of a read, part by part.
pub(crate) fn fill(memory: &mut Memory, from: &[u8]) {
    match memory {
        Memory::Own(buffer) => {
            let len = buffer.len().min(from.len());
            buffer[..len].copy_from_slice(&from[..len]);
        }
        foreign @ Memory::Foreign(_) => foreign.copy_in_at(0, from),
        Memory::Many(list) => {
            let mut at = 0;
            let parts: Vec<Memory> = list.drain().collect();
            for mut part in parts {
                let len = part.len();
                fill(&mut part, &from[at.min(from.len())..(at + len).min(from.len())]);
                at += len;
                list.push(part).unwrap();
            }
        }
        other => panic!("a read into {other:?}"),
    }
}

/// The bytes of a write.
pub(crate) fn bytes(memory: &Memory) -> Vec<u8> {
    match memory {
        Memory::Shared(frozen) => frozen.to_vec(),
        Memory::Own(buffer) => buffer.to_vec(),
        Memory::Many(list) => list.parts().iter().flat_map(bytes).collect(),
        other => panic!("a write from {other:?}"),
    }
}

pub(crate) fn buffer(arena: &Arc<Arena>, len: usize) -> Buffer {
    arena.buffer(len).expect("the arena of the requests is used up")
}

/// Asks for one thing, as the only caller.
pub(crate) fn ask(cache: &mut Cache, object: ObjectId, op: CacheOp, memory: Memory) -> RequestId {
    ask_with(cache, object, op, memory, Hint::Normal)
}

pub(crate) fn ask_with(cache: &mut Cache, object: ObjectId, op: CacheOp, memory: Memory, hint: Hint) -> RequestId {
    let request = CacheRequest {
        object,
        op,
        memory,
        hint,
    };
    cache.start(0, request)
}

/// Ends an I/O well; a read gives the bytes that lie there.
pub(crate) fn end_well(cache: &mut Cache, io: Io) {
    let len = io.memory.len() as u32;
    cache.io_ended(io.id, Ok(len), io.memory);
}

/// Ends all of them, and those that come of it.
pub(crate) fn end_all(cache: &mut Cache) {
    while let Some(io) = cache.next_io() {
        end_well(cache, io);
    }
}
