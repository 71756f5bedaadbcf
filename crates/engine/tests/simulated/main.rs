//! Simulated disks: the time they take, their faults and their power. That equal seeds tell equal stories is the explorer's
//! (`crates/sim/src/engine`).

#[path = "../backends/mod.rs"]
mod backends;

mod faults;
mod lifetimes;
mod power;
mod profiles;
mod several;
