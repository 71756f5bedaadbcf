//! # baio-broker: a core on a thread of its own
//!
//! A [`Service`](service) turns a storage core on its own thread; a client reaches it through two rings, an arena and two
//! doorbells. In this release both live in one process. What lies between them is what a broker between processes will
//! use: fixed-size entries in memory that a peer may scribble over, copied once and then checked.
//!
//! | module | what it is | imports |
//! |---|---|---|
//! | [`ring`] | a queue in shared memory, by reference | nothing |
//! | [`doorbell`] | the client's wake-up; the service's is the engine's own | the system |
//! | [`exchange`] | where memory changes sides, within one process | nothing |
//! | [`connection`] | the two ends of a connection | the above |
//! | [`control`] | what is asked besides requests, in the words of the volume | storage |
//! | [`service`] | the thread that serves | storage and the above |
//!
//! What lies in the entries is said by [`baio_words::entry`]. The client is the library's `Remote`; neither side imports the other. `docs/broker.md` tells who wakes whom.
//!
//! Sources: seed 004 §5 (a service thread that shares the application's memory), §4 and §6 (many requests in one call).

/// The atomics that [`ring`] uses: std's here, the model checker's in `tests/ring_loom.rs`.
mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

pub mod connection;
pub mod control;
pub mod doorbell;
pub mod exchange;
pub mod ring;
pub mod service;

pub use connection::Connection;
pub use service::{Setup, start};
