//! What went wrong with a request. The service sends a [`Failure`]. Its client adds what it knows itself: the operation, the object, the
//! offset, the length.

use std::fmt;

use crate::advice::{IN_LINE, ON_LINES, into_std, write_advice};
use crate::cache_error::CacheError;
use crate::errno::Errno;
use crate::failure::{FEATURES, Failure, word_at, word_in};
use crate::io_error::{Argument, IoError};
use crate::lost::Lost;
use crate::op::SegmentOp;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// It failed in the engine.
    Io(IoError),
    /// The range lies beyond the end of the object.
    Beyond {
        /// Bytes from the offset.
        len: u64,
        /// Size of the object in bytes.
        size: u64,
        /// Was it a write?
        write: bool,
    },
    /// There is no page cache.
    NoCache,
    /// The page cache could not do it.
    Cache(CacheError),
    /// Not built yet.
    NotYet(&'static str),
    /// Its size, or the space it has, is not for a request to change: it is a segment, a device or a stream.
    NotAFile,
    /// A log is open on it, which alone may write there.
    HasLog,
    /// A write through a handle that was opened for reading.
    ReadOnly,
    /// What is behind the handle was deleted or closed.
    Stale,
    /// Nobody is there to complete the request.
    NobodyDrives,
    /// The thread or process that served has ended.
    ServiceEnded,
    /// The thread that served has ended, because the system refused it this.
    ServiceFailed(Errno),
    /// Another broker serves now, and this handle is of no use there.
    Lost(Lost),
}

impl RequestFault {
    /// The word that stands for it in JSON.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            RequestFault::Io(IoError::Poisoned(_)) => "EPOISONED",
            RequestFault::Io(IoError::Indeterminate) => "EINDETERMINATE",
            RequestFault::Lost(lost) => lost.code(),
            fault => fault.errno().name(),
        }
    }

    /// The nearest error number, for interfaces that have nothing else.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            RequestFault::Io(error) => error.errno(),
            RequestFault::Beyond { write: true, .. } => Errno::ENOSPC,
            RequestFault::Beyond { .. } => Errno::EINVAL,
            RequestFault::NoCache | RequestFault::NotYet(_) | RequestFault::NotAFile => Errno::EOPNOTSUPP,
            RequestFault::Cache(error) => error.errno(),
            RequestFault::HasLog => Errno::EBUSY,
            RequestFault::ReadOnly => Errno::EBADF,
            RequestFault::Stale => Errno::ESTALE,
            RequestFault::NobodyDrives => Errno::EDEADLK,
            RequestFault::ServiceEnded | RequestFault::ServiceFailed(_) => Errno::EPIPE,
            RequestFault::Lost(lost) => lost.errno(),
        }
    }

    /// What was needed instead.
    #[must_use]
    pub fn need(self) -> Option<String> {
        let fixed = match self {
            RequestFault::Io(IoError::Misaligned { argument, need, .. }) => {
                return Some(format!("{argument} in multiples of {need} bytes"));
            }
            RequestFault::Beyond { size, .. } => return Some(format!("offset plus length of at most {size} bytes")),
            RequestFault::Io(_) | RequestFault::Cache(_) => return None,
            RequestFault::NotYet(_) => "what this build has: `direct`, and `cached`",
            RequestFault::NoCache => "a link with a page cache",
            RequestFault::NotAFile => "a plain file",
            RequestFault::HasLog => "a segment or file on which no log is open",
            RequestFault::ReadOnly => "a handle opened for writing",
            RequestFault::Stale => "a handle that is open, of a segment or file that exists, on a link that is open",
            RequestFault::NobodyDrives => "a thread that drives the link",
            RequestFault::ServiceEnded | RequestFault::ServiceFailed(_) => "a service that runs",
            RequestFault::Lost(lost) => lost.need(),
        };
        Some(fixed.to_owned())
    }

    /// What to do about it.
    #[must_use]
    pub fn cure(self) -> Option<String> {
        let fixed = match self {
            RequestFault::Io(IoError::Misaligned {
                argument: Argument::Memory,
                ..
            }) => "take the memory from `buffer(len)` of the link, or let the request go through one (`bounced()`)",
            RequestFault::Io(IoError::Misaligned { argument, need, .. }) => {
                return Some(format!(
                    "align the {argument} to {need} bytes, or use a mode that takes any: `cached`, or `kernel` on a plain file"
                ));
            }
            RequestFault::Io(IoError::Poisoned(_)) => "close the volume and open it again, then check what was written",
            RequestFault::Io(IoError::Unsupported { .. }) => "`baio doctor` shows what works here",
            RequestFault::Io(IoError::System(Errno::ENXIO | Errno::ENODEV)) => GONE_CURE,
            RequestFault::Io(IoError::System(errno)) if is_of_a_device(errno) => DEVICE_CURE,
            RequestFault::Io(error) => error.cure()?,
            RequestFault::Beyond { write: true, .. } => "write less, or make a larger segment",
            RequestFault::Beyond { .. } => "read less",
            RequestFault::NotYet(_) => "use mode `direct`",
            RequestFault::NoCache => "open the link with one (`LinkOptions::with_cache`), or use another mode",
            RequestFault::Cache(error) => error.cure(),
            RequestFault::NotAFile => "resize the segment instead (`baio resize`); a device has the size that it has",
            RequestFault::HasLog => "close the log first, or write elsewhere",
            RequestFault::ReadOnly => "open it with write access",
            RequestFault::Stale => "open it again; if its link was closed, open that first",
            RequestFault::NobodyDrives => "run it inside `block_on`, keep a `drive()` beside it, or call `wait`",
            RequestFault::ServiceEnded | RequestFault::ServiceFailed(_) => {
                "open the volume again, and read back what was being written"
            }
            RequestFault::Lost(lost) => lost.cure(),
        };
        Some(fixed.to_owned())
    }
}

