//! Files: the mode that each really gives, what the page cache can answer, and what is durable on it.

#[path = "../backends/mod.rs"]
mod backends;

mod durable_on_fuse;
mod one_device_two_nodes;
mod probe;
mod trial;
