//! What differs from service to service.

use baio_ring::Shared;
use baio_ring::exchange::Parcel;
use baio_words::entry::{Place, Tag};
use baio_words::{Handle, Payload};

/// How requests reach a service, and what else it can be asked.
pub trait Carrier: Send + Sync + Sized + 'static {
    /// What requests carry.
    type Memory: Payload + Send + 'static;
    /// What the service can be asked besides requests.
    type Command: Send + 'static;
    /// What it answers.
    type Reply: Send + 'static;

    /// Where an entry says that this memory is: `Nowhere` for none, which then does not go through the exchange.
    fn place(&self, memory: &Self::Memory) -> Place;

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
    fn send(&self, tag: Tag, command: &Self::Command) {
        let _ = (tag, command);
    }

    /// Far: the command under this tag is to end early, if it can.
    fn call_off(&self, tag: Tag) {
        let _ = tag;
    }

    /// Far: the next reply that has come. What announces completions is read by this too, so the ring is looked at afterwards.
    fn next_reply(&self) -> Option<(Tag, Self::Reply)> {
        None
    }

    /// Far: is nobody there any more?
    fn has_ended(&self) -> bool {
        false
    }

    /// Far: nothing is to be heard from the service any more, which was wrong.
    fn hang_up(&self) {}
}

/// What lies between a client and its service.
pub type Between<K> = Shared<Parcel<<K as Carrier>::Memory, <K as Carrier>::Command, <K as Carrier>::Reply>>;
