//! The page cache: its pure parts. None of them does any I/O, takes a lock or knows the others.
//!
//! | module | what it is |
//! |---|---|
//! | [`tree`] | which frame holds which page, and which pages are dirty |
//! | [`eviction`] | which page leaves when a frame is wanted |
//! | [`window`] | which pages to read before anyone asks |
//!
//! Sources: seed 001 §3 for readahead, §6 for the tagged tree.

pub mod eviction;
pub mod tree;
pub mod window;
