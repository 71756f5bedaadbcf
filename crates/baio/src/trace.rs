//! What `tracing` is told of, with the feature `tracing`. Without it every function here is empty, and a [`Trace`] has no bytes.
//!
//! | what | as | level |
//! |---|---|---|
//! | a request, from its start until its result is given | span `request`: `op`, `object`, `offset`, `bytes`, `mode`; at the end `outcome`, `bytes_done` | TRACE |
//! | an operation, from its start until its answer is given | span `operation`: `what`, `object`; at the end `outcome` | DEBUG |
//! | a link or an object that was opened or closed | event | INFO for links, DEBUG for objects |
//! | a durable log that was opened, or whose last clone was dropped | event: `object`, and its LSNs as they are then | INFO |
//! | a failure of any of these, or of an append or a wait for a log | event: `operation`, `object`, `offset`, `code`, `error` | WARN |
//!
//! The target is `baio`. `outcome` is `ok`, `cancelled`, `dropped` (nobody waited for it any more), or the code of the error. A cancel is what
//! was asked for, no failure. Spans are never entered: requests of one thread overlap.

use std::fmt::Display;

#[cfg(feature = "tracing")]
use baio_storage::log::LogError;
use baio_storage::log::{Appender, Recovered};
use baio_storage::{Error, Mode, SegmentOp};

/// The target of all spans and events.
#[cfg(feature = "tracing")]
const TARGET: &str = "baio";

/// A request or an operation that has begun. One that is dropped was given up.
#[must_use = "its end is to be told"]
#[derive(Debug)]
pub(crate) struct Trace {
    #[cfg(feature = "tracing")]
    span: Option<tracing::Span>,
}

/// A request goes to its link: `bytes` of memory, on an object of that name.
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn request_begins(op: SegmentOp, bytes: usize, mode: Mode, object: &str) -> Trace {
    #[cfg(not(feature = "tracing"))]
    {
        let _ = (op, bytes, mode, object);
        Trace {}
    }
    #[cfg(feature = "tracing")]
    Trace {
        span: Some(tracing::trace_span!(
            target: TARGET,
            "request",
            op = op.name(),
            object,
            offset = op.offset(),
            bytes = op.bytes(bytes as u64),
            mode = mode_name(mode),
            outcome = tracing::field::Empty,
            bytes_done = tracing::field::Empty,
        )),
    }
}

/// Its result is given: the bytes that it moved; or why it failed, and the bytes that it moved before.
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn request_ended(trace: Trace, result: Result<usize, (&Error, usize)>) {
    let (result, bytes_done) = match result {
        Ok(bytes) => (Ok(()), bytes),
        Err((error, bytes)) => (Err(error), bytes),
    };
    #[cfg(not(feature = "tracing"))]
    let _ = bytes_done;
    #[cfg(feature = "tracing")]
    if let Some(span) = &trace.span {
        span.record("bytes_done", bytes_done as u64);
    }
    trace.ends(result);
}

/// An operation is asked of its link: "create segment", on an object that is named only if somebody listens.
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn operation_begins<O: Display>(what: &'static str, object: impl FnOnce() -> O) -> Trace {
    #[cfg(not(feature = "tracing"))]
    {
        let _ = (what, object);
        Trace {}
    }
    #[cfg(feature = "tracing")]
    Trace {
        span: Some(tracing::debug_span!(
            target: TARGET,
            "operation",
            what,
            object = %object(),
            outcome = tracing::field::Empty,
        )),
    }
}

/// Its answer is given.
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn operation_ended(trace: Trace, result: Result<(), &Error>) {
    trace.ends(result);
}

/// A link has been opened, to a volume or to plain files; or could not be.
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn link_opened<O: Display>(object: impl FnOnce() -> O, result: Result<(), &Error>) {
    #[cfg(not(feature = "tracing"))]
    let _ = (object, result);
    #[cfg(feature = "tracing")]
    match result {
        Ok(()) => tracing::info!(target: TARGET, object = %object(), "link opened"),
        Err(error) => failed(error),
    }
}

