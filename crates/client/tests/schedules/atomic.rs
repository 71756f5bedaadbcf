//! The ring's atomics. The words of the cells are std's: the counters alone order them, and `ring_loom.rs` checks that.

pub(crate) use std::sync::atomic::AtomicU64;

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
