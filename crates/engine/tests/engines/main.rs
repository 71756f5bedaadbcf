//! Engines: from whatever thread they are used, how they end, and what is measured of them.

#[path = "../backends/mod.rs"]
mod backends;

mod any_thread;
mod dependencies;
mod measures;
mod threads_and_their_ends;
