//! What a log says, in the words of every error: a number, a place, what was needed.

use baio_engine::Errno;

use super::{Error, Fault};
use crate::log::LogError;

impl Error {
    /// What a log said, with the place in it where that is one.
    #[must_use]
    pub fn of_log(operation: &'static str, object: impl Into<String>, error: LogError) -> Error {
        let mut of_log = Error::new(operation, object, Fault::Log(Box::new(error)));
        if let Fault::Log(error) = &of_log.fault {
            of_log.0.offset = offset(error);
        }
        of_log
    }
}

/// The word that stands for it in JSON.
pub(super) fn code(error: &LogError) -> &'static str {
    match error {
        LogError::NotLog | LogError::NotMade | LogError::Foreign { .. } => "ENOTLOG",
        LogError::Version(_) => "EVERSION",
        LogError::HeaderLost | LogError::Rot { .. } | LogError::TooDamaged { .. } => "ECORRUPT",
        error => errno(error).name(),
    }
}

/// The nearest error number.
pub(super) fn errno(error: &LogError) -> Errno {
    match error {
        LogError::WouldBlock => Errno::EAGAIN,
        LogError::TooLong { .. } => Errno::EMSGSIZE,
        // Who hears that a log which was open is full makes room in it, and tries again for ever.
        LogError::Failed {
            errno: Errno::ENOSPC | Errno::EDQUOT,
            lsn,
        } if lsn.0 > 0 => Errno::EIO,
        LogError::Failed { errno, .. } | LogError::Read { errno, .. } | LogError::Write { errno, .. } => *errno,
        LogError::Closed => Errno::ESTALE,
        LogError::HeaderLost | LogError::Rot { .. } | LogError::TooDamaged { .. } | LogError::Cut { .. } => Errno::EIO,
        LogError::Truncated { .. } | LogError::Lost { .. } => Errno::ENODATA,
        LogError::Full | LogError::BadSize { .. } => Errno::ENOSPC,
        LogError::NoMemory => Errno::ENOBUFS,
        LogError::Busy => Errno::EBUSY,
        // Of the caller: not a log, a version, options; and what later versions say.
        _ => Errno::EINVAL,
    }
}

/// At which byte of the segment or file it was met.
pub(super) fn offset(error: &LogError) -> Option<u64> {
    match error {
        LogError::Rot { offset, .. }
        | LogError::TooDamaged { offset, .. }
        | LogError::Read { offset, .. }
        | LogError::Write { offset, .. }
        | LogError::Foreign { offset } => Some(*offset),
        _ => None,
    }
}

/// What was needed instead.
pub(super) fn need(error: &LogError) -> Option<String> {
    match error {
        LogError::TooLong { max, .. } => Some(format!("at most {max} bytes at once")),
        LogError::BadSize { need, .. } | LogError::Cut { need, .. } => Some(format!("{need} bytes")),
        LogError::BlockBytes { device, .. } => Some(format!("a log with blocks of {device} bytes")),
        LogError::NotYet { end } => Some(format!("an LSN of at most {end}")),
        LogError::Truncated { head } => Some(format!("an LSN of at least {head}")),
        LogError::Lost { next, .. } => Some(format!("an LSN of at least {next}")),
        LogError::NotLog | LogError::NotMade => Some("a segment or file in which a log was created".into()),
        LogError::Foreign { .. } => Some("a log, or zeroes and nothing else".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Lsn;

    /// Who hears `ENOSPC` of an append gives up records, and appends again.
    #[test]
    fn a_log_that_failed_is_not_taken_for_a_full_one() {
        let failed = |errno, lsn| LogError::Failed { errno, lsn: Lsn(lsn) };
        let told = |error| Error::of_log("append to", "a log", error).errno();
        assert_eq!(told(LogError::Full), Some(Errno::ENOSPC));
        for errno in [Errno::ENOSPC, Errno::EDQUOT] {
            let error = failed(errno, 4096);
            assert_eq!((told(error.clone()), code(&error)), (Some(Errno::EIO), "EIO"));
            assert!(error.to_string().contains(errno.name()), "{error}");
            assert_eq!(told(failed(errno, 0)), Some(errno), "it was never open");
        }
    }
}
