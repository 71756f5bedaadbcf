//! What differs from service to service.

use baio_ring::Shared;
use baio_ring::exchange::Parcel;
use baio_words::entry::Place;
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
}

/// What lies between a client and its service.
pub type Between<K> = Shared<Parcel<<K as Carrier>::Memory, <K as Carrier>::Command, <K as Carrier>::Reply>>;
