//! Requests into entries, and what comes back into outcomes. A failure crosses the ring in a few words; the operation, the
//! object and the offset are put beside it here.

use std::sync::Arc;

use baio_engine::{Arena, Memory};
use baio_storage::{Error, SegmentOp, SegmentRequest};
use baio_words::entry::{Op, Place, Submission, Tag};
use baio_words::{Failure, RequestError};

pub(super) fn submission(request: &SegmentRequest, arena: &Arc<Arena>, tag: Tag) -> Submission {
    let (op, offset) = match request.op {
        SegmentOp::Read { offset } => (Op::Read, offset),
        SegmentOp::Write { offset } => (Op::Write, offset),
        SegmentOp::Sync => (Op::Sync, 0),
    };
    Submission {
        handle: request.handle.into(),
        offset,
        place: place(&request.memory, arena),
        mode: request.mode,
        durability: request.durability,
        deadline: request.deadline,
        ..Submission::new(op, tag)
    }
}

/// Lengths beyond 32 bits are refused by the engine; here they only must not look shorter.
fn place(memory: &Memory, arena: &Arc<Arena>) -> Place {
    let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
    match memory {
        Memory::None => Place::Nowhere,
        Memory::Own(buffer) if buffer.is_of(arena) => Place::Arena {
            at: buffer.place(),
            len,
        },
        _ => Place::Exchange { len },
    }
}

pub(super) fn error(op: SegmentOp, object: &str, len: u32, failure: Failure) -> Error {
    RequestError::of(op, object, len, failure).into()
}
