//! What can go wrong, and the two shapes in which it is told.
//!
//! [`Error`] is the outcome of one request: plain, copyable data (a word that clients know too); whoever knows
//! the object and the offset (the caller) puts them beside it. [`SetupError`] is for what happens once (opening a file,
//! starting a backend): it names everything by itself.

use std::fmt;

pub use baio_words::{Argument, Errno, IoError as Error};

/// Why a file, an arena or a backend could not be had.
#[derive(Clone, Debug)]
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
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.object, self.errno)?;
        if let Some(need) = &self.need {
            write!(f, "; needed: {need}")?;
        }
        if let Some(cure) = &self.cure {
            write!(f, "; cure: {cure}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SetupError {}