/// A link has been closed.
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn link_closed<O: Display>(object: impl FnOnce() -> O, result: Result<(), &Error>) {
    #[cfg(not(feature = "tracing"))]
    let _ = (object, result);
    #[cfg(feature = "tracing")]
    {
        tracing::info!(target: TARGET, object = %object(), outcome = outcome(result), "link closed");
        if let Err(error) = result {
            failed(error);
        }
    }
}

/// The last handle on a segment or file has gone. (That one was opened is an operation.)
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn object_closed(object: &str) {
    #[cfg(not(feature = "tracing"))]
    let _ = object;
    #[cfg(feature = "tracing")]
    tracing::debug!(target: TARGET, object, "object closed");
}

/// A log is open, and this was found. (That it was opened is an operation as well.)
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn log_opened(object: &str, found: &Recovered) {
    #[cfg(not(feature = "tracing"))]
    let _ = (object, found);
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: TARGET,
        object,
        head_lsn = found.head.0,
        end_lsn = found.end.0,
        next_lsn = found.next.0,
        epoch = found.epoch,
        clean = found.was_clean,
        holes = found.holes.len(),
        "log opened",
    );
}

/// The last clone of a log has gone, and it is closed in the background.
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn log_closed(object: &str, log: &Appender) {
    #[cfg(not(feature = "tracing"))]
    let _ = (object, log);
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: TARGET,
        object,
        head_lsn = log.head_lsn().0,
        durable_lsn = log.durable_lsn().0,
        next_lsn = log.end_lsn().0,
        "log closed",
    );
}

/// An append, or a wait for the log, has failed. That there is no room now is no failure.
#[cfg_attr(not(feature = "tracing"), inline(always))]
pub(crate) fn log_failed(error: &Error) {
    #[cfg(not(feature = "tracing"))]
    let _ = error;
    #[cfg(feature = "tracing")]
    match &error.fault {
        baio_storage::Fault::Log(said) if matches!(**said, LogError::WouldBlock | LogError::Full) => {}
        _ => failed(error),
    }
}

impl Trace {
    #[cfg(not(feature = "tracing"))]
    #[inline(always)]
    fn ends(self, result: Result<(), &Error>) {
        let _ = result;
    }

    #[cfg(feature = "tracing")]
    fn ends(mut self, result: Result<(), &Error>) {
        let Some(span) = self.span.take() else { return };
        span.record("outcome", outcome(result));
        if let Err(error) = result {
            // In the span's scope, so that a subscriber shows what belongs to it.
            span.in_scope(|| failed(error));
        }
    }
}

#[cfg(feature = "tracing")]
impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            span.record("outcome", "dropped");
        }
    }
}

#[cfg(feature = "tracing")]
const CANCELLED: &str = "ECANCELED";

#[cfg(feature = "tracing")]
fn outcome(result: Result<(), &Error>) -> &str {
    match result.map_err(Error::code) {
        Ok(()) => "ok",
        Err(CANCELLED) => "cancelled",
        Err(code) => code,
    }
}

#[cfg(feature = "tracing")]
fn failed(error: &Error) {
    if error.code() == CANCELLED {
        return;
    }
    tracing::warn!(
        target: TARGET,
        operation = error.operation,
        object = error.object.as_str(),
        offset = error.offset,
        code = error.code(),
        error = %error.fault,
        "failed",
    );
}

#[cfg(feature = "tracing")]
fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Direct => "direct",
        Mode::Cached => "cached",
        Mode::Kernel => "kernel",
        Mode::Uncached => "uncached",
    }
}

#[cfg(all(test, not(feature = "tracing")))]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_there_is_nothing() {
        assert_eq!(size_of::<Trace>(), 0);
        assert!(!std::mem::needs_drop::<Trace>());
        let unasked = || -> String { panic!("nobody listens") };
        operation_ended(operation_begins("list", unasked), Ok(()));
        link_opened(unasked, Ok(()));
        link_closed(unasked, Ok(()));
        let trace = request_begins(SegmentOp::Sync, 0, Mode::Direct, "a");
        request_ended(trace, Ok(0));
        object_closed("a");
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests;
