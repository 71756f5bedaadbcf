//! The page cache: by itself, every I/O ended by hand, and through a core.

#[path = "../harness/allocations.rs"]
mod allocations;
#[path = "../harness/mod.rs"]
mod harness;

mod abandoned;
mod accounts;
mod any_mix;
mod bad_blocks;
mod beside;
mod buffer_pool;
mod bypass;
mod core_gates;
mod core_model;
mod early_turns;
mod forgets_files;
mod gate;
mod gates;
mod grows;
mod hints;
mod large_requests;
mod lend;
mod lend_threads;
mod log_distance;
mod many_objects;
mod model;
mod no_allocation;
mod of_owners;
mod pool;
mod pool_ends;
mod races;
mod read_ahead;
mod reads;
mod requests;
mod reservations;
mod rig;
mod scans;
mod segments;
mod syncs;
mod write_back;
mod write_through;
mod writes;
