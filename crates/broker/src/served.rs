//! What the service and the broker share: completions as entries of a ring, wake-ups of threads that wait for a log, closing a core.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use baio_engine::{Errno, Memory, Wait};
use baio_storage::{Core, Error, Result};
use baio_words::entry::{Completion, Tag};
use baio_words::{Failure, Ticket};

/// The end of a request.
pub(crate) struct Ended {
    /// Its tag is [`tag_of`] the request's.
    pub(crate) completion: Completion,
    pub(crate) memory: Memory,
    /// It was answered at its deadline, and the kernel has its memory still: [`Core::next_released`] gives this when that is over.
    pub(crate) held: Option<Ticket>,
}

/// The next end, in the order in which they came.
pub(crate) fn next_end(core: &mut Core) -> Option<Ended> {
    let outcome = core.next_outcome()?;
    let held = core.is_held(outcome.ticket).then_some(outcome.ticket);
    let completion = Completion {
        tag: tag_of(outcome.tag),
        result: outcome.result.map_err(|error| failure_of(&error)),
        bytes_done: outcome.bytes_done,
        took: outcome.took,
        iterations: outcome.iterations,
    };
    Some(Ended {
        completion,
        memory: outcome.memory,
        held,
    })
}

/// A turn of the core; then wakes who waits for a log of it. Returns how much has ended.
///
/// # Errors
/// It cannot go on.
pub(crate) fn turn(core: &mut Core, wait: Wait) -> Result<usize> {
    let turned = core.turn(wait);
    wake(core);
    turned
}

/// Nothing of a client's is under way: closes the core. Who waits for a log hears its end while there is somebody to say so.
///
/// # Errors
/// As [`Core::close`].
pub(crate) fn close(mut core: Core) -> Result<()> {
    core.wind_down();
    while core.in_flight() > 0 {
        turn(&mut core, Wait::one())?;
    }
    wake(&mut core);
    core.close()
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

/// The failure as it is sent. The client adds the operation, the object and the offset.
fn failure_of(error: &Error) -> Failure {
    match error.fault.of_request() {
        Some(fault) => fault.into(),
        None => Failure::Io(baio_engine::Error::System(error.errno().unwrap_or(Errno::EIO))),
    }
}

/// A tag as a request carries it and its end hands it back.
pub(crate) fn word_of(tag: Tag) -> u64 {
    u64::from(tag.generation) << 32 | u64::from(tag.index)
}

/// The tag in such a word.
pub(crate) fn tag_of(word: u64) -> Tag {
    Tag {
        index: word as u32,
        generation: (word >> 32) as u32,
    }
}
