//! Errors of the engine, in two types.
//!
//! [`Error`] is the outcome of one request: plain, copyable data, which clients of a broker know too. The caller knows the object and the
//! offset, and adds them. [`SetupError`] is for things that are done once (opening a file, starting a backend): it names everything itself.

use std::fmt;

pub use baio_words::{Argument, Errno, IoError as Error};
use baio_words::{IN_LINE, ON_LINES, into_std, write_advice};

/// Why a file, an arena or a backend could not be had. `Display` is one line; `Debug`, which `unwrap` and `main` show, says the same
/// with need and cure on lines of their own, and as `{:#?}` the fields.
#[derive(Clone)]
pub struct SetupError {
    /// What was tried: "open", "lock", "start the uring backend".
    pub operation: &'static str,
    /// Of what: a path, a size.
    pub object: String,
    /// What the system said.
    pub errno: Errno,
    /// What was needed instead, if that can be said.
    pub need: Option<String>,
    /// What to do.
    pub cure: Option<String>,
}

impl SetupError {
    /// An error with nothing known about the cure yet.
    #[must_use]
    pub fn new(operation: &'static str, object: String, errno: Errno) -> SetupError {
        SetupError {
            operation,
            object,
            errno,
            need: None,
            cure: None,
        }
    }

    /// Says what was needed.
    #[must_use]
    pub fn need(mut self, need: impl Into<String>) -> SetupError {
        self.need = Some(need.into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn cure(mut self, cure: impl Into<String>) -> SetupError {
        self.cure = Some(cure.into());
        self
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, between: &str) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.object, self.errno)?;
        write_advice(f, between, self.need.as_deref(), self.cure.as_deref())
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, IN_LINE)
    }
}

impl fmt::Debug for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return self.write(f, ON_LINES);
        }
        let mut fields = f.debug_struct("SetupError");
        fields.field("operation", &self.operation).field("object", &self.object);
        fields.field("errno", &self.errno).field("need", &self.need);
        fields.field("cure", &self.cure).finish()
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.errno)
    }
}

impl From<baio_memory::RegionError> for SetupError {
    fn from(error: baio_memory::RegionError) -> SetupError {
        SetupError {
            need: error.need,
            ..SetupError::new(error.operation, error.object, error.errno)
        }
    }
}

impl From<SetupError> for std::io::Error {
    /// The error itself is inside, `get_ref` and `downcast_ref` find it; `raw_os_error` is `None`.
    fn from(error: SetupError) -> std::io::Error {
        into_std(error.errno, error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io::{self, ErrorKind};

    use super::*;

    #[test]
    fn a_failed_start_tells_its_need_and_cure_and_crosses_std_whole() {
        let error = SetupError::new("open", "/tmp/vol".into(), Errno::EBUSY)
            .need("to be the only one")
            .cure("wait");
        let (need, cure) = ("needed: to be the only one", "cure: wait");
        let what = format!("open /tmp/vol: {}", Errno::EBUSY);
        assert_eq!(error.to_string(), format!("{what}; {need}; {cure}"));
        assert_eq!(format!("{error:?}"), format!("{what}\n  {need}\n  {cure}"));
        assert!(format!("{error:#?}").starts_with("SetupError {"));
        assert_eq!(error.source().and_then(|said| said.downcast_ref()), Some(&Errno::EBUSY));
        let told = io::Error::from(error);
        assert_eq!((told.kind(), told.raw_os_error()), (ErrorKind::ResourceBusy, None));
        let back = told.get_ref().and_then(|inner| inner.downcast_ref::<SetupError>());
        assert_eq!(back.map(|error| error.errno), Some(Errno::EBUSY));
    }
}
