//! What a kernel, a container or a policy may lack or refuse, and what an engine makes of it.

#![allow(unsafe_code)]

#[path = "../backends/mod.rs"]
mod backends;
#[path = "../environment/config.rs"]
mod config;
#[path = "../contract/device.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod device;
#[path = "../environment/filter.rs"]
mod filter;
#[path = "../environment/young.rs"]
mod young;

mod as_on_older_kernels;
mod chooses_what_works;
mod young_calls;
