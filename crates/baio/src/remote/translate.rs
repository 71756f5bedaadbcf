//! Requests into entries, and what comes back into outcomes. A failure crosses the ring in a few words; the operation, the
//! object and the offset are put beside it here.

use std::sync::Arc;

use baio_engine::{Arena, Errno, Memory};
use baio_storage::cache::CacheError;
use baio_storage::{Error, Fault, SegmentOp, SegmentRequest};
use baio_words::entry::{Op, Place, Submission, Tag};
use baio_words::{FEATURES, Failure, word_at};

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
    let (operation, offset, write) = match op {
        SegmentOp::Read { offset } => ("read", Some(offset), false),
        SegmentOp::Write { offset } => ("write", Some(offset), true),
        SegmentOp::Sync => ("sync", None, false),
    };
    let fault = match failure {
        Failure::Io(error) => Fault::Io(error),
        Failure::Beyond { size } => Fault::Beyond {
            len: u64::from(len),
            size,
            write,
        },
        Failure::ReadOnly => Fault::ReadOnly,
        Failure::Stale => Fault::Stale,
        Failure::NoCache => Fault::NoCache,
        Failure::Cache { word, with } => match CacheError::from_words(word, with) {
            Some(error) => Fault::Cache(error),
            // A service that is newer says what this side does not know.
            None => Fault::Io(baio_engine::Error::System(Errno::EIO)),
        },
        Failure::NotYet(feature) => Fault::NotYet(word_at(&FEATURES, feature)),
        Failure::Ending => Fault::ServiceEnded,
    };
    let error = Error::new(operation, object, fault);
    match offset {
        Some(offset) => error.at(offset),
        None => error,
    }
}
