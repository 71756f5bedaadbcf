//! # baio-broker: a service on a thread of its own
//!
//! A [`Service`](service) turns a volume's core on a thread of its own. A client reaches it through two rings, an arena and two doorbells
//! ([`baio_ring`]). Here both live in one process; [`host`] has clients of other processes. What lies between them is the same: fixed-size entries in memory that a peer may
//! scribble over, copied once and then checked.
//!
//! | module | what it is | imports |
//! |---|---|---|
//! | `served` | what the service and the broker share: ends as entries, wake-ups, the close of a core | storage |
//! | `seat` | one client's requests: taken, held, ended, posted | the above, ring, words |
//! | [`service`] | the thread that serves | the above |
//! | [`connection`] | the client's end of a connection | the above |
//! | [`host`] | the broker: one core for many clients of other processes | the above |
//! | [`control`] | what is asked of a core besides requests, and how that begins and ends | storage |
//! | `opening` | a file is opened by a thread of its own | storage |
//!
//! The client is the library's `Remote`; neither side imports the other. `docs/inside/broker.md` tells who wakes whom.
//!
//! Sources: seed 004 §5 (a service thread that shares the application's memory), §4 and §6 (many requests in one call).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod connection;
pub mod control;
pub mod host;
mod opening;
mod seat;
mod served;
pub mod service;

pub use connection::Connection;
pub use service::{Setup, start};
