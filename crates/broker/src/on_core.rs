//! A volume's core, served.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};

use baio_engine::{Engine, Errno, Memory, SetupError, Wait};
use baio_storage::{Core, Error, Fault, Handle, Identity, Result, SegmentRequest, Ticket};
use baio_words::Failure;
use baio_words::entry::Completion;

use crate::control::{self, Command, Doing, Reply};
use crate::seat::HELD_PATIENCE;
use crate::served::{Begun, NotStarted, Served, tag_of};

// Who is held by a hung device waits no longer than who drops its core.
const _: () = assert!(HELD_PATIENCE.as_secs() == Core::DROP_PATIENCE.as_secs());

/// A core is asked for what only a broker has.
pub(crate) fn no_broker(core: &Core) -> Error {
    let name = core.volume_name();
    let fault = SetupError::new("show the clients of", name.clone(), Errno::EOPNOTSUPP)
        .need("a link to a broker")
        .cure("connect to one (`Remote::connect`), or look at this link's own counters");
    Error::new("show the clients of", name, fault)
}

impl Served for Core {
    type Command = Command;
    type Answer = Result<Reply>;
    type Operation = Doing;
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

    fn errno(error: &Error) -> Errno {
        error.errno().unwrap_or(Errno::EIO)
    }

    fn in_flight(&self) -> usize {
        Core::in_flight(self)
    }

    fn turn(&mut self, wait: Wait) -> Result<usize> {
        let turned = Core::turn(self, wait);
        wake(self);
        turned
    }

    fn begin(&mut self, who: Identity, command: Command) -> Begun<Core> {
        match control::begin(self, who, command) {
            control::Begun::Doing(doing) => Begun::Operation(doing),
            control::Begun::Answered(answer) => Begun::Answered(answer),
            control::Begun::Close => Begun::Close,
        }
    }

    fn take_answer(&mut self, doing: &Doing) -> Option<Result<Reply>> {
        match doing.poll(self, Some(Waker::noop().clone())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    fn call_off(&mut self, doing: &Doing) {
        doing.cancel(self);
    }

    fn wind_down(&mut self) {
        Core::wind_down(self);
    }

    /// A pipe that nobody writes is never open. A file that is opened later is closed then.
    fn give_up(&mut self, doing: &Doing) -> Option<Result<Reply>> {
        matches!(doing, Doing::Opening(_)).then(|| Err(Error::new("open", self.volume_name(), Fault::Stale)))
    }

    fn opened(answer: &Result<Reply>) -> Option<Handle> {
        answer.as_ref().ok()?.handle()
    }

    /// Who waits for a log hears its end while there is somebody to say so.
    fn close(mut self) -> Result<Reply> {
        Core::wind_down(&mut self);
        while Core::in_flight(&self) > 0 {
            Served::turn(&mut self, Wait::one())?;
        }
        wake(&mut self);
        Core::close(self).map(|()| Reply::Done)
    }
}

thread_local! {
    /// Kept for the next turn, so that turns allocate nothing.
    static FIRED: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
}

/// Wakes who waits for a log, on whatever thread that is. A waker is anybody's code: its panic is not the service's.
fn wake(core: &mut Core) {
    let mut fired = FIRED.take();
    core.take_fired(&mut fired);
    for waker in fired.drain(..) {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
    core.take_displaced(&mut fired);
    fired.clear();
    FIRED.set(fired);
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
