//! A volume's core, served.

use baio_engine::{Engine, Errno, Memory, Wait};
use baio_storage::{Answer, Core, Error, Fault, Handle, Identity, OperationId, Result, SegmentRequest, Ticket};
use baio_words::Failure;
use baio_words::entry::Completion;

use crate::control::{Command, Reply};
use crate::served::{Begun, NotStarted, Served, tag_of};
use crate::service::HELD_PATIENCE;

// Who is held by a hung device waits no longer than who drops its core.
const _: () = assert!(HELD_PATIENCE.as_secs() == Core::DROP_PATIENCE.as_secs());

impl Served for Core {
    type Command = Command;
    type Answer = Result<Reply>;
    type Operation = OperationId;
    type Error = Error;

    fn number(&self) -> u32 {
        Core::number(self)
    }

    fn name(&self) -> String {
        self.volume_name()
    }

    fn engine(&self) -> &Engine {
        Core::engine(self)
    }

    fn start(&mut self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        Core::start(self, request)
    }

    fn cancel(&mut self, ticket: Ticket) {
        Core::cancel(self, ticket);
    }

    fn next_end(&mut self) -> Option<(Completion, Memory)> {
        let outcome = self.next_outcome()?;
        let completion = Completion {
            tag: tag_of(outcome.tag),
            result: outcome.result.map_err(|error| failure_of(&error)),
            bytes_done: outcome.bytes_done,
            took: outcome.took,
            iterations: outcome.iterations,
        };
        Some((completion, outcome.memory))
    }

    fn close_handle(&mut self, handle: Handle) {
        Core::close_handle(self, handle);
    }

    fn in_flight(&self) -> usize {
        Core::in_flight(self)
    }

    fn turn(&mut self, wait: Wait) -> Result<usize> {
        Core::turn(self, wait)
    }

    fn begin(&mut self, who: Identity, command: Command) -> Begun<Core> {
        let begun = match command {
            Command::Create {
                owner_uid,
                name,
                options,
            } => self.begin_create(who, owner_uid, &name, &options),
            Command::Delete { owner_uid, name } => self.begin_delete(who, owner_uid, &name),
            Command::Resize {
                owner_uid,
                name,
                options,
            } => self.begin_resize(who, owner_uid, &name, &options),
            Command::Rename { owner_uid, old, new } => self.begin_rename(who, owner_uid, &old, &new),
            Command::Open {
                owner_uid,
                name,
                access,
            } => self.begin_open(who, owner_uid, &name, access),
            Command::List => return Begun::Answered(self.list(who).map(Reply::Segments)),
            Command::Info => return Begun::Answered(self.volume_view(who).map(Reply::Volume)),
            Command::Size(handle) => return Begun::Answered(self.size(handle).map(Reply::Size)),
            Command::Counters => {
                let backend = Core::engine(self).explain().backend;
                return Begun::Answered(Ok(Reply::Counters(self.stats(), backend)));
            }
            Command::Close => return Begun::Close,
        };
        match begun {
            Ok(operation) => Begun::Operation(operation),
            Err(error) => Begun::Answered(Err(error)),
        }
    }

    fn take_answer(&mut self, operation: &OperationId) -> Option<Result<Reply>> {
        let answer = Core::take_answer(self, operation)?;
        Some(answer.map(|answer| match answer {
            Answer::Segment(info) => Reply::Segment(info),
            Answer::Opened(handle, info) => Reply::Opened(handle, info),
            Answer::Account(_) => Reply::Done, // No command sets a quota.
        }))
    }

    fn opened(answer: &Result<Reply>) -> Option<Handle> {
        match answer {
            Ok(Reply::Opened(handle, _)) => Some(*handle),
            _ => None,
        }
    }

    fn close(self) -> Result<Reply> {
        Core::close(self).map(|()| Reply::Done)
    }
}

impl From<NotStarted> for Error {
    fn from(why: NotStarted) -> Error {
        let fault = match why {
            NotStarted::Thread(error) => error.into(),
            NotStarted::Ended => Fault::ServiceEnded,
        };
        Error::new("start", "a service", fault)
    }
}

/// What the client is told; the operation, the object and the offset it knows.
fn failure_of(error: &Error) -> Failure {
    match error.fault.of_request() {
        Some(fault) => fault.into(),
        None => Failure::Io(baio_engine::Error::System(error.errno().unwrap_or(Errno::EIO))),
    }
}
