//! How a core begins a command, and tells its end.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};

use baio_storage::{
    self as storage, Answer, Command, Core, Error, Fault, Handle, Identity, LogQuestion, LogReply, OperationId,
    Pinning, Result, Ticket,
};

use super::{Call, Reply};
use crate::opening::Opening;

/// What becomes of a call.
#[derive(Debug)]
pub enum Begun {
    /// It takes turns: [`Doing::poll`].
    Doing(Doing),
    /// It is done.
    Answered(Result<Reply>),
    /// The core is to be closed, when nothing is under way any more.
    Close,
}

/// A call under way on a core.
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

/// Begins what `who` asks. Nothing here waits for a device.
pub fn begin(core: &mut Core, who: Identity, call: Call) -> Begun {
    if call.needs_a_slot() && core.is_full() {
        return Begun::Doing(Doing::Waiting(Waiting::new(who, call)));
    }
    match call {
        Call::Command(command) => commanded(core, who, command),
        Call::Watched(command, watch) => {
            let begun = commanded(core, who, command);
            if let Begun::Doing(Doing::Operation(id)) = &begun {
                core.watch_operation(id, watch);
            }
            begun
        }
        Call::OpenFile {
            path,
            options,
            truncate,
        } => Begun::Doing(Doing::Opening(Opening::begin(core, path, options, truncate))),
        Call::Pin { handle, page, new } => pin(core, handle, page, new),
        Call::FlushTo { handle, lsn } => {
            let ticket = core.flush_to(handle, lsn);
            requested(core, ticket)
        }
        Call::ChangeLater { held, lsn } => {
            let Some(pin) = held.pin() else {
                return Begun::Answered(Ok(Reply::DONE)); // It is being dropped: nobody waits.
            };
            let ticket = core.change_later(pin, lsn);
            requested(core, ticket)
        }
        Call::StartLog { handle, start, options } => of_log(core.begin_log(handle, start, &options)),
        Call::OnLog { log, request } => of_log(core.begin_on_log(log, request)),
        Call::AddFile { file, access } => Begun::Answered(Ok(Reply::OpenedFile(core.add_file(file, access)))),
        Call::Counters => {
            let backend = core.engine().explain().backend;
            Begun::Answered(Ok(Reply::Counters(Box::new(core.counters()), backend)))
        }
        Call::DurableLsn(lsn) => Begun::Answered(core.set_durable_lsn(lsn).map(|()| Reply::DONE)),
        Call::SetLog { handle, log } => Begun::Answered(core.set_log(handle, log).map(|()| Reply::DONE)),
        Call::LogUsage(log) => {
            let gone = || Error::new("look at", "a closed log", Fault::Stale);
            let usage = core.log_usage(log).ok_or_else(gone);
            Begun::Answered(usage.map(|usage| Reply::LogUsage(Box::new(usage))))
        }
        // A panic is its caller's, who gets it; it was inside of no change of the core's.
        Call::Run(run) => Begun::Answered(Ok(Reply::Ran(catch_unwind(AssertUnwindSafe(|| run(core)))))),
        Call::Close => Begun::Close,
    }
}

fn commanded(core: &mut Core, who: Identity, command: Command) -> Begun {
    match core.begin_command(who, command) {
        Ok(storage::Begun::Operation(id)) => Begun::Doing(Doing::Operation(id)),
        Ok(storage::Begun::Answered(answer)) => Begun::Answered(Ok(Reply::Answer(answer))),
        Err(error) => Begun::Answered(Err(error)),
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
                    None => Reply::DONE,
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

/// An operation's answer. Whoever gets a freeze can drop it on any thread.
fn core_reply(core: &Core, answer: Answer) -> Reply {
    match answer {
        Answer::Frozen { freeze } => Reply::Frozen(core.hold_freeze(freeze)),
        answer => Reply::Answer(answer),
    }
}

/// A request of the buffer pool that found every slot taken. It begins when it is polled and there is one; nobody is woken for that.
pub struct Waiting {
    who: Identity,
    /// `None` once it has begun, or was called off.
    call: Cell<Option<Call>>,
    begun: Cell<Option<Box<Doing>>>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiting")
    }
}

impl Waiting {
    fn new(who: Identity, call: Call) -> Waiting {
        Waiting {
            who,
            call: Cell::new(Some(call)),
            begun: Cell::new(None),
        }
    }

    fn poll(&self, core: &mut Core, waker: Option<Waker>) -> Poll<Result<Reply>> {
        let doing = match (self.begun.take(), self.call.take()) {
            (Some(doing), _) => doing,
            (None, Some(call)) if core.is_full() => {
                self.call.set(Some(call));
                return Poll::Pending;
            }
            (None, Some(call)) => match begin(core, self.who, call) {
                Begun::Doing(doing) => Box::new(doing),
                Begun::Answered(answer) => return Poll::Ready(answer),
                Begun::Close => return Poll::Ready(Ok(Reply::DONE)), // Only a request of the buffer pool waits here.
            },
            (None, None) => {
                let fault = baio_engine::Error::Cancelled;
                return Poll::Ready(Err(Error::new("wait for", "a slot", fault)));
            }
        };
        let polled = doing.poll(core, waker);
        if polled.is_pending() {
            self.begun.set(Some(doing));
        }
        polled
    }

    fn cancel(&self, core: &mut Core) {
        drop(self.call.take());
        if let Some(doing) = self.begun.take() {
            doing.cancel(core);
            self.begun.set(Some(doing));
        }
    }

    /// Nobody wants the answer any more.
    fn abandon(&self, core: &mut Core) {
        if let Some(doing) = self.begun.take() {
            let _ = doing.abandon(core);
        }
    }
}
