//! Asynchronous file and disk I/O for Linux. No read or write blocks your thread, cached or not, and each write can say when it must
//! be safe on the disk.
//!
//! Open a *link*: [`Local`] works in your thread, [`Remote`] on a thread of its own. On a link you open files, segments and logs. Whatever takes
//! a while is a future: await it, or call `.wait()`. A request takes its buffer, and its result gives it back. The [`guide`] says
//! which link, which cache, when a write is safe, and how errors, many requests and deadlines are handled.
//!
//! # A plain file
//!
//! ```
//! use baio::{Durability, File, Link, Local};
//! # fn main() -> baio::Result<()> {
//! # let path = std::env::temp_dir().join(format!("baio-front-file-{}", std::process::id()));
//! let link = Local::new()?;
//! link.block_on(async {
//!     let file = File::options().write().create().open(&link, &path).await?;
//!     // When this ends, it survives a power cut.
//!     file.write_all_at(0, b"hello, disk".to_vec()).durable(Durability::Data).await?;
//!     let read = file.read_at(7, vec![0; 100]).await?;
//!     assert_eq!(&read.buffer[..read.bytes], b"disk");
//!     baio::Result::Ok(())
//! })??;
//! # std::fs::remove_file(&path).unwrap();
//! link.close()
//! # }
//! ```
//!
//! # A durable log
//!
//! Records from any thread, in order, each safe when its wait ends. Kill the program and run it again: it finds all of these.
//!
//! ```
//! use baio::{File, Link, LogOptions, Remote};
//! # fn main() -> baio::Result<()> {
//! # let path = std::env::temp_dir().join(format!("baio-front-log-{}", std::process::id()));
//! let link = Remote::new()?;
//! let file = File::options().write().create().open(&link, &path).wait()?;
//! let options = LogOptions { file_bytes: 4 << 20, ..LogOptions::default() };
//! let log = file.open_or_create_log(&options).wait()?;
//!
//! // What earlier runs have left, however they ended.
//! let mut records = log.records(log.head_lsn());
//! while let Some(record) = records.next_record().wait()? {
//!     println!("{}", String::from_utf8_lossy(record.payload()));
//! }
//! log.append(b"debit 5")?; // In memory. Never waits.
//! log.append_durable(b"credit 5").wait()?; // Safe, and everything before it.
//! # drop((records, log, file));
//! # std::fs::remove_file(&path).unwrap();
//! link.close()
//! # }
//! ```
//!
//! # A segment, with a page cache
//!
//! A *volume* is a file or disk that holds *segments*: named parts, each with an owner, a mode and a quota. Several users and programs can share one.
//!
//! ```
//! use baio::{Access, CreateOptions, Durability, FormatOptions, Link, LinkOptions, Local};
//! # fn main() -> baio::Result<()> {
//! # let path = std::env::temp_dir().join(format!("baio-front-volume-{}", std::process::id()));
//! baio::format(&path, &FormatOptions::of_size(16 << 20))?;
//! let volume = Local::open_with(&path, &LinkOptions::default().with_cache(4 << 20))?;
//! volume.block_on(async {
//!     volume.create_segment("journal", &CreateOptions::of_size(1 << 20)).await?;
//!     let segment = volume.open_segment("journal", Access::Write).await?;
//!     for number in 0..100_u64 {
//!         // Ends when it is copied.
//!         segment.write_at(number * 8, number.to_le_bytes().to_vec()).cached().await?;
//!     }
//!     // When this ends, all hundred are safe, by few writes of the disk.
//!     segment.sync(Durability::Data).cached().await?;
//!     baio::Result::Ok(())
//! })??;
//! # volume.close()?;
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(()) }
//! ```
//!
//! # What is here for programs
//!
//! | to | take |
//! |---|---|
//! | reach the disk | [`Link`]: [`Local`], [`Remote`]; opened with [`LinkOptions`], [`EngineOptions`], [`CacheOptions`] |
//! | use a plain file or a device | [`File`], [`OpenOptions`] |
//! | use a volume | [`format()`], [`FormatOptions`], [`check()`]; [`Segment`], [`Access`], [`CreateOptions`], [`ResizeOptions`], [`SegmentInfo`], [`VolumeView`], [`Limits`] |
//! | read, write, sync | the methods of [`Opened`], which files and segments share; [`Request`], [`Done`], [`Failed`]; [`Mode`], [`Durability`] |
//! | create, resize, list, ... | the methods of [`Link`]; [`Operation`] |
//! | keep records | [`Log`], [`LogOptions`], [`Records`], [`Lsn`] |
//! | keep pages in place, as a database does | [`Pin`], [`Pool`], [`PAGE`] |
//! | bring your own buffers | [`IoBuf`], [`IoBufMut`], [`Owned`]; [`Buffer`] is the link's own |
//! | use sockets, pipes and timers in a local link's loop | [`Stream`], [`Event`] |
//! | handle an error | [`Error`], [`Fault`], [`Errno`] |
//! | see what goes on | [`Metrics`], [`metrics`], [`CacheStats`], [`LogUsage`], [`BrokerStatus`] |
//!
//! # What is here for makers of tools
//!
//! Tickets as with io_uring ([`SegmentRequest`], [`SegmentOp`], [`Ticket`], [`Outcome`], [`Wait`], [`StatusWord`]), memory that is not the link's
//! ([`Memory`], [`Region`], [`Span`], [`Foreign`], [`Frozen`], [`Vectored`]), pages that are lent ([`LentPages`]), eviction policies of your own
//! ([`Eviction`]), and the [`Core`] below a link, for simulations.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | what it adds |
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
mod fired;
#[cfg(any(doc, doctest))]
#[doc = include_str!("guide.md")]
pub mod guide {}
mod link;
mod local;
mod local_io;
mod log;
pub mod metrics;
mod moment;
mod object;
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
mod transport;

