//! How an error is shown: on one line, for logs (`Display`); on several lines, for the end of `main` or an `unwrap` (`Debug`); and inside
//! an error of `std`, for interfaces that take no other.

use std::fmt;
use std::io;

use crate::errno::Errno;

/// What stands before the need and the cure in `Display`: all is one line.
pub const IN_LINE: &str = "; ";

/// What stands before them in `Debug`: each has a line.
pub const ON_LINES: &str = "\n  ";

/// Says behind what went wrong what was needed and what to do, each after `between`.
///
/// # Errors
/// The formatter's.
pub fn write_advice(f: &mut fmt::Formatter<'_>, between: &str, need: Option<&str>, cure: Option<&str>) -> fmt::Result {
    if let Some(need) = need {
        write!(f, "{between}needed: {need}")?;
    }
    if let Some(cure) = cure {
        write!(f, "{between}cure: {cure}")?;
    }
    Ok(())
}

/// The error inside one of `std`, with the kind of this number. It can be had back by `get_ref` and `downcast_ref`; the number by
/// its own `errno`, for `raw_os_error` is `None`: `std` keeps either a number or an error.
#[must_use]
pub fn into_std(errno: Errno, error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(errno.kind(), error)
}
