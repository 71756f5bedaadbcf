//! The page cache: its pure parts. None of them does any I/O, takes a lock or knows the others.

pub mod eviction;
pub mod tree;
