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

/// As much as a request counts for at most that names a range and moves no memory: a device has work with it, and nobody knows how much.
const NAMED_MAX: u64 = 1 << 20;

/// Bytes that a request counts for.
pub(super) fn bytes_of(request: &SegmentRequest<Memory>) -> i64 {
    let named = request.op.bytes(0).min(NAMED_MAX);
    i64::try_from(named.max(request.memory.len() as u64)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use baio_words::{Handle, SegmentOp};

    use super::*;

    /// Discards and zeroes without an end would be started beside another user's share of the device.
    #[test]
    fn what_moves_no_memory_counts_too() {
        let handle = Handle {
            core: 1,
            index: 0,
            generation: 0,
        };
        let bytes = |op| bytes_of(&SegmentRequest::new(handle, op, Memory::None));
        let offset = 0;
        assert_eq!(bytes(SegmentOp::Discard { offset, len: 4096 }), 4096);
        assert_eq!(bytes(SegmentOp::Zero { offset, len: 1 << 40 }), 1 << 20);
        assert_eq!(bytes(SegmentOp::Sync), 0);
    }
}
