//! A service thread, and a broker: who waits for it, who shares it, how it ends.

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod event;
mod far;
mod far_cache;
mod far_memory;
mod far_status;
mod joined;
mod one_lock;
mod threads;
mod waits;
