//! Why a region could not be had.

use std::fmt;

use baio_words::{Errno, IN_LINE, ON_LINES, into_std, write_advice};

/// Why shared memory could not be made or mapped. `Display` is one line; `Debug` has the need on a line of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct RegionError {
    /// What was tried.
    pub operation: &'static str,
    /// Of what: a size, a descriptor.
    pub object: String,
    /// What the system said.
    pub errno: Errno,
    /// What was needed instead, if that can be said.
    pub need: Option<String>,
}

impl RegionError {
    fn write(&self, f: &mut fmt::Formatter<'_>, between: &str) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.object, self.errno)?;
        write_advice(f, between, self.need.as_deref(), None)
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, IN_LINE)
    }
}

impl fmt::Debug for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, ON_LINES)
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.errno)
    }
}

impl From<RegionError> for std::io::Error {
    fn from(error: RegionError) -> std::io::Error {
        into_std(error.errno, error)
    }
}
