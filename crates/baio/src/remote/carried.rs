//! What the client carries to a service: of the same process, or a broker.

use std::sync::Arc;
use std::thread::JoinHandle;

use baio_broker::Connection;
use baio_broker::control::{Call, Reply};
use baio_client::{Carrier, Unsynced};
use baio_engine::{Arena, Doorbell, Memory};
use baio_storage::{Handle, Outcome, Result};
use baio_words::entry::{HandleWords, Place, Tag};
use baio_words::{Errno, RequestFault, SegmentOp};

use super::again;
use super::far::Far;

/// Memory that is named by its place in the arena, where it has one. To a service of this process it goes through the exchange, and so
/// does memory without a place; to a broker nothing else goes.
// What that means: docs/decisions/0009-memory-moves-through-a-table.md
pub(super) struct Carried {
    pub(super) way: Way,
}

/// To whom.
pub(super) enum Way {
    /// A thread of this process.
    Here(Doorbell, Arc<Arena>),
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
            way: Way::Here(doorbell, arena),
        };
        (Client::new(carried, shared, number, name), thread)
    }

    /// Whose buffers move without a copy.
    #[must_use]
    pub(super) fn arena(&self) -> Arc<Arena> {
        self.with_arena(Arc::clone)
    }

    fn with_arena<T>(&self, look: impl FnOnce(&Arc<Arena>) -> T) -> T {
        match &self.way {
            Way::Here(_, arena) => look(arena),
            Way::Far(far) => look(&far.arena()),
        }
    }

    /// Is it memory that the service cannot be shown where it lies?
    pub(super) fn must_copy(&self, memory: &Memory) -> bool {
        self.is_far() && matches!(self.place(memory), Place::Exchange { .. })
    }

    pub(super) fn far(&self) -> Option<&Far> {
        match &self.way {
            Way::Here(..) => None,
            Way::Far(far) => Some(far),
        }
    }
}

impl Carrier for Carried {
    type Memory = Memory;
    type Command = Call;
    type Reply = Result<Reply>;

    /// Lengths beyond 32 bits are refused by the engine; here they only must not look shorter.
    fn place(&self, memory: &Memory) -> Place {
        let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        match memory {
            Memory::None => Place::Nowhere,
            Memory::Own(buffer) if self.with_arena(|arena| buffer.is_of(arena)) => Place::Arena {
                at: buffer.place(),
                len,
            },
            _ => Place::Exchange { len },
        }
    }

    fn ring(&self) {
        match &self.way {
            Way::Here(doorbell, _) => doorbell.ring(),
            Way::Far(far) => far.ring(),
        }
    }

    fn opened(answer: &Result<Reply>) -> Option<Handle> {
        answer.as_ref().ok()?.handle()
    }

    fn is_far(&self) -> bool {
        self.far().is_some()
    }

    fn send(&self, tag: Tag, call: &Call) {
        if let Some(far) = self.far() {
            far.send(tag, call);
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

    fn has_just_ended(&self) -> bool {
        self.far().is_some_and(|far| far.wire().has_just_gone())
    }

    fn looks_for_another(&self) -> bool {
        self.far().is_some_and(Far::looks_for_another)
    }

    fn words(&self, handle: Handle) -> std::result::Result<HandleWords, RequestFault> {
        self.far().map_or(Ok(handle.into()), |far| far.words(handle))
    }

    fn close(&self, handle: Handle) -> Option<HandleWords> {
        self.far().map_or(Some(handle.into()), |far| far.close(handle))
    }

    fn unsynced(&self, handle: Handle) -> Option<Arc<Unsynced>> {
        self.far()?.unsynced(handle)
    }

    fn again(&self, call: &mut Call) -> bool {
        again::may_ask_again(call)
    }

    fn in_place_of(&self, memory: &Memory, op: SegmentOp) -> std::result::Result<Option<Memory>, Errno> {
        let Some(far) = self.far().filter(|far| far.goes_on()) else {
            return Ok(None);
        };
        let arena = far.arena();
        match memory {
            // Only the arena of a session before this one: other memory is copied before it comes here.
            Memory::Own(buffer) if !buffer.is_of(&arena) => {
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
