//! What the client carries to a service of the same process.

use std::sync::Arc;

use baio_broker::control::{Command, Reply};
use baio_client::Carrier;
use baio_engine::{Arena, Doorbell, Memory};
use baio_storage::{Handle, Outcome, Result};
use baio_words::entry::Place;

/// Memory that goes through the exchange, named by its place in the service's arena where it has one
/// (`docs/decisions/0009-memory-moves-through-a-table.md`).
pub(super) struct Carried {
    pub(super) doorbell: Doorbell,
    pub(super) arena: Arc<Arena>,
}

pub(super) type Client = baio_client::Client<Carried>;

impl Carrier for Carried {
    type Memory = Memory;
    type Command = Command;
    type Reply = Result<Reply>;

    /// Lengths beyond 32 bits are refused by the engine; here they only must not look shorter.
    fn place(&self, memory: &Memory) -> Place {
        let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        match memory {
            Memory::None => Place::Nowhere,
            Memory::Own(buffer) if buffer.is_of(&self.arena) => Place::Arena {
                at: buffer.place(),
                len,
            },
            _ => Place::Exchange { len },
        }
    }

    fn ring(&self) {
        self.doorbell.ring();
    }

    fn opened(reply: &Result<Reply>) -> Option<Handle> {
        match reply {
            Ok(Reply::Opened(handle, _)) => Some(*handle),
            _ => None,
        }
    }
}

/// The same as on the other links.
pub(super) fn outcome(ended: baio_words::Outcome<Memory>) -> Outcome {
    Outcome {
        ticket: ended.ticket,
        tag: ended.tag,
        result: ended.result.map_err(Into::into),
        bytes_done: ended.bytes_done,
        memory: ended.memory,
        took: ended.took,
        iterations: ended.iterations,
        pin: None,
    }
}
