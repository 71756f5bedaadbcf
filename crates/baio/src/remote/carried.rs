//! What the client carries to a service of the same process.

use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::JoinHandle;

use baio_broker::{Connection, Served};
use baio_client::Carrier;
use baio_engine::{Arena, Doorbell, Memory};
use baio_storage::{Core, Handle, Outcome};
use baio_words::entry::Place;

/// Memory that goes through the exchange, named by its place in the service's arena where it has one, to a service of this
/// process that serves `S`.
// What that means: docs/decisions/0009-memory-moves-through-a-table.md
pub(super) struct Carried<S: Served> {
    doorbell: Doorbell,
    arena: Arc<Arena>,
    served: PhantomData<fn() -> S>,
}

pub(super) type Client = baio_client::Client<Carried<Core>>;

impl<S: Served + 'static> Carried<S> {
    /// A client of the service at the other end, and the service's thread. Whoever is the last to use it says
    /// [`stop`](baio_client::Client::stop) and joins.
    pub(super) fn client(connection: Connection<S>) -> (baio_client::Client<Carried<S>>, JoinHandle<()>) {
        let Connection {
            shared,
            doorbell,
            arena,
            number,
            name,
            thread,
        } = connection;
        let carried = Carried {
            doorbell,
            arena,
            served: PhantomData,
        };
        (baio_client::Client::new(carried, shared, number, name), thread)
    }

    /// Whose buffers move without a copy.
    #[must_use]
    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
}

impl<S: Served + 'static> Carrier for Carried<S> {
    type Memory = Memory;
    type Command = S::Command;
    type Reply = S::Answer;

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

    fn opened(answer: &S::Answer) -> Option<Handle> {
        S::opened(answer)
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
