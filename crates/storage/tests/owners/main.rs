//! Who has a volume, a segment, a block: one at a time, and the others are told no more than is theirs. Stories that need other processes, or root, are here.

#[path = "../harness/mod.rs"]
mod harness;

mod block_device;
mod everybody_else;
mod late_device;
mod late_writes;
mod looks_beside_the_owner;
mod one_owner;
mod starting;
mod strangers;
mod tenants;
