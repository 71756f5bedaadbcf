//! Turns that wait, and loops outside that sleep: who must wake them, and when.

#[path = "../backends/mod.rs"]
mod backends;

mod outside_loops;
mod turns;
mod wait_model;
