//! `baio latency`: single requests and appends, beside peers.

#[path = "../support/mod.rs"]
mod support;

mod appends;
mod refusals;
mod schedulers;
mod single;
mod writes;
