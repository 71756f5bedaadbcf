//! What is asked besides requests, in the words of a core. How a core begins it and tells its end is in `control/doing.rs`.
//!
//! Every link hands the same [`Command`] to [`begin`]: the one in the caller's thread at once, the service when it has taken
//! it from the ring. Within one process commands travel as values through the exchange, announced by a control entry in the
//! ring. Between processes they are messages on the socket (`host/ask.rs`), checked before they become commands; what
//! runs code of the client ([`Command::Run`]) is for one process only.

use std::any::Any;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use baio_engine::{File, Memory, Open};
use baio_storage::cache::window::Pattern;
use baio_storage::log::{LogAnswer, LogOptions, LogRequest, LogStart, LogUsage};
use baio_storage::{
    Access, Account, CheckReport, Core, Counters, CreateOptions, DefragReport, Handle, HeldFreeze, HeldLog, HeldPage,
    Limits, LogClaim, LogId, OperationName, OwnershipChange, ResizeOptions, Result, SegmentInfo, VolumeView, Watch,
    log_request_name,
};
use baio_words::session::StatusWords;

mod doing;
mod waiting;

pub use self::doing::{Begun, Doing, begin};

/// What is asked.
pub enum Command {
    /// Make a segment.
    Create {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What it is to be like.
        options: CreateOptions,
        /// What its caller calls it.
        operation: OperationName,
    },
    /// Delete a segment.
    Delete {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What its caller calls it.
        operation: OperationName,
    },
    /// Give a segment another size.
    Resize {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What it is to be like.
        options: ResizeOptions,
        /// What its caller calls it.
        operation: OperationName,
    },
    /// Give a segment another name.
    Rename {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        old: String,
        /// Its new name.
        new: String,
        /// What its caller calls it.
        operation: OperationName,
    },
    /// Give a segment another owner, group or mode.
    ChangeOwnership {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What becomes another.
        change: OwnershipChange,
        /// What its caller calls it.
        operation: OperationName,
    },
    /// Open a segment.
    Open {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// To do what.
        access: Access,
    },
    /// Open this segment and no other, whatever its name is now.
    OpenKnown {
        /// Whose it is.
        owner_uid: u32,
        /// The name that it had.
        name: String,
        /// How it is to be used.
        access: Access,
        /// Which it is.
        uuid: [u8; 16],
    },
    /// Open a plain file, as the process of the core may.
    OpenFile {
        /// Where.
        path: PathBuf,
        /// How.
        options: Open,
        /// Cut it to no bytes first.
        truncate: bool,
    },
    /// Serve a file that is open already.
    AddFile {
        /// Which.
        file: File,
        /// To do what.
        access: Access,
    },
    /// The segments that the client may see.
    List,
    /// The volume as it is now.
    Info,
    /// What an owner holds and may hold.
    Quota {
        /// Who.
        uid: u32,
    },
    /// Set what an owner may hold.
    SetQuota {
        /// Who.
        uid: u32,
        /// In blocks and segments.
        limits: Limits,
    },
    /// Move segments towards the beginning of the volume, so that what is free is one run.
    Defrag,
    /// Read every copy of all metadata and compare, while the volume serves.
    Check,
    /// Keep the volume still, for a copy of its file.
    Freeze,
    /// All counters, and the backend's name.
    Counters,
    /// Who uses a broker, and how much.
    Status,
    /// Bytes behind a handle.
    Size(Handle),
    /// How a file or segment will be used.
    Hint {
        /// Which.
        handle: Handle,
        /// How.
        hint: Hint,
    },
    /// Hold a page in the cache.
    Pin {
        /// Of which file or segment.
        handle: Handle,
        /// Which: its first byte is at this number times 4096.
        page: u64,
        /// It is new, and counts as changed under this LSN: it is zero, and is not read.
        new: Option<u64>,
    },
    /// Wait until a held page can be changed under this LSN, and count it as changed.
    ChangeLater {
        /// Which.
        held: Arc<HeldPage>,
        /// Under which it is logged.
        lsn: u64,
    },
    /// Make safe what was changed under this LSN or before.
    FlushTo {
        /// Of which file or segment.
        handle: Handle,
        /// How far.
        lsn: u64,
    },
    /// The log is durable so far.
    DurableLsn(u64),
    /// Open the log in a segment or file, or make one.
    StartLog {
        /// Which.
        handle: Handle,
        /// Is it there?
        start: LogStart,
        /// What it is to be like.
        options: LogOptions,
    },
    /// Ask something of an open log.
    OnLog {
        /// Which.
        log: LogId,
        /// What.
        request: LogRequest,
    },
    /// Pages of a file or segment wait for an open log from now on.
    SetLog {
        /// Which.
        handle: Handle,
        /// For which.
        log: LogId,
    },
    /// How an open log stands.
    LogUsage(LogId),
    /// Have a segment for a log that is kept elsewhere.
    ClaimLog(Handle),
    /// Give it back: the handle of the claim.
    ReleaseLog(Handle),
    /// Run this on the core's thread. It must not block, and cannot use a link of the core.
    Run(Run),
    /// This command, and how far it is.
    Watched(Box<Command>, Watch),
    /// End what is under way, close the volume, end.
    Close,
}

