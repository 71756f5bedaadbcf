//! The seam between a file and what its bytes lie on.
//!
//! A [`File`](crate::File) is what everybody in a process shares: a name, and one memory of failed syncs. Below it is a
//! [`Device`], of which there are two sorts. An inode of this kernel (`file/inode.rs`) is reached by descriptors, and every
//! backend that makes system calls can run its requests. Anything else is foreign: a simulated disk (`backend/sim/disk.rs`),
//! later one over a network, or one of your own. No descriptor leads there, so it is served by a backend that knows it and
//! finds it behind the file ([`File::device`](crate::File::device)), an engine's own or a helper beside it (`backend/router.rs`); any
//! other ends its requests as `EBADF`.
//! `examples/ram/device.rs` is a device with its backend in less than a hundred lines, and keeps the contract of
//! `tests/contract/main.rs`.
//!
//! A device tells what it is and holds its lock. It moves no bytes: that is the backend's.
//!
//! | question | who asks | when |
//! |---|---|---|
//! | `identity`, `direct_limits`, `durable_by` | the file | once, when it is made; so the answers stay as long as it is there |
//! | `gives` | the engine | for each read, write and transfer, when it is submitted: must not wait |
//! | `size` | whoever holds the file | at any time; may wait, and may differ from the last time |
//! | `try_lock`, `unlock` | whoever owns what is in it, such as a volume | when it is opened and closed |
//!
//! By any thread that has the file, several at once: so a device is `Send` and `Sync`. An inode is asked by a plain call wherever a request
//! passes (`gives`, and its descriptors), never through a table of functions.
//!
//! A device lives until the last clone of its file is dropped. Each request in flight holds one in its slot, until the backend
//! has reported the end of its iteration: so none runs on a device that is being dropped.

use std::any::Any;

use crate::error::Errno;
use crate::policy::Caching;

/// What a file is, as far as I/O is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Anything else that can be read and written: pipes, sockets, terminals.
    Stream,
    /// No file of this kernel: a [`Device`] that its own backend serves, such as a simulated disk.
    Foreign,
}

/// What direct I/O on a file needs, in bytes (`STATX_DIOALIGN`, statx(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectLimits {
    /// Memory addresses are multiples of this.
    pub memory: u32,
    /// Offsets and lengths are multiples of this.
    pub offset: u32,
}

impl DirectLimits {
    /// Fits every device in use today; assumed where nothing can be learned.
    pub const SAFE: DirectLimits = DirectLimits {
        memory: 4096,
        offset: 4096,
    };
}

/// What makes a durable write to a file durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableBy {
    /// The flag of the write itself (`RWF_DSYNC`).
    Flag,
    /// A sync behind the write, which writes that end together share.
    Sync,
}

impl DurableBy {
    /// The word used in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DurableBy::Flag => "flag",
            DurableBy::Sync => "sync",
        }
    }
}

/// What the bytes of a file lie on. See the module for who asks what, and when.
pub trait Device: Any + Send + Sync {
    /// Equal for two devices that are one, and for no others: writes to one wait for abandoned writes to the other, and a
    /// cache knows by it what it has already. Inodes have the number of their file system first, block devices `u64::MAX`,
    /// simulated disks 0; another sort of device takes a number of its own.
    fn identity(&self) -> (u64, u64);

    /// Size in bytes.
    ///
    /// # Errors
    /// What the device said.
    fn size(&self) -> Result<u64, Errno>;

    /// What direct requests must be aligned to; others are refused as [`Misaligned`](crate::Error::Misaligned) before the
    /// backend sees them. Powers of two.
    fn direct_limits(&self) -> DirectLimits;

    /// Does a durable write end when it is durable, or must the engine sync behind it?
    fn durable_by(&self) -> DurableBy;

    /// Can requests of this mode be made? The others end as [`NoDescription`](crate::Error::NoDescription).
    fn gives(&self, caching: Caching) -> bool;

    /// Keeps others from opening it, without waiting: other readers too if `exclusive`. A device that others can reach must
    /// hold the lock until the last write under way has landed, also when this process is killed: whoever gets it next relies
    /// on that.
    ///
    /// # Errors
    /// `EAGAIN` when somebody has it; else what the device said.
    fn try_lock(&self, exclusive: bool) -> Result<(), Errno>;

    /// Gives the lock back at once, if it is held.
    fn unlock(&self);
}
