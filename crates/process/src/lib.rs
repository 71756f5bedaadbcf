//! # baio-process: what we take of the process that we run in
//!
//! Threads, descriptors and signals belong to the program. A library may have some of its own if the program never notices.
//!
//! | module | what it is |
//! |---|---|
//! | [`descriptor`] | the one way to make a descriptor that stays: above standard error, closed by exec |
//! | [`fork`] | is this still the process in which something was made? |
//! | [`kernel`] | what a kernel may lack, and what is done instead: one table |
//! | [`memory_limit`] | what the memory cgroup allows, and does the system count memory strictly? |
//! | [`thread`] | the one way to start a thread: no signal reaches it, it has a name, it is counted |
//! | [`signals`] | signals kept from a thread, or from a whole program of ours |
//!
//! `clippy.toml` refuses what goes round these modules.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod descriptor;
pub mod fork;
pub mod kernel;
pub mod memory_limit;
pub mod signals;
pub mod thread;