use std::path::Path;

// The engine's trait of that name is the other side of the choice; nobody meets it here.
pub use baio_engine::Choice as Backend;
// What the names below mention in their methods and fields is named here too.
pub use baio_engine::{
    Address, Affinity, Argument, Buffer, Caching, Durability, EngineOptions, Errno, Foreign, Frozen, Histogram, Lent,
    Memory, Region, SetupError, Span, Stats, Time, Vectored, Wait,
};
pub use baio_storage::cache::eviction::{Eviction, Hint, Policy};
pub use baio_storage::cache::window::Pattern;
pub use baio_storage::cache::{CacheError, CacheOptions, CacheStats, LentPages};
pub use baio_storage::log::{Hole, LogError, LogLook, LogOptions, LogUsage, Lsn, Recovered, Retained};
pub use baio_storage::segment::layout::LayoutError;
pub use baio_storage::segment::name::{NameError, SegmentName};
pub use baio_storage::{
    Access, Account, CheckProgress, CheckReport, Core, CreateOptions, DefragProgress, DefragReport, EVERYBODY_ELSE,
    Error, ErrorContext, Fault, FormatOptions, Handle, Identity, InUse, Limits, Mode, NO_GROUP, Outcome, PinnedPage,
    Pinning, Problem, ProblemPlace, Progress, Repair, ResizeOptions, Result, SegmentInfo, SegmentOp, SegmentRequest,
    Sight, Status, StatusWord, StillVolume, Ticket, Unmoved, Usage, VOLUME_BYTES_MIN, VolumeInfo, VolumeView, Watch,
    Zeroing, check, holds_volume,
};
pub use baio_words::session::{BrokerStatus, OwnerStatus};
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
pub use options::{LinkOptions, MakeEviction, Reconnect};
pub use pool::{PAGE, Pin, Pool};
pub use remote::Remote;
pub use request::Request;
pub use result::{Done, Failed};
pub use segment::Segment;
#[cfg(any(feature = "futures-io", feature = "tokio"))]
pub use stream::{Reader, Writer};

/// Makes a volume in a file or device.
///
/// # Errors
/// It holds something already and force was not asked for, its size cannot be; or what the system said.
pub fn format(path: impl AsRef<Path>, options: &FormatOptions) -> Result<VolumeInfo> {
    Core::format(path.as_ref(), options)
}
