//! # baio: user-level asynchronous block I/O
//!
//! A *volume* is a file or device that many applications share; a *segment* is a named, contiguous run of its blocks with an
//! owner, who decides on its layout, its caching and its prefetching. Every request is asynchronous, and chooses its own
//! durability.
//!
//! ```
//! use baio::{Access, CreateOptions, Durability, Link, Local};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("baio-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("volume.img");
//! baio::format(&path, &baio::Format { size_bytes: Some(16 << 20), force: true, ..baio::Format::default() })?;
//! let volume = Local::open(&path)?;
//! volume.block_on(async {
//!     volume.create_segment("journal", &CreateOptions::of_size(1 << 20)).await?;
//!     let segment = volume.open_segment("journal", Access::Write).await?;
//!     let mut page = segment.buffer(4096)?;
//!     page.fill(7);
//!     let done = segment.write_at(8192, page).durable(Durability::Data).await?;
//!     assert_eq!(done.bytes, 4096);
//!     baio::Result::Ok(())
//! })??;
//! # volume.close()?;
//! # std::fs::remove_dir_all(dir)?;
//! # Ok(()) }
//! ```
//!
//! | name | what it is |
//! |---|---|
//! | [`Link`]: [`Local`], [`Remote`] | how a caller reaches a core: in its own thread, or on one of its own (`Send` and `Sync`) |
//! | [`Segment`], [`File`]: [`Opened`] | what was opened, and its requests |
//! | [`Request`], [`Done`], [`Failed`] | a request as a future, and how it ends |
//! | [`Operation`] | whatever else takes a while, as a future |
//! | [`IoBuf`], [`IoBufMut`] | what requests carry: any owned buffer |
//! | [`Pin`], [`Pool`] | pages of the cache, held and changed in place |
//! | [`Log`] | a durable log in a segment or file: appended without waiting, from any thread |
//! | [`Stream`], [`Event`] | sockets, pipes and timers in the loop of a local link |
//! | [`Options`]: [`Config`], [`Backend`], [`CacheConfig`] | how a link is opened: its size, its backend, its page cache |
//! | [`metrics`] | all counters, as Prometheus' text and on a socket (feature `metrics`) |
//!
//! | feature | what it adds; none is on by default |
//! |---|---|
//! | `tokio` | [`Local`] is driven by tokio's reactor (`Local::drive_tokio`); `Reader` and `Writer` have the traits of `tokio::io` |
//! | `futures-io` | `Reader` and `Writer` have the traits of `futures::io` |
//! | `bytes` | `Bytes` and `BytesMut` are buffers |
//! | `compio` | [`Local`] is driven by compio's runtime (`Local::drive_compio`); compio's buffers are buffers, as `Compio(buffer)`. Needs a newer Rust than the rest: compio does not say which, 1.95 does |
//! | `metrics` | [`Metrics`] as Prometheus' text, and on a socket |
//! | `tracing` | spans and events of links, operations and requests |

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
// An offset that wraps is somewhere else in the file: sums are checked, saturate, or say that they may wrap.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod alarm;
mod buffer;
#[cfg(feature = "compio")]
mod compio;
mod file;
mod link;
mod local;
mod local_io;
mod log;
pub mod metrics;
mod moment;
mod opened;
mod operation;
mod options;
mod ours;
mod pool;
#[cfg(any(feature = "compio", feature = "tokio"))]
mod reactor;
mod remote;
mod request;
mod result;
mod room;
mod segment;
#[cfg(any(feature = "futures-io", feature = "tokio"))]
mod stream;
#[cfg(feature = "tokio")]
mod tokio;
mod trace;

use std::path::Path;

// The engine's trait of that name is the other side of the choice; nobody meets it here.
pub use baio_engine::Choice as Backend;
// What the names below mention in their methods and fields is named here too.
pub use baio_engine::{
    Address, Affinity, Argument, Buffer, Caching, Config, Durability, Errno, Foreign, Frozen, Histogram, Lent, Memory,
    Region, SetupError, Span, Stats, Time, Vectored, Wait,
};
pub use baio_storage::cache::eviction::{Eviction, Hint, Policy};
pub use baio_storage::cache::window::Pattern;
pub use baio_storage::cache::{CacheConfig, CacheError, CacheStats, LentPages};
pub use baio_storage::log::{Hole, LogError, LogOptions, LogUsage, Lsn, Recovered, Retained};
pub use baio_storage::segment::layout::LayoutError;
pub use baio_storage::segment::name::NameError;
pub use baio_storage::{
    Access, Account, CheckProgress, CheckReport, Core, CreateOptions, DefragProgress, DefragReport, EVERYBODY_ELSE,
    Error, ErrorContext, Fault, Format, Handle, Identity, InUse, Limits, Mode, Outcome, PinnedPage, Pinning, Problem,
    ProblemPlace, Progress, Repair, ResizeOptions, Result, SegmentInfo, SegmentOp, SegmentRequest, Sight, Status,
    StatusWord, Ticket, Unmoved, Usage, VolumeInfo, VolumeView, Watch, Zeroing,
};
pub use baio_words::{IoError, OperationName, Ownership, OwnershipChange, RequestFault};
#[cfg(feature = "compio")]
pub use buffer::Compio;
pub use buffer::{IoBuf, IoBufMut, Owned, OwnedBytes, OwnedBytesMut};
pub use file::{File, OpenOptions};
pub use link::{FrozenVolume, Link};
pub use local::{Drive, Local};
pub use local_io::{Event, Stream, StreamRequest};
pub use log::{Durable, Log, LogEvents, LogRecord, NextRecord, Records, Room};
pub use metrics::Metrics;
pub use opened::Opened;
pub use operation::Operation;
pub use options::{MakeEviction, Options, Reconnect};
pub use pool::{PAGE, Pin, Pool};
pub use remote::{BrokerStatus, OwnerStatus, Remote};
pub use request::Request;
pub use result::{Done, Failed};
pub use segment::Segment;
#[cfg(any(feature = "futures-io", feature = "tokio"))]
pub use stream::{Reader, Writer};

/// Makes a volume in a file or device.
///
/// # Errors
/// It holds something already and force was not asked for, its size cannot be; or what the system said.
pub fn format(path: impl AsRef<Path>, options: &Format) -> Result<VolumeInfo> {
    Core::format(path.as_ref(), options)
}
