//! How a request ends: the buffer comes back through the result only, so that no failure goes unread.

use std::fmt;

use baio_engine::Caching;
use baio_storage::Error;

/// A request that has done what was asked.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done<B> {
    /// Bytes moved: for a read fewer than asked only at the end of the segment or file.
    pub bytes: usize,
    /// The buffer, as it went in; a read has filled its first `bytes`.
    pub buffer: B,
    /// Through which cache its last part really went.
    pub took: Caching,
    /// Non-blocking tries that it took; 0 where none was needed.
    pub iterations: u16,
}

/// A request that has failed. With `?` it becomes an [`Error`] or a [`std::io::Error`].
#[must_use = "it says why, and has the buffer"]
#[non_exhaustive]
pub struct Failed<B> {
    /// What went wrong, where, and the cure.
    pub error: Error,
    /// The buffer; `None` while the kernel may still use it (after a deadline or a cancel): it is freed when that ends.
    pub buffer: Option<B>,
    /// Bytes that were moved before it failed.
    pub bytes_done: usize,
}

impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<B> fmt::Display for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<B> std::error::Error for Failed<B> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Error {
        failed.error
    }
}

impl<B> From<Failed<B>> for std::io::Error {
    fn from(failed: Failed<B>) -> std::io::Error {
        failed.error.into()
    }
}
