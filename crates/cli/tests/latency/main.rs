//! `baio latency`: writes posted at once, and appends beside peers.

#[path = "../support/mod.rs"]
mod support;

mod appends;
mod refusals;
mod schedulers;
mod writes;
