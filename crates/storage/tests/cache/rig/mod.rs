//! What the tests of the cache share: a device in memory, and the handling of an I/O's memory.

pub(crate) mod device;
pub(crate) mod hand;
pub(crate) mod world;

use std::sync::Arc;

use baio_engine::{Arena, Buffer, Memory};

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
