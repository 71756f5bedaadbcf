//! What the client carries to a service: of the same process, or a broker.

use std::sync::Arc;
use std::thread::JoinHandle;

use baio_broker::Connection;
use baio_broker::control::{Call, Reply};
use baio_client::{Carrier, Unsynced};
use baio_engine::{Arena, Doorbell, Memory};
use baio_storage::{Handle, Outcome, Result};
use baio_words::entry::{HandleWords, Place, Tag};
use baio_words::{Errno, OperationName, RequestFault, SegmentOp};

use super::far::{Current, Far};

/// Memory that is named by its place in the arena, where it has one. To a service of this process it goes through the exchange, and so
/// does memory without a place; to a broker nothing else goes.
// What that means: docs/inside/decisions/0009-memory-moves-through-a-table.md
pub(super) struct Carried {
    pub(super) way: Way,
}

/// To whom.
pub(super) enum Way {
    /// A thread of this process.
    Here(Doorbell),
    /// A broker.
    Far(Box<Far>),
}

pub(super) type Client = baio_client::Client<Carried>;
pub(super) type Between = baio_client::Between<Carried>;

impl Carried {
    /// A client of the service at the other end, and the service's thread. Whoever is the last to use it says
    /// [`stop`](baio_client::Client::stop) and joins.
    pub(super) fn client(connection: Connection) -> (Client, JoinHandle<()>) {
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
        };
        (Client::new(carried, Current::here(arena), shared, number, name), thread)
    }

    pub(super) fn far(&self) -> Option<&Far> {
        match &self.way {
            Way::Here(_) => None,
            Way::Far(far) => Some(far),
        }
    }
}

impl Carrier for Carried {
    type Memory = Memory;
    type Command = Call;
    type Reply = Result<Reply>;
    type Kept = Current;

    /// Lengths beyond 32 bits are refused by the engine; here they only must not look shorter.
    fn place(&self, kept: &Current, memory: &Memory) -> Place {
        let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        match memory {
            Memory::None => Place::Nowhere,
            Memory::Own(buffer) if kept.is_shown(buffer) => Place::Arena {
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
        answer.as_ref().ok()?.handle()
    }

    fn is_far(&self) -> bool {
        self.far().is_some()
    }

    fn send(&self, kept: &mut Current, tag: Tag, call: &Call) {
        if let Some(far) = self.far() {
            far.send(kept, tag, call);
        }
    }

    fn call_off(&self, tag: Tag) {
        if let Some(far) = self.far() {
            far.call_off(tag);
        }
    }

    fn next_reply(&self, kept: &mut Current) -> Option<(Tag, Result<Reply>)> {
        self.far()?.next_reply(kept)
    }

    fn has_ended(&self) -> bool {
        self.far().is_some_and(Far::has_ended)
    }

    fn hang_up(&self) {
        if let Some(far) = self.far() {
            far.hang_up();
        }
    }

    fn await_memory(&self, awaited: bool) {
        if let Some(far) = self.far() {
            far.await_memory(awaited);
        }
    }

    fn memory_came(&self) -> usize {
        self.far().map_or(0, Far::memory_came)
    }

    fn keeps_commands(&self) -> bool {
        self.far().is_some_and(Far::goes_on)
    }

    fn unsent(&self) -> Vec<u32> {
        self.far().map_or_else(Vec::new, |far| far.wire().unsent())
    }

    fn has_just_ended(&self) -> bool {
        self.far().is_some_and(|far| far.wire().has_just_gone())
    }

    fn looks_for_another(&self) -> bool {
        self.far().is_some_and(Far::looks_for_another)
    }

    fn words(&self, kept: &Current, handle: Handle) -> std::result::Result<HandleWords, RequestFault> {
        self.far().map_or(Ok(handle.into()), |far| far.words(kept, handle))
    }

    fn close(&self, kept: &mut Current, handle: Handle) -> Option<HandleWords> {
        self.far().map_or(Some(handle.into()), |far| far.close(kept, handle))
    }

    /// Others than those of a link that goes on are not among the handles.
    fn unsynced(&self, kept: &Current, handle: Handle) -> Option<Arc<Unsynced>> {
        kept.handles.unsynced(handle)
    }

    /// False: nobody knows whether it was done, and it has no name by which that could be seen.
    fn again(&self, call: &mut Call) -> bool {
        // How far one is, no broker tells.
        let Call::Command(command) = call else { return false };
        match command.name_mut() {
            Some(operation) => {
                *operation = OperationName::again(operation.id);
                operation.id != OperationName::NONE.id
            }
            None => command.only_looks(),
        }
    }

    fn in_place_of(
        &self,
        kept: &Current,
        memory: &Memory,
        op: SegmentOp,
    ) -> std::result::Result<Option<Memory>, Errno> {
        let Some(arena) = kept.arena.as_ref().filter(|_| self.keeps_commands()) else {
            return Ok(None);
        };
        match memory {
            // Only the arena of a session before this one: other memory is copied before it comes here.
            Memory::Own(buffer) if !buffer.is_of(arena) => {
                let mut other = arena.buffer(buffer.len()).ok_or(Errno::ENOBUFS)?;
                if op.changes_bytes() {
                    other.copy_from_slice(buffer);
                }
                Ok(Some(Memory::Own(other)))
            }
            _ => Ok(None),
        }
    }

    fn copy_back(&self, own: &mut Memory, used: &Memory, bytes: usize) {
        if let Memory::Own(used) = used {
            own.copy_in_at(0, &used[..bytes.min(used.len())]);
        }
    }
}

/// Whose buffers move without a copy.
pub(super) fn arena_of(client: &Client) -> Option<Arc<Arena>> {
    client.kept(|kept, _| kept.arena.clone())
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