/// The cure of what only the device below can have said. A path that is down for a second and a sector that is gone for good
/// look alike.
pub const DEVICE_CURE: &str = "look into the kernel's log (`dmesg`) and mend the device, its cable, path or \
     server, then try again; if it stays, copy it with GNU ddrescue to a sound one and `baio check` the copy";

/// The cure of a device that has been taken away.
const GONE_CURE: &str = "the device is gone: see in the kernel's log (`dmesg`) why, bring it back (its cable, path, server or \
     driver), then open it again";

fn is_of_a_device(errno: Errno) -> bool {
    matches!(errno, Errno::EIO | Errno::EREMOTEIO | Errno::ETIMEDOUT)
}

impl RequestFault {
    /// What to do about it, when it was met in this operation ([`SegmentOp::name`]).
    #[must_use]
    pub fn cure_of(self, operation: &str) -> Option<String> {
        let refused = self == RequestFault::Io(IoError::System(Errno::EOPNOTSUPP));
        // What fallocate(2) says of what is neither, and some drivers of a device that has been taken away.
        let has_no_space = self == RequestFault::Io(IoError::System(Errno::ENODEV));
        let fixed = match operation {
            "allocate" | "discard" | "zero" if has_no_space => {
                "only a file and a block device have space, a stream has none; if it is a block device, it is gone: see in the kernel's log \
                 (`dmesg`) why, bring it back, and open it again"
            }
            "allocate" if refused => {
                "this file system cannot reserve space: make the file as long as it is to be (`truncate`); only writing takes the space"
            }
            "discard" if refused => "space cannot be given back here: write zeros, or leave it",
            "zero" if refused => "write zeros there",
            _ => return self.cure(),
        };
        Some(fixed.to_owned())
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestFault::Io(error) => write!(f, "{error}"),
            RequestFault::Beyond { len, size, write } => write!(
                f,
                "{} of {len} bytes goes beyond its end at {size}",
                if *write { "a write" } else { "a read" }
            ),
            RequestFault::NoCache => f.write_str("this link has no page cache"),
            RequestFault::Cache(error) => write!(f, "{error}"),
            RequestFault::NotYet(what) => write!(f, "{what} is not available yet"),
            RequestFault::NotAFile => f.write_str("a request cannot change its size"),
            RequestFault::HasLog => f.write_str("a log is open on it"),
            RequestFault::ReadOnly => f.write_str("the handle was opened for reading only"),
            RequestFault::Stale => {
                f.write_str("what is behind this handle was deleted or closed, or its link was closed")
            }
            RequestFault::NobodyDrives => f.write_str("nobody drives this link, so its requests do not end"),
            RequestFault::ServiceEnded => f.write_str("the service of the volume has ended"),
            RequestFault::ServiceFailed(errno) => {
                write!(
                    f,
                    "the service of the volume has ended: the system refused it its I/O ({errno})"
                )
            }
            RequestFault::Lost(lost) => write!(f, "{lost}"),
        }
    }
}

