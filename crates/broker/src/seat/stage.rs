//! What a seat knows of each place.

use baio_engine::{Memory, Time};
use baio_words::{SegmentRequest, Ticket};

/// Where the request of a place stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    Empty,
    /// It waits for a slot.
    Held {
        generation: u32,
        /// The next sweep ends it.
        cancelled: bool,
    },
    /// It was started.
    Running {
        generation: u32,
        ticket: Ticket,
        /// Whoever has it was told, once.
        cancelled: bool,
        since: Time,
        writes: bool,
        bytes: i64,
    },
    /// A command under way.
    Command,
}

/// Bytes that a request moves.
pub(super) fn bytes_of(request: &SegmentRequest<Memory>) -> i64 {
    i64::try_from(request.memory.len()).unwrap_or(i64::MAX)
}
