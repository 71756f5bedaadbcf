//! # baio-memory: what processes share
//!
//! | file | what it holds |
//! |---|---|
//! | `mapping.rs` | a range of mapped memory |
//! | `cells.rs` | many cells of it copied at once |
//! | `region.rs` | memory that a peer may write at any time: a sealed memfd, words and cells in it, spans of its bytes |
//! | `error.rs` | why a region could not be had |
//!
//! No engine stands below it: a program that only speaks to a service needs it too.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cells;
mod error;
mod mapping;
mod region;

pub use error::RegionError;
pub use mapping::Mapping;
pub use region::{Region, Span};
