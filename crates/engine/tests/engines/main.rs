//! Engines: one end for each request, from whatever thread, and what is measured of them.

#[path = "../backends/mod.rs"]
mod backends;

mod any_thread;
mod dependencies;
mod exactly_once;
mod measures;
mod threads_and_their_ends;
