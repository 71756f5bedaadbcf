//! How a core begins a command, and tells its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};

use baio_storage::{
    Answer, Core, Error, Fault, Handle, Identity, LogQuestion, LogReply, OperationId, Pinning, Result, Ticket,
};

use super::waiting::Waiting;
use super::{Command, Hint, Reply};
use crate::opening::Opening;

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
        Command::ChangeOwnership {
            owner_uid,
            name,
            change,
            operation,
        } => core.begin_change_ownership_as(who, owner_uid, &name, change, operation),
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
        Command::StartLog { handle, start, options } => return of_log(core.begin_log(handle, start, &options)),
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
        Command::Status => Err(crate::served::no_broker(core)),
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
