//! # baio-broker: a core on a thread of its own
//!
//! A [`Service`](service) turns a storage core on its own thread; a client reaches it through two rings, an arena and two
//! doorbells ([`baio_ring`]). In this release both live in one process. What lies between them is what a broker between
//! processes will use: fixed-size entries in memory that a peer may scribble over, copied once and then checked.
//!
//! | module | what it is | imports |
//! |---|---|---|
//! | [`connection`] | the client's end of a connection | engine, ring |
//! | [`control`] | what is asked besides requests, in the words of the volume | storage |
//! | [`service`] | the thread that serves | storage and the above |
//!
//! The client is the library's `Remote`; neither side imports the other. `docs/broker.md` tells who wakes whom.
//!
//! Sources: seed 004 §5 (a service thread that shares the application's memory), §4 and §6 (many requests in one call).

pub mod connection;
pub mod control;
pub mod service;

pub use connection::Connection;
pub use service::{Setup, start};
