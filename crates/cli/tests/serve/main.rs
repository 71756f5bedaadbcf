//! `baio serve`: a broker, its clients, and how either ends.

#[path = "../support/mod.rs"]
mod support;

mod clients_die;
mod confined;
mod dies;
mod grants;
mod lives;
mod log_dies;
mod metrics;
mod python_client;
mod reconnect;
mod restarts;
mod segments;
mod status;
mod top;
