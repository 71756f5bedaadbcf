//! Commands: everything that is asked of a core besides requests. `control/doing.rs` has how a core begins one and reports its end.
//!
//! A [`Command`] of `baio-words` can be asked of every core, over every link. A link in the caller's thread begins it at once. A service
//! begins it when it has taken it from the exchange (a control entry in the ring announces it), and a broker when it has read it from its
//! socket. A [`Call`] is either a command or something that only makes sense within one process: files, pinned pages, logs of the core, code
//! of the caller's.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use baio_engine::{File, Memory, Open};
use baio_storage::log::{LogAnswer, LogOptions, LogRequest, LogStart, LogUsage};
use baio_storage::{
    Access, Answer, Command, Core, Counters, Handle, HeldFreeze, HeldLog, HeldPage, LogId, OperationName, Result,
    Watch, log_request_name,
};

mod doing;

pub use self::doing::{Begun, Doing, begin};

/// What is asked of a core of this process.
pub enum Call {
    /// What any core can be asked.
    Command(Command),
    /// The same, and how far it is.
    Watched(Command, Watch),
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
    /// All counters, and the backend's name.
    Counters,
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
    /// Run this on the core's thread. It must not block, and cannot use a link of the core.
    Run(Run),
    /// End what is under way, close the volume, end.
    Close,
}

/// What runs on a core's thread.
pub type Run = Box<dyn FnOnce(&mut Core) -> Box<dyn Any + Send> + Send + Sync>;

/// What is answered.
pub enum Reply {
    /// What any core can answer, but a freeze: that is `Frozen`.
    Answer(Answer),
    /// The volume is still, until this is dropped.
    Frozen(HeldFreeze),
    /// A handle on a file.
    OpenedFile(Handle),
    /// All counters, and the backend's name.
    Counters(Box<Counters>, &'static str),
    /// A held page, given back when this is dropped.
    Pinned(HeldPage),
    /// A log that was opened, wound down when this is dropped; and what was found.
    Log(HeldLog, LogAnswer),
    /// A log has done something.
    OnLog(LogAnswer),
    /// How a log stands.
    LogUsage(Box<LogUsage>),
    /// What came of running something; `Err` is its panic.
    Ran(std::thread::Result<Box<dyn Any + Send>>),
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

impl From<Command> for Call {
    fn from(command: Command) -> Call {
        Call::Command(command)
    }
}

impl Call {
    /// Is it a request of the buffer pool, which takes one of the core's slots?
    #[must_use]
    pub fn needs_a_slot(&self) -> bool {
        matches!(self, Call::Pin { .. } | Call::FlushTo { .. } | Call::ChangeLater { .. })
    }

    /// The command that it is, watched or not.
    pub fn command_mut(&mut self) -> Option<&mut Command> {
        match self {
            Call::Command(command) | Call::Watched(command, _) => Some(command),
            _ => None,
        }
    }

    /// Has `watch` told how far it is, if it is something that can tell.
    pub fn watch(&mut self, watch: &Watch) {
        if let Call::Command(command) = self {
            *self = Call::Watched(command.clone(), watch.clone());
        }
    }

    /// Gives it a name, if it is an operation that can have one.
    pub fn give_name(&mut self, name: OperationName) {
        if let Some(operation) = self.command_mut().and_then(Command::name_mut) {
            *operation = name;
        }
    }

    /// What is being done, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Call::Command(command) | Call::Watched(command, _) => command.operation(),
            Call::OpenFile { .. } | Call::AddFile { .. } => "open",
            Call::Counters => "stat",
            Call::Pin { .. } => "pin",
            Call::ChangeLater { .. } => "change",
            Call::FlushTo { .. } => "flush",
            Call::DurableLsn(_) => "note the durable LSN",
            Call::StartLog { start, .. } => start.name(),
            Call::OnLog { request, .. } => log_request_name(request),
            Call::SetLog { .. } => "put under a log",
            Call::LogUsage(_) => "look at the log in",
            Call::Run(_) => "run",
            Call::Close => "close",
        }
    }
}

/// What waits in the exchange.
pub type Parcel = baio_ring::exchange::Parcel<Memory, Call, Result<Reply>>;

impl Reply {
    /// It is done.
    pub const DONE: Reply = Reply::Answer(Answer::Done);

    /// Is that all it says?
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Reply::Answer(Answer::Done))
    }

    /// The handle that it gives: to be closed when nobody takes it.
    #[must_use]
    pub fn handle(&self) -> Option<Handle> {
        match self {
            Reply::Answer(answer) => answer.handle(),
            Reply::OpenedFile(handle) => Some(*handle),
            _ => None,
        }
    }
}