/// What runs on a core's thread.
pub type Run = Box<dyn FnOnce(&mut Core) -> Box<dyn Any + Send> + Send + Sync>;

/// How a file or segment will be used. Pages are of 4 KiB, number 0 is the first.
#[derive(Clone, Debug)]
pub enum Hint {
    /// Bring these in.
    Prefetch(Vec<Range<u64>>),
    /// These will not be wanted again.
    Drop(Range<u64>),
    /// These stay.
    Keep(Range<u64>),
    /// These need not stay any more.
    KeepNoMore(Range<u64>),
    /// It will be read so.
    Pattern(Pattern),
}

/// What is answered.
pub enum Reply {
    /// A segment as it is now.
    Segment(SegmentInfo),
    /// A handle on it.
    Opened(Handle, SegmentInfo),
    /// A handle on a file.
    OpenedFile(Handle),
    /// The segments.
    Segments(Vec<SegmentInfo>),
    /// What a defragmentation has done.
    Defragged(DefragReport),
    /// What a check has found.
    Checked(Box<CheckReport>),
    /// The volume is still, until this is dropped.
    Frozen(HeldFreeze),
    /// The volume.
    Volume(VolumeView),
    /// What an owner holds and may hold.
    Account(Account),
    /// All counters, and the backend's name.
    Counters(Box<Counters>, &'static str),
    /// Who uses a broker.
    Status(StatusWords),
    /// Bytes, or pages.
    Count(u64),
    /// A held page, given back when this is dropped.
    Pinned(HeldPage),
    /// A log that was opened, wound down when this is dropped; and what was found.
    Log(HeldLog, LogAnswer),
    /// A log has done something.
    OnLog(LogAnswer),
    /// How a log stands.
    LogUsage(Box<LogUsage>),
    /// A segment is for a log of the caller's.
    LogClaimed(LogClaim),
    /// What came of running something; `Err` is its panic.
    Ran(std::thread::Result<Box<dyn Any + Send>>),
    /// It is done.
    Done,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

impl Command {
    /// Is it a request of the buffer pool, which takes one of the core's slots?
    #[must_use]
    pub fn needs_a_slot(&self) -> bool {
        matches!(
            self,
            Command::Pin { .. } | Command::FlushTo { .. } | Command::ChangeLater { .. }
        )
    }

    /// Gives it a name, if it is an operation that can have one.
    pub fn give_name(&mut self, name: OperationName) {
        match self {
            Command::Create { operation, .. }
            | Command::Delete { operation, .. }
            | Command::Resize { operation, .. }
            | Command::Rename { operation, .. }
            | Command::ChangeOwnership { operation, .. } => *operation = name,
            Command::Watched(command, _) => command.give_name(name),
            _ => {}
        }
    }

    /// What is being done, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Command::Create { .. } => "create",
            Command::Delete { .. } => "delete",
            Command::Resize { .. } => "resize",
            Command::Rename { .. } => "rename",
            Command::ChangeOwnership { .. } => "change the ownership of",
            Command::Open { .. } | Command::OpenKnown { .. } | Command::OpenFile { .. } | Command::AddFile { .. } => {
                "open"
            }
            Command::List => "list",
            Command::Info | Command::Counters | Command::Status => "stat",
            Command::Quota { .. } => "show the quota",
            Command::SetQuota { .. } => "set the quota",
            Command::Defrag => "defragment",
            Command::Check => "check",
            Command::Freeze => "freeze",
            Command::Size(_) => "measure",
            Command::Hint { .. } => "hint",
            Command::Pin { .. } => "pin",
            Command::ChangeLater { .. } => "change",
            Command::FlushTo { .. } => "flush",
            Command::DurableLsn(_) => "note the durable LSN",
            Command::StartLog { start, .. } => start.name(),
            Command::OnLog { request, .. } => log_request_name(request),
            Command::SetLog { .. } => "put under a log",
            Command::LogUsage(_) => "look at the log in",
            Command::ClaimLog(_) => "open the log in",
            Command::ReleaseLog(_) => "close the log in",
            Command::Run(_) => "run",
            Command::Watched(command, _) => command.name(),
            Command::Close => "close",
        }
    }
}

/// What waits in the exchange.
pub type Parcel = baio_ring::exchange::Parcel<Memory, Command, Result<Reply>>;

impl Reply {
    /// The handle that it gives: to be closed when nobody takes it.
    #[must_use]
    pub fn handle(&self) -> Option<Handle> {
        match self {
            Reply::Opened(handle, _) | Reply::OpenedFile(handle) => Some(*handle),
            Reply::LogClaimed(claim) => Some(claim.handle),
            _ => None,
        }
    }
}
