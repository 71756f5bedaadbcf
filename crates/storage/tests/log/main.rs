//! The log: by itself on a device in memory, and in the segment of a core.

#[path = "../harness/allocations.rs"]
mod allocations;
#[path = "../harness/mod.rs"]
mod harness;

mod alone;
mod appends;
mod claims;
mod crashes;
mod endings;
mod epochs;
mod forged;
mod format;
mod gone;
mod growth;
mod held_log;
mod hostile;
mod in_a_core;
mod let_go;
mod no_allocation;
mod rig;
mod short_writes;
mod sleepers;
mod slow_writes;
mod small_blocks;
mod space;
mod tail;
mod unreadable;
mod wakers;
mod zeroes;
