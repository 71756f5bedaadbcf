//! Bytes in order: a reader and a writer over a range of an opened segment or file, for code that speaks the traits of
//! `futures::io` or of tokio.
//!
//! | file | what it is |
//! |---|---|
//! | `line.rs` | requests that are under way, in the order of their bytes |
//! | `reader.rs` | [`Reader`]: reads several pieces ahead |
//! | `writer.rs` | [`Writer`]: keeps several pieces on their way |
//! | `with_futures.rs` | their `futures_io` traits (feature `futures-io`) |
//! | `with_tokio.rs` | their tokio traits (feature `tokio`) |
//!
//! A piece is [`PIECE`] bytes, and but for the odd ends begins and ends at a multiple of [`PAGE`], as direct requests need it.

mod line;
mod reader;
#[cfg(feature = "futures-io")]
mod with_futures;
#[cfg(feature = "tokio")]
mod with_tokio;
mod writer;

use crate::pool::PAGE;

pub use reader::Reader;
pub use writer::Writer;

/// Bytes of one request of a reader or writer.
const PIECE: usize = 128 << 10;

/// Requests of a stream that are under way at a time, unless it is told otherwise.
const DEPTH: usize = 8;

/// How far a byte is behind the beginning of its page.
fn in_page(at: u64) -> usize {
    const WITHIN: u64 = PAGE as u64 - 1;
    (at & WITHIN) as usize
}

/// Where its page begins.
fn page_of(at: u64) -> u64 {
    at.saturating_sub(in_page(at) as u64)
}
