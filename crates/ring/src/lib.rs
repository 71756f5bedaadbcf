//! # baio-ring: what lies between a client and a service
//!
//! Fixed-size entries in memory that a peer may scribble over, copied once and then checked. Within one process it lies on the
//! heap; between processes in a sealed memfd: a [`ring::Ring`] refers to its words, wherever they are.
//!
//! | module | what it is | imports |
//! |---|---|---|
//! | [`ring`] | a queue in shared memory, by reference | nothing |
//! | [`heap`], [`lane`] | the memory of a ring: of one process, or of two | the shared memory |
//! | [`layout`] | where all of it lies in the memory of two | the words |
//! | [`session`] | that memory, as each side has it | the above |
//! | [`bell`] | the client's wake-up; the service's is its engine's own | the system |
//! | [`exchange`] | where memory changes sides, within one process | nothing |
//! | [`shared`] | all of it together | the above, the words |
//!
//! What lies in the entries is said by [`baio_words::entry`]. `docs/inside/broker.md` tells who wakes whom.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

/// The atomics of [`ring`], [`heap`] and [`shared`]: std's here, a model's where a test includes the files (`tests/ring_loom.rs`).
mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

pub mod bell;
pub mod exchange;
pub mod heap;
pub mod lane;
pub mod layout;
pub mod ring;
pub mod session;
pub mod shared;

pub use bell::{Bell, FarBell};
pub use lane::Lane;
pub use layout::Layout;
pub use session::SessionMemory;
pub use shared::Shared;
