//! What is asked besides requests, in the words of a core; and how a core begins it and tells its end.
//!
//! Every link hands the same [`Command`] to [`begin`]: the one in the caller's thread at once, the service when it has taken
//! it from the ring. Within one process commands travel as values through the exchange, announced by a control entry in the
//! ring. Between processes they will be messages on the socket, where names and identities can be checked at leisure; what
//! runs code of the client ([`Command::Run`]) is for one process only.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Poll, Waker};

use baio_engine::{File, Memory, Open};
use baio_storage::cache::window::Pattern;
use baio_storage::log::{LogAnswer, LogOptions, LogRequest, LogUsage};
use baio_storage::{
    Access, Account, Answer, CheckReport, Core, Counters, CreateOptions, DefragReport, Error, Fault, Handle,
    HeldFreeze, HeldLog, HeldPage, Identity, Limits, LogClaim, LogId, LogQuestion, LogReply, OperationId,
    OperationName, Pinning, ResizeOptions, Result, SegmentInfo, Ticket, VolumeView, Watch, log_request_name,
};
use baio_words::session::StatusWords;

mod waiting;

use self::waiting::Waiting;
use crate::opening::Opening;

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
    /// Make a log in a segment or file.
    CreateLog {
        /// Which.
        handle: Handle,
        /// What it is to be like.
        options: LogOptions,
    },
    /// Open the log in a segment or file.
    OpenLog {
        /// Which.
        handle: Handle,
        /// How.
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
            | Command::Rename { operation, .. } => *operation = name,
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
            Command::CreateLog { .. } => "create the log in",
            Command::OpenLog { .. } => "open the log in",
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

/// What becomes of a command.
#[derive(Debug)]
pub enum Begun {
    /// It takes turns: [`Doing::poll`].
    Doing(Doing),
    /// It is done.
    Answered(Result<Reply>),
    /// The core is to be closed, when nothing is under way any more.
    Close,
}

/// A command under way on a core.
#[derive(Debug)]
pub enum Doing {
    /// As an operation.
    Operation(OperationId),
    /// As a request: of the buffer pool.
    Request(Ticket),
    /// By a log.
    Log(LogQuestion),
    /// A thread opens a file.
    Opening(Opening),
    /// As a request that waits for a slot.
    Waiting(Waiting),
}

/// Begins a command of `who`. Nothing here waits for a device.
pub fn begin(core: &mut Core, who: Identity, command: Command) -> Begun {
    if command.needs_a_slot() && core.is_full() {
        return Begun::Doing(Doing::Waiting(Waiting::new(who, command)));
    }
    let operation = match command {
        Command::Create {
            owner_uid,
            name,
            options,
            operation,
        } => core.begin_create_as(who, owner_uid, &name, &options, operation),
        Command::Delete {
            owner_uid,
            name,
            operation,
        } => core.begin_delete_as(who, owner_uid, &name, operation),
        Command::Resize {
            owner_uid,
            name,
            options,
            operation,
        } => core.begin_resize_as(who, owner_uid, &name, &options, operation),
        Command::Rename {
            owner_uid,
            old,
            new,
            operation,
        } => core.begin_rename_as(who, owner_uid, &old, &new, operation),
        Command::Open {
            owner_uid,
            name,
            access,
        } => core.begin_open(who, owner_uid, &name, access),
        Command::OpenKnown {
            owner_uid,
            name,
            access,
            uuid,
        } => core.begin_open_known(who, owner_uid, &name, access, uuid),
        Command::SetQuota { uid, limits } => core.begin_set_quota(who, uid, limits),
        Command::List => core.begin_list(who),
        Command::Defrag => core.begin_defrag(who),
        Command::Check => core.begin_check(who),
        Command::Freeze => core.begin_freeze(who),
        Command::OpenFile {
            path,
            options,
            truncate,
        } => return Begun::Doing(Doing::Opening(Opening::begin(core, path, options, truncate))),
        Command::Pin { handle, page, new } => return pin(core, handle, page, new),
        Command::FlushTo { handle, lsn } => {
            let ticket = core.flush_to(handle, lsn);
            return requested(core, ticket);
        }
        Command::ChangeLater { held, lsn } => {
            let Some(pin) = held.pin() else {
                return Begun::Answered(Ok(Reply::Done)); // It is being dropped: nobody waits.
            };
            let ticket = core.change_later(pin, lsn);
            return requested(core, ticket);
        }
        Command::Watched(command, watch) => {
            return match begin(core, who, *command) {
                Begun::Doing(Doing::Operation(id)) => {
                    core.watch_operation(&id, watch);
                    Begun::Doing(Doing::Operation(id))
                }
                other => other,
            };
        }
        Command::CreateLog { handle, options } => return of_log(core.begin_create_log(handle, &options)),
        Command::OpenLog { handle, options } => return of_log(core.begin_open_log(handle, &options)),
        Command::OnLog { log, request } => return of_log(core.begin_on_log(log, request)),
        Command::Close => return Begun::Close,
        at_once => return Begun::Answered(answer(core, who, at_once)),
    };
    match operation {
        Ok(id) => Begun::Doing(Doing::Operation(id)),
        Err(error) => Begun::Answered(Err(error)),
    }
}

/// What needs no device.
fn answer(core: &mut Core, who: Identity, command: Command) -> Result<Reply> {
    match command {
        Command::AddFile { file, access } => Ok(Reply::OpenedFile(core.add_file(file, access))),
        Command::Info => core.volume_view(who).map(Reply::Volume),
        Command::Quota { uid } => core.quota(who, uid).map(Reply::Account),
        Command::Size(handle) => core.size(handle).map(Reply::Count),
        Command::Counters => {
            let backend = core.engine().explain().backend;
            Ok(Reply::Counters(Box::new(core.counters()), backend))
        }
        Command::Hint { handle, hint } => {
            let done = match hint {
                Hint::Prefetch(pages) => core.prefetch(handle, &pages)?,
                Hint::Drop(pages) => core.drop_cached(handle, pages)?,
                Hint::Keep(pages) => core.keep_cached(handle, pages).map(|()| 0)?,
                Hint::KeepNoMore(pages) => core.keep_cached_no_more(handle, pages).map(|()| 0)?,
                Hint::Pattern(pattern) => core.read_pattern(handle, pattern).map(|()| 0)?,
            };
            Ok(Reply::Count(done))
        }
        Command::Status => Err(crate::on_core::no_broker(core)),
        Command::DurableLsn(lsn) => core.set_durable_lsn(lsn).map(|()| Reply::Done),
        Command::SetLog { handle, log } => core.set_log(handle, log).map(|()| Reply::Done),
        Command::LogUsage(log) => {
            let gone = || Error::new("look at", "a closed log", Fault::Stale);
            let usage = core.log_usage(log).ok_or_else(gone)?;
            Ok(Reply::LogUsage(Box::new(usage)))
        }
        Command::ClaimLog(handle) => core.claim_log(handle).map(Reply::LogClaimed),
        Command::ReleaseLog(handle) => {
            core.close_handle(handle);
            Ok(Reply::Done)
        }
        Command::Run(run) => {
            // A panic is its caller's, who gets it; it was inside of no change of the core's.
            Ok(Reply::Ran(catch_unwind(AssertUnwindSafe(|| run(core)))))
        }
        takes_turns => {
            let fault = Fault::Unexpected("a command that takes turns, as one that does not");
            Err(Error::new(takes_turns.name(), core.volume_name(), fault))
        }
    }
}

/// A request of the buffer pool. It is awaited from now on: its outcome is not for whoever takes outcomes as they come.
fn requested(core: &mut Core, ticket: Result<Ticket>) -> Begun {
    let doing = match ticket {
        Ok(ticket) => Doing::Request(ticket),
        Err(error) => return Begun::Answered(Err(error)),
    };
    match doing.poll(core, Some(Waker::noop().clone())) {
        Poll::Ready(answer) => Begun::Answered(answer),
        Poll::Pending => Begun::Doing(doing),
    }
}

fn of_log(question: Result<LogQuestion>) -> Begun {
    match question {
        Ok(question) => Begun::Doing(Doing::Log(question)),
        Err(error) => Begun::Answered(Err(error)),
    }
}

fn pin(core: &mut Core, handle: Handle, page: u64, new: Option<u64>) -> Begun {
    let pinning = match new {
        Some(lsn) => core.pin_new(handle, page, lsn),
        None => core.pin(handle, page),
    };
    match pinning {
        Ok(Pinning::Held(pin)) => Begun::Answered(Ok(Reply::Pinned(core.hold(pin)))),
        Ok(Pinning::Coming(ticket)) => requested(core, Ok(ticket)),
        Err(error) => Begun::Answered(Err(error)),
    }
}

impl Doing {
    /// The answer, once, when there is one; else remembers whom to wake.
    pub fn poll(&self, core: &mut Core, waker: Option<Waker>) -> Poll<Result<Reply>> {
        let gone = |core: &Core| Err(Error::new("ask", core.volume_name(), Fault::Stale));
        match self {
            Doing::Operation(id) => core.poll_answer(id, waker).map(|answer| match answer {
                Some(answer) => answer.map(|answer| core_reply(core, answer)),
                None => gone(core),
            }),
            Doing::Request(ticket) => core.poll(*ticket, waker).map(|outcome| match outcome {
                Some(outcome) => outcome.result.map(|_| match outcome.pin {
                    Some(pin) => Reply::Pinned(core.hold(pin)),
                    None => Reply::Done,
                }),
                None => gone(core),
            }),
            Doing::Log(question) => core.poll_log(question, waker).map(|answer| match answer {
                Some(answer) => answer.map(|answer| match answer {
                    LogReply::Opened(held, found) => Reply::Log(held, found),
                    LogReply::Done(answer) => Reply::OnLog(answer),
                }),
                None => gone(core),
            }),
            Doing::Opening(opening) => opening.poll(core, waker).map_ok(Reply::OpenedFile),
            Doing::Waiting(waiting) => waiting.poll(core, waker),
        }
    }

    /// Asks that it end early, as far as it can be ended; it is answered all the same.
    pub fn cancel(&self, core: &mut Core) {
        match self {
            Doing::Request(ticket) => core.cancel(*ticket),
            Doing::Waiting(waiting) => waiting.cancel(core),
            Doing::Operation(id) => core.call_off_operation(id),
            Doing::Opening(_) | Doing::Log(_) => {}
        }
    }

    /// Nobody wants the answer any more. What was asked for may happen all the same. What is given back may have others' code in it:
    /// it is to be dropped when the core is not borrowed.
    pub fn abandon(self, core: &mut Core) -> Option<Doing> {
        match self {
            Doing::Operation(id) => core.abandon_operation(id),
            Doing::Request(ticket) => core.abandon(ticket),
            Doing::Log(question) => core.abandon_log(question),
            Doing::Opening(opening) => {
                opening.abandon(core);
                return Some(Doing::Opening(opening));
            }
            Doing::Waiting(waiting) => {
                waiting.abandon(core);
                return Some(Doing::Waiting(waiting));
            }
        }
        None
    }
}

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

fn core_reply(core: &Core, answer: Answer) -> Reply {
    match answer {
        Answer::Segment(info) => Reply::Segment(info),
        Answer::Opened(handle, info) => Reply::Opened(handle, info),
        Answer::Account(account) => Reply::Account(account),
        Answer::Segments(list) => Reply::Segments(list),
        Answer::Defragged(report) => Reply::Defragged(report),
        Answer::Checked(report) => Reply::Checked(Box::new(report)),
        Answer::Frozen(id) => Reply::Frozen(core.hold_freeze(id)),
    }
}
