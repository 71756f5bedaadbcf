//! What the client carries to a service: of the same process, or a broker.

use std::sync::Arc;
use std::thread::JoinHandle;

use baio_broker::control::{Command, Reply};
use baio_broker::{Connection, Served};
use baio_client::Carrier;
use baio_engine::{Arena, Doorbell, Memory};
use baio_storage::{Core, Handle, Outcome, Result};
use baio_words::entry::{Place, Tag};

use super::far::Far;

/// Memory that is named by its place in the arena, where it has one. To a service of this process it goes through the exchange, and so
/// does memory without a place; to a broker nothing else goes.
// What that means: docs/decisions/0009-memory-moves-through-a-table.md
pub(super) struct Carried {
    pub(super) way: Way,
    pub(super) arena: Arc<Arena>,
}

/// To whom.
pub(super) enum Way {
    /// A thread of this process.
    Here(Doorbell),
    /// A broker.
    Far(Far),
}

pub(super) type Client = baio_client::Client<Carried>;
pub(super) type Between = baio_client::Between<Carried>;

impl Carried {
    /// A client of the service at the other end, and the service's thread. Whoever is the last to use it says
    /// [`stop`](baio_client::Client::stop) and joins.
    pub(super) fn client(connection: Connection<Core>) -> (Client, JoinHandle<()>) {
        let Connection {
            shared,
            doorbell,
            arena,
            number,
            name,
            thread,
        } = connection;
        let carried = Carried {
            way: Way::Here(doorbell),
            arena,
        };
        (Client::new(carried, shared, number, name), thread)
    }

    /// Whose buffers move without a copy.
    #[must_use]
    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Is it memory that the service cannot be shown where it lies?
    pub(super) fn must_copy(&self, memory: &Memory) -> bool {
        self.is_far() && matches!(self.place(memory), Place::Exchange { .. })
    }

    fn far(&self) -> Option<&Far> {
        match &self.way {
            Way::Here(_) => None,
            Way::Far(far) => Some(far),
        }
    }
}

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
        match &self.way {
            Way::Here(doorbell) => doorbell.ring(),
            Way::Far(far) => far.ring(),
        }
    }

    fn opened(answer: &Result<Reply>) -> Option<Handle> {
        <Core as Served>::opened(answer)
    }

    fn is_far(&self) -> bool {
        self.far().is_some()
    }

    fn send(&self, tag: Tag, command: &Command) {
        if let Some(far) = self.far() {
            far.send(tag, command);
        }
    }

    fn call_off(&self, tag: Tag) {
        if let Some(far) = self.far() {
            far.call_off(tag);
        }
    }

    fn next_reply(&self) -> Option<(Tag, Result<Reply>)> {
        self.far()?.next_reply()
    }

    fn has_ended(&self) -> bool {
        self.far().is_some_and(Far::has_ended)
    }

    fn hang_up(&self) {
        if let Some(far) = self.far() {
            far.hang_up();
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
