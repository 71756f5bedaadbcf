//! # baio-storage: what one process needs
//!
//! A volume holds segments: named, contiguous runs of blocks with an owner. [`Core`] opens one, makes, opens and deletes its
//! segments, and carries requests on them, all on one engine and in one thread.
//!
//! | module | what it is |
//! |---|---|
//! | [`core`](Core) | engine and volume together, driven by turns |
//! | `request` | requests on handles, their outcomes, the status word |
//! | `crossing` | what passes between the two halves of a core |
//! | `object` | opened segments and files |
//! | `slot_map` | values by number, with generations |
//! | `operation/` | create, open, resize, rename, delete, quota and others, each an `async fn` that the core polls |
//! | `volume/` | opening, healing, closing, formatting, inspecting |
//! | [`cache`] | the page cache, without any I/O |
//! | [`log`] | the durable log, without any I/O |
//! | [`segment`] | the format on disk, without any I/O |
//! | `identity` | who asks, and what they may |
//!
//! Sources: seed 004 (BAIO) §4 for segments, capabilities and batches, §5 for the structure on disk.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod cache;
mod core;
mod crossing;
mod error;
mod holds;
mod identity;
pub mod log;
mod object;
mod operation;
mod request;
pub mod segment;
mod slot_map;
mod volume;

/// Is this bug in the code? Only in a build that tests the crash explorer, with `--cfg baio_seeded_bugs`, and there the one
/// that the environment names; else the compiler takes all of it out.
#[inline]
fn seeded_bug(name: &str) -> bool {
    #[cfg(baio_seeded_bugs)]
    {
        static BUG: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        BUG.get_or_init(|| std::env::var("BAIO_SEEDED_BUG").unwrap_or_default()) == name
    }
    #[cfg(not(baio_seeded_bugs))]
    {
        let _ = name;
        false
    }
}

pub use crate::core::Core;
pub use crate::core::commands::Begun;
pub use crate::core::counters::{Counters, LogCounters, RequestCounters, VolumeCounters};
pub use crate::core::lane::logs::{HeldLog, LogId, LogQuestion, LogReply, log_request_name};
pub use crate::core::looks::StillVolume;
pub use crate::core::pool::Pinning;
pub use crate::core::{HeldFreeze, HeldPage};
pub use crate::core::{OperationId, Watch};
pub use crate::operation::defrag::{DefragProgress, DefragReport, Unmoved};
pub use baio_words::{Access, Command, Hint, Identity, OwnershipChange, Sight};
pub use error::{Error, ErrorContext, Fault, Result};
pub use operation::create::{CreateOptions, NO_GROUP};
pub use operation::fill::Zeroing;
pub use operation::repeat::OperationName;
pub use operation::resize::ResizeOptions;
pub use operation::{Answer, Progress};
pub use request::{Handle, Mode, Outcome, PinnedPage, SegmentOp, SegmentRequest, Status, StatusWord, Ticket};
pub use volume::accounts::{Account, EVERYBODY_ELSE, Limited, Limits, OverQuota, Usage};
pub use volume::beside::Seen;
pub use volume::check::{CheckProgress, CheckReport, Problem, ProblemPlace, Repair, check, check_on};
pub use volume::device::Device;
pub use volume::format::{FormatOptions, format_on};
pub use volume::inspect::{
    InUse, SegmentInfo, VOLUME_BYTES_MIN, VolumeInfo, VolumeView, holds_volume, inspect_on, inspect_volume_on,
};
