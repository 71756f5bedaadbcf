//! Simulated disks: the time they take, their faults, their power, and equal stories for equal seeds.

#[path = "../backends/mod.rs"]
mod backends;

mod faults;
mod lifetimes;
mod power;
mod profiles;
mod replay;