impl From<RequestFault> for Failure {
    /// What a service tells; the operation, the length and the object its client knows.
    fn from(fault: RequestFault) -> Failure {
        match fault {
            RequestFault::Io(error) => Failure::Io(error),
            RequestFault::Beyond { size, .. } => Failure::Beyond { size },
            RequestFault::NoCache => Failure::NoCache,
            RequestFault::Cache(error) => {
                let (word, with) = error.to_words();
                Failure::Cache { word, with }
            }
            RequestFault::NotYet(what) => Failure::NotYet(word_in(&FEATURES, what)),
            RequestFault::NotAFile => Failure::NotAFile,
            RequestFault::HasLog => Failure::HasLog,
            RequestFault::ReadOnly => Failure::ReadOnly,
            RequestFault::Stale => Failure::Stale,
            RequestFault::NobodyDrives => Failure::Io(IoError::System(fault.errno())),
            RequestFault::ServiceEnded | RequestFault::ServiceFailed(_) => Failure::Ending,
            // Only a client knows of it.
            RequestFault::Lost(lost) => Failure::Io(IoError::System(lost.errno())),
        }
    }
}

impl Failure {
    /// What it means for a request of this operation with `len` bytes of memory.
    #[must_use]
    pub fn of(self, op: SegmentOp, len: u32) -> RequestFault {
        match self {
            Failure::Io(error) => RequestFault::Io(error),
            Failure::Beyond { size } => RequestFault::Beyond {
                len: op.bytes(u64::from(len)),
                size,
                write: op.changes_bytes(),
            },
            Failure::NotAFile => RequestFault::NotAFile,
            Failure::HasLog => RequestFault::HasLog,
            Failure::ReadOnly => RequestFault::ReadOnly,
            Failure::Stale => RequestFault::Stale,
            Failure::NoCache => RequestFault::NoCache,
            Failure::Cache { word, with } => match CacheError::from_words(word, with) {
                Some(error) => RequestFault::Cache(error),
                // A service that is newer says what this side does not know.
                None => RequestFault::Io(IoError::System(Errno::EIO)),
            },
            Failure::NotYet(feature) => RequestFault::NotYet(word_at(&FEATURES, feature)),
            Failure::Ending => RequestFault::ServiceEnded,
        }
    }
}

/// Why a request failed, with all that its caller may want to know. `Display` is one line; `Debug`, which `unwrap` and `main` show,
/// says the same with need and cure on lines of their own, and as `{:#?}` the fields.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestError {
    /// What was being done: "read".
    pub operation: &'static str,
    /// To what: a path, or `PATH#UID/NAME`.
    pub object: String,
    /// At which byte of it.
    pub offset: Option<u64>,
    /// What went wrong.
    pub fault: RequestFault,
}

impl RequestError {
    /// An error that is of no byte.
    #[must_use]
    pub fn new(operation: &'static str, object: impl Into<String>, fault: RequestFault) -> RequestError {
        RequestError {
            operation,
            object: object.into(),
            offset: None,
            fault,
        }
    }

    /// The failure of a request with `len` bytes of memory on this object.
    #[must_use]
    pub fn of(op: SegmentOp, object: &str, len: u32, failure: Failure) -> RequestError {
        RequestError {
            offset: op.offset(),
            ..RequestError::new(op.name(), object, failure.of(op, len))
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, between: &str) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.object)?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        write!(f, ": {}", self.fault)?;
        let (need, cure) = (self.fault.need(), self.fault.cure_of(self.operation));
        write_advice(f, between, need.as_deref(), cure.as_deref())
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, IN_LINE)
    }
}

impl fmt::Debug for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return self.write(f, ON_LINES);
        }
        let mut fields = f.debug_struct("RequestError");
        fields.field("operation", &self.operation).field("object", &self.object);
        fields
            .field("offset", &self.offset)
            .field("fault", &self.fault)
            .finish()
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            RequestFault::Io(error) => Some(error),
            RequestFault::Cache(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RequestError> for std::io::Error {
    /// The error itself is inside, `get_ref` and `downcast_ref` find it; `raw_os_error` is `None`.
    fn from(error: RequestError) -> std::io::Error {
        into_std(error.fault.errno(), error)
    }
}

#[cfg(test)]
mod tests;
