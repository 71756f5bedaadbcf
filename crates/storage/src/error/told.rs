//! What a broker said, as an error of this crate. Its texts stay as they are; what is known here too is typed, so that callers can
//! decide by it.

use baio_words::session::Failed;

use super::{Errno, Error, Fault};

/// What can be being done: the word that a broker says is one of these, or a newer one's.
const OPERATIONS: &[&str] = &[
    "answer",
    "change",
    "change ownership",
    "change the ownership of",
    "check",
    "close",
    "connect",
    "create",
    "create the log in",
    "defragment",
    "delete",
    "freeze",
    "hand on",
    "hint",
    "list",
    "measure",
    "open",
    "open the log in",
    "quota",
    "read",
    "rename",
    "resize",
    "revoke",
    "set quota",
    "set the quota",
    "show the quota",
    "stat",
    "status",
    "sync",
    "thaw",
    "write",
];

/// The codes that are no error number's.
const CODES: &[&str] = &["EPOISONED", "EINDETERMINATE", "ENOTVOLUME", "EVERSION", "ECORRUPT"];

pub(super) fn errno(failed: &Failed) -> Errno {
    match i32::try_from(failed.errno) {
        Ok(raw @ 1..=4095) => Errno::from_raw(raw),
        _ => Errno::EIO,
    }
}

pub(super) fn code(failed: &Failed) -> &'static str {
    let known = CODES.iter().find(|code| **code == failed.code);
    known.copied().unwrap_or_else(|| errno(failed).name())
}

/// What this side would say with the same code, if it says so at all.
fn typed(code: &str, what: &str, uid: u32) -> Option<Fault> {
    Some(match code {
        "EBUSY" if Fault::HasLog.to_string() == what => Fault::HasLog,
        "ENOENT" => Fault::NotFound,
        "EEXIST" => Fault::Exists,
        "EACCES" => Fault::Access { uid },
        "EBUSY" => Fault::Moving,
        "EPOISONED" => Fault::Latched,
        "EROFS" => Fault::ReadOnlyVolume,
        "EBADF" => Fault::ReadOnly,
        "ESTALE" => Fault::Stale,
        "EOPNOTSUPP" => Fault::NoCache,
        _ => return None,
    })
}

impl Error {
    /// What a broker told a client that it takes for that user. A fault that this side would tell in the same words is typed.
    #[must_use]
    pub fn told(failed: Box<Failed>, uid: u32) -> Error {
        let known = OPERATIONS.iter().find(|known| **known == failed.operation);
        let operation = known.copied().unwrap_or("ask the broker for");
        let (object, offset) = (failed.object.clone(), failed.offset);
        let mut error = Error::new(operation, object, Fault::NotFound);
        error.0.offset = offset;
        if let Some(fault) = typed(&failed.code, &failed.what, uid) {
            error.0.fault = fault;
            let same = error.fault.to_string() == failed.what;
            if same && error.need() == failed.need && error.cure() == failed.cure {
                return error;
            }
        }
        error.0.fault = Fault::Told(failed);
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(error: &Error) -> Box<Failed> {
        Box::new(Failed {
            code: error.code().to_owned(),
            errno: error.errno().map_or(0, |errno| errno.raw().unsigned_abs()),
            operation: error.operation.to_owned(),
            object: error.object.clone(),
            offset: error.offset,
            what: error.fault.to_string(),
            need: error.need(),
            cure: error.cure(),
        })
    }

    /// Whatever was said at the other end is shown here word for word.
    #[test]
    fn an_error_is_shown_as_it_was_told() {
        for fault in [
            Fault::NotFound,
            Fault::Exists,
            Fault::Access { uid: 7 },
            Fault::BadSize("a size of 0".into()),
            Fault::Latched,
            Fault::NoSpace {
                asked: 5,
                free: Some(4),
                largest: Some(3),
            },
            Fault::Io(baio_engine::Error::Indeterminate),
        ] {
            let here = Error::new("create", "volume#7/a", fault).at(12);
            let there = Error::told(failed(&here), 7);
            assert_eq!(there.to_string(), here.to_string());
            assert_eq!((there.code(), there.errno()), (here.code(), here.errno()));
        }
    }

    #[test]
    fn what_is_known_here_is_typed_and_what_is_not_is_told() {
        let told = |fault| Error::told(failed(&Error::new("open", "volume#7/a", fault)), 7).into_fault();
        assert!(matches!(told(Fault::NotFound), Fault::NotFound));
        assert!(matches!(told(Fault::Access { uid: 7 }), Fault::Access { uid: 7 }));
        assert!(matches!(told(Fault::Access { uid: 8 }), Fault::Told(_)));
        assert!(matches!(told(Fault::HasLog), Fault::HasLog));
        assert!(matches!(told(Fault::Moving), Fault::Moving));
        let mut newer = failed(&Error::new("open", "volume#7/a", Fault::NotFound));
        (newer.what, newer.operation) = ("no segment of that name".into(), "ponder".into());
        let error = Error::told(newer, 7);
        assert!(matches!(error.fault, Fault::Told(_)));
        assert_eq!((error.operation, error.code()), ("ask the broker for", "ENOENT"));
    }
}
