//! # baio: user-level asynchronous block I/O
//!
//! A *volume* is a file or device that many applications share; a *segment* is a named, contiguous run of its blocks with an
//! owner, who decides on its layout, its caching and its prefetching. Every request is asynchronous, and chooses its own
//! durability.
//!
//! ```
//! use baio::{Access, CreateOptions, Durability, Local};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("baio-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("volume.img");
//! baio::format(&path, &baio::Format { size_bytes: Some(16 << 20), force: true, ..baio::Format::default() })?;
//! let volume = Local::open(&path)?;
//! volume.create_segment("journal", &CreateOptions::of_size(1 << 20))?;
//! let segment = volume.open_segment("journal", Access::Write)?;
//! let mut page = segment.buffer(4096)?;
//! page.fill(7);
//! let outcome = volume.block_on(segment.write_durable_at(8192, page, Durability::Data))?;
//! assert_eq!(outcome.result?, 4096);
//! # volume.close()?;
//! # std::fs::remove_dir_all(dir)?;
//! # Ok(()) }
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `link` | how a caller reaches a core |
//! | `local` | the core in the caller's own thread; `block_on`, `drive` |
//! | `remote` | a core on a thread of its own: `Send` and `Sync`, no driver needed |
//! | `segment` | an opened segment and its requests |
//! | [`service`] | plain files served by a thread of their own, without a volume |
//! | [`metrics`] | all counters at one moment; as text and on a socket (feature `metrics`) |
//! | `future` | a request as a future |
//! | `tokio` | a driver for tokio's reactor (feature `tokio`) |

mod alarm;
mod buffer;
mod file;
mod link;
mod local;
pub mod metrics;
mod opened;
mod operation;
mod options;
mod pool;
mod remote;
mod request;
mod result;
mod room;
mod segment;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "told of by links and futures, which do not call it yet")
)]
mod trace;

use std::path::Path;

pub use baio_engine::{
    Buffer, Caching, Choice, Config, Durability, Errno, Frozen, Memory, Stats, Time, Vectored, Wait,
};
pub use baio_storage::cache::eviction::{Eviction, Hint, Policy};
pub use baio_storage::cache::window::Pattern;
pub use baio_storage::cache::{CacheConfig, CacheError, CacheStats, LentPages};
pub use baio_storage::{
    Access, Account, Core, CreateOptions, Error, ErrorContext, Fault, Format, Handle, Identity, Limits, Mode, Outcome,
    PinnedPage, Pinning, ResizeOptions, Result, SegmentInfo, SegmentOp, SegmentRequest, Status, StatusWord, Ticket,
    VolumeInfo, VolumeView, Zeroing,
};
pub use buffer::{IoBuf, IoBufMut};
pub use file::{File, OpenOptions};
pub use link::{FrozenVolume, Link};
pub use local::{Drive, Local};
pub use metrics::Metrics;
pub use opened::Opened;
pub use operation::Operation;
pub use options::{MakeEviction, Options};
pub use pool::{PAGE, Pin, Pool};
pub use remote::Remote;
pub use request::Request;
pub use result::{Done, Failed};
pub use segment::Segment;

/// Makes a volume in a file or device.
///
/// # Errors
/// It holds something already and force was not asked for, its size cannot be; or what the system said.
pub fn format(path: impl AsRef<Path>, options: &Format) -> Result<VolumeInfo> {
    Core::format(path.as_ref(), options)
}
