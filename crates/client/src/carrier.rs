//! What differs from service to service.

use std::sync::Arc;

use baio_ring::Shared;
use baio_ring::exchange::Parcel;
use baio_words::entry::{HandleWords, Place, Tag};
use baio_words::{Errno, Handle, Payload, RequestFault, SegmentOp};

use crate::unsynced::Unsynced;

/// How requests reach a service, and what else it can be asked.
pub trait Carrier: Send + Sync + Sized + 'static {
    /// What requests carry.
    type Memory: Payload + Send + 'static;
    /// What the service can be asked besides requests.
    type Command: Send + 'static;
    /// What it answers.
    type Reply: Send + 'static;
    /// What changes with the service, and is looked at for each request: it lies behind the client's one lock. A forked child has the default.
    type Kept: Default + Send + 'static;

    /// Where an entry says that this memory is: `Nowhere` for none, which then does not go through the exchange.
    fn place(&self, kept: &Self::Kept, memory: &Self::Memory) -> Place;

    /// Wakes the service. Called by any thread, with no lock held.
    fn ring(&self);

    /// The handle that an answer gives. It is closed when whoever asked has left.
    fn opened(reply: &Self::Reply) -> Option<Handle>;

    /// Is the service another process? Then commands are messages, and do not go through the exchange; what does is the client's own
    /// memory, which waits there for the end of its request.
    fn is_far(&self) -> bool {
        false
    }

    /// Far: sends a command under this tag, now or as soon as there is room. It waits for nobody. Called with the client's lock held,
    /// as are all below.
    fn send(&self, kept: &mut Self::Kept, tag: Tag, command: &Self::Command) {
        let _ = (kept, tag, command);
    }

    /// Far: the command under this tag is to end early, if it can.
    fn call_off(&self, tag: Tag) {
        let _ = tag;
    }

    /// Far: the next reply that has come. What announces completions is read by this too, so the ring is looked at afterwards.
    fn next_reply(&self, kept: &mut Self::Kept) -> Option<(Tag, Self::Reply)> {
        let _ = kept;
        None
    }

    /// Far: is nobody there any more?
    fn has_ended(&self) -> bool {
        false
    }

    /// Far: nothing is to be heard from the service any more, which was wrong.
    fn hang_up(&self) {}

    /// Far: from now on each piece of memory that comes back is counted, and rings the bell; or not any more.
    fn await_memory(&self, awaited: bool) {
        let _ = awaited;
    }

    /// Far: how often memory came back since this was asked last.
    fn memory_came(&self) -> usize {
        0
    }

    // For a client that goes on with the next service: `again.rs`.

    /// Far: is a command kept until it is answered, since it may be asked again?
    fn keeps_commands(&self) -> bool {
        false
    }

    /// Far: the places of the commands that it was given and has not sent yet, in their order: no service knows of them.
    fn unsent(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Far: the same as [`Carrier::has_ended`], by a look at the socket itself.
    fn has_just_ended(&self) -> bool {
        self.has_ended()
    }

    /// Far: the session has ended. True: another one is being looked for; [`Client::resume`](crate::Client::resume) or
    /// [`Client::give_up`](crate::Client::give_up) follows.
    fn looks_for_another(&self) -> bool {
        false
    }

    /// How the service knows a handle.
    ///
    /// # Errors
    /// Why nothing can be asked by it any more.
    fn words(&self, kept: &Self::Kept, handle: Handle) -> Result<HandleWords, RequestFault> {
        let _ = kept;
        Ok(handle.into())
    }

    /// A handle is closed: what the service is told, if it has it.
    fn close(&self, kept: &mut Self::Kept, handle: Handle) -> Option<HandleWords> {
        let _ = kept;
        Some(handle.into())
    }

    /// What is counted of cached writes by a handle.
    fn unsynced(&self, kept: &Self::Kept, handle: Handle) -> Option<Arc<Unsynced>> {
        let _ = (kept, handle);
        None
    }

    /// Makes a command that was sent to a service which has ended one that may be sent to the next. False: it may not.
    fn again(&self, command: &mut Self::Command) -> bool {
        let _ = command;
        false
    }

    /// Memory that the service of now can be shown, in the place of what only an earlier one could be: with the same bytes, if they are to be written.
    /// `Ok(None)`: it can be shown this one.
    ///
    /// # Errors
    /// There is no room for it.
    fn in_place_of(
        &self,
        kept: &Self::Kept,
        memory: &Self::Memory,
        op: SegmentOp,
    ) -> Result<Option<Self::Memory>, Errno> {
        let _ = (kept, memory, op);
        Ok(None)
    }

    /// Copies the first `bytes` that were read into memory which went in the place of the caller's own.
    fn copy_back(&self, own: &mut Self::Memory, used: &Self::Memory, bytes: usize) {
        let _ = (own, used, bytes);
    }
}

/// What lies between a client and its service.
pub type Between<K> = Shared<Parcel<<K as Carrier>::Memory, <K as Carrier>::Command, <K as Carrier>::Reply>>;
