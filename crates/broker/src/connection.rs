//! The client's end of a connection, and what lies between the two. In this release it lies on the heap of one process;
//! between processes the rings and the arena will lie in a sealed memfd, and the exchange will be gone.

use std::sync::Arc;
use std::thread::JoinHandle;

use baio_engine::{Arena, Doorbell};
use baio_ring::Shared;

use crate::control::Parcel;

/// What lies between a service and its client.
pub type Between = Shared<Parcel>;

/// The client's end.
pub struct Connection {
    /// What both sides use.
    pub shared: Arc<Between>,
    /// Wakes the service.
    pub doorbell: Doorbell,
    /// Buffers that requests move without a copy.
    pub arena: Arc<Arena>,
    /// The number in the handles that it gives.
    pub number: u32,
    /// What is served, for messages.
    pub name: String,
    /// The service's thread.
    pub thread: JoinHandle<()>,
}

#[cfg(test)]
mod tests {
    use baio_engine::{Choice, Engine, EngineOptions, Time};

    /// A client's deadline is of the clock that the service's engine looks at.
    #[test]
    fn a_client_reads_the_time_of_the_engine() {
        let config = EngineOptions {
            backend: Choice::Sync,
            ..EngineOptions::default()
        };
        let time = || Engine::new(&config).unwrap().now();
        let (before, between, after) = (time(), Time::monotonic(), time());
        assert!(
            before <= between && between <= after,
            "{before:?} {between:?} {after:?}"
        );
    }
}
