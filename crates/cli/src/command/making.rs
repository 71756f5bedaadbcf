//! A change of a segment that may take long, because blocks are zeroed or moved: run to its end, and shown meanwhile; and what is
//! said of its size.

use baio::{Core, Error, Fault, Result, SegmentInfo, Wait};
use baio_console::diagnostics;
use baio_console::progress::{Progress, Unit};
use baio_storage::{Answer, OperationId, Progress as Reached};

/// Turns the core until an operation that answers with its segment has ended; `what` is what the terminal calls it.
pub(super) fn ended(core: &mut Core, operation: OperationId, what: &str) -> Result<SegmentInfo> {
    let mut shown = Progress::new(what, Unit::Bytes);
    loop {
        if let Some(Reached::Bytes { done, of }) = core.operation_progress(&operation) {
            shown.reach(done, of);
        }
        if let Some(answer) = core.take_answer(&operation) {
            return match answer? {
                Answer::Segment { info } | Answer::Opened { info, .. } => Ok(info),
                _ => Err(Error::new("run an operation on", what, Fault::NotFound)),
            };
        }
        if let Err(error) = core.turn(Wait::one()) {
            // It still ends when the core is closed.
            core.abandon_operation(operation);
            return Err(error);
        }
    }
}

/// Says that a segment has more than was asked for, where it has: it is made of whole blocks.
pub(super) fn tell_rounded(command: &str, typed: &str, asked: u64, info: &SegmentInfo) {
    if info.size_bytes > asked {
        let got = info.size_bytes;
        diagnostics::say(format_args!(
            "baio: {command}: {typed}: {asked} bytes are rounded up to {got}, to whole blocks"
        ));
    }
}
