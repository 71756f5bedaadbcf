//! What can go wrong, and the two shapes in which it is told.
//!
//! [`Error`] is the outcome of one request: plain, copyable data, because it travels through the hot path; whoever knows
//! the object and the offset (the caller) puts them beside it. [`SetupError`] is for what happens once (opening a file,
//! starting a backend): it names everything by itself.

use std::fmt;

/// An error number of the system (`errno(3)`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(missing_docs, reason = "the names are errno(3)'s")]
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*

            /// The symbolic name, `"EIO"`; `"E?"` for a number this build does not know.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self.0 {
                    $(libc::$name => stringify!($name),)*
                    _ => "E?",
                }
            }
        }
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL
    ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EPIPE ERANGE ENAMETOOLONG ENOSYS ENODATA ETIME EOVERFLOW
    EOPNOTSUPP ETIMEDOUT ESTALE EDQUOT ECANCELED ELOOP EALREADY ENOBUFS EREMOTEIO EDEADLK ECHILD EHOSTUNREACH ENETUNREACH ECONNREFUSED ECONNRESET ECONNABORTED ENOTCONN EISCONN EINPROGRESS EADDRINUSE EADDRNOTAVAIL
    EAFNOSUPPORT ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOTEMPTY EILSEQ
}

impl Errno {
    /// From a positive error number.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Errno {
        Errno(raw)
    }

    /// The positive error number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// What the calling thread's last system call left behind.
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    pub(crate) fn of(error: &std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or("");
        write!(f, "{} ({text})", self.name())
    }
}

/// Which argument of a direct request was not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The offset in the file.
    Offset,
    /// The number of bytes.
    Length,
    /// The address of the memory.
    Memory,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Argument::Offset => "offset",
            Argument::Length => "length",
            Argument::Memory => "memory address",
        })
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    System(Errno),
    /// A direct request must be aligned (`STATX_DIOALIGN`); nothing was tried.
    Misaligned {
        /// Which argument.
        argument: Argument,
        /// Its value.
        value: u64,
        /// What it must be a multiple of, in bytes.
        need: u32,
    },
    /// The chosen backend cannot do this operation at all.
    Unsupported {
        /// What was asked.
        operation: &'static str,
        /// Which backend refused.
        backend: &'static str,
    },
    /// The file was not opened for this caching mode, or the file system refuses it.
    NoDescription {
        /// The mode asked for.
        mode: &'static str,
    },
    /// A read cannot fill shared, read-only memory.
    ReadOnlyMemory,
    /// An earlier sync of this file failed with this; no later sync can prove anything until the owner acknowledges it.
    Poisoned(Errno),
    /// The deadline passed or the request was abandoned while it ran: it may or may not take effect.
    Indeterminate,
    /// Cancelled before it had any effect beyond the completion's `bytes_done`.
    Cancelled,
    /// Every slot is taken.
    Full,
    /// The process has forked, and this is the child: the engine belongs to the parent.
    Forked,
}

impl Error {
    /// The nearest error number, for interfaces that have nothing else.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Error::System(errno) | Error::Poisoned(errno) => errno,
            Error::Misaligned { .. } | Error::NoDescription { .. } => Errno::EINVAL,
            Error::Unsupported { .. } => Errno::EOPNOTSUPP,
            Error::ReadOnlyMemory => Errno::EFAULT,
            Error::Indeterminate => Errno::ETIMEDOUT,
            Error::Cancelled => Errno::ECANCELED,
            Error::Full => Errno::EAGAIN,
            Error::Forked => Errno::ECHILD,
        }
    }

    /// What to do about it, where something general can be said.
    #[must_use]
    pub fn cure(self) -> Option<&'static str> {
        Some(match self {
            Error::Misaligned { .. } => "align it, or ask for a cached mode, which takes any offset and length",
            Error::Poisoned(_) => {
                "check or rewrite the data, then acknowledge the failure; a repeated sync would prove nothing"
            }
            Error::Full => "complete some requests first, or start the engine with more slots",
            Error::NoDescription { .. } => "open the file for that mode, or use another one",
            Error::Unsupported { .. } => "choose another backend: `baio doctor` lists them",
            Error::ReadOnlyMemory => "read into a buffer of your own",
            Error::Forked => "start an engine of its own in the child",
            Error::Indeterminate => "read the range back before relying on it",
            Error::System(Errno::ENOSPC) => "free some space on the file system",
            Error::System(Errno::EIO) => {
                "the device or the file system below failed: look into the kernel's log (`dmesg`), save what can be read, then try again"
            }
            Error::System(_) | Error::Cancelled => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System(errno) => write!(f, "{errno}"),
            Error::Misaligned { argument, value, need } => write!(
                f,
                "the {argument} {value} is not a multiple of {need}, which direct I/O needs here"
            ),
            Error::Unsupported { operation, backend } => {
                write!(f, "the {backend} backend cannot do `{operation}`")
            }
            Error::NoDescription { mode } => {
                write!(f, "the file has no description for mode `{mode}`")
            }
            Error::ReadOnlyMemory => f.write_str("the memory is shared and read-only: a read cannot fill it"),
            Error::Poisoned(errno) => write!(f, "an earlier sync failed with {errno}"),
            Error::Indeterminate => f.write_str("given up while it ran: it may or may not take effect"),
            Error::Cancelled => f.write_str("cancelled"),
            Error::Full => f.write_str("every slot is taken"),
            Error::Forked => f.write_str("the engine was started by the parent of this process"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::System(errno)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_device_has_a_cure_that_changes_nothing() {
        let cure = Error::System(Errno::EIO).cure().unwrap();
        assert!(
            cure.contains("dmesg") && cure.contains("save what can be read"),
            "{cure}"
        );
        assert!(!cure.contains("format") && !cure.contains("repair"), "{cure}");
    }
}
