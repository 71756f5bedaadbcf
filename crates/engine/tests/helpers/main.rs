//! Backends from outside, alone or as helpers of one of the engine's own.

#[path = "../backends/mod.rs"]
mod backends;

mod beside;
mod far;
mod own_backends;
mod that_err;
