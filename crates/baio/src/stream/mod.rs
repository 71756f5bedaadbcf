//! Bytes in order: a reader and a writer over a range of an opened segment or file, for code that speaks the traits of
//! `futures::io` or of tokio.
//!
//! | file | what it is |
//! |---|---|
//! | `pieces.rs` | how bytes are cut into requests |
//! | `line.rs` | requests that are under way, in the order of their bytes |
//! | `reader.rs` | [`Reader`]: reads several pieces ahead |
//! | `writer.rs` | [`Writer`]: keeps several pieces on their way |
//! | `with_futures.rs` | their `futures_io` traits (feature `futures-io`) |
//! | `with_tokio.rs` | their tokio traits (feature `tokio`) |

mod line;
mod pieces;
mod reader;
#[cfg(feature = "futures-io")]
mod with_futures;
#[cfg(feature = "tokio")]
mod with_tokio;
mod writer;

pub use reader::Reader;
pub use writer::Writer;
