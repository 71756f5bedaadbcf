//! Why a request failed below everything that has a name: plain, copyable data, because it travels through the hot path.
//! Whoever knows the object and the offset (the caller) puts them beside it ([`crate::RequestError`]).

use std::fmt;

use crate::advice::into_std;
use crate::errno::Errno;

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
pub enum IoError {
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
    /// The device's own backend has failed, and nothing more is asked of it: the request may or may not take effect, now or later.
    DeviceLost {
        /// The backend's name.
        device: &'static str,
        /// What it failed with.
        errno: Errno,
    },
    /// The process has forked, and this is the child: the engine belongs to the parent.
    Forked,
    /// The engine belongs to the thread that started it, and this is another.
    OtherThread,
}

/// What helps where a file would be larger than the process, or the file system, lets it be.
pub const TOO_LARGE_CURE: &str = "choose a smaller size, raise the limit of file sizes (`ulimit -f`, `LimitFSIZE=` of a service), or take a file system with larger files";

/// What helps where there is no room. A device has none where what lies below it has none, and where it was taken away: its size is 0 then,
/// and a write past the end of a device is ENOSPC.
pub(crate) const NO_SPACE_CURE: &str = "free some space on the file system; of a device, below it: extend the thin pool, or the disk or file \
     that it is kept in, or discard what is not needed (`blkdiscard`, `fstrim`); if it was taken away (`lsblk`), bring it back";

impl IoError {
    /// The nearest error number, for interfaces that have nothing else.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            IoError::System(errno) | IoError::Poisoned(errno) | IoError::DeviceLost { errno, .. } => errno,
            IoError::Misaligned { .. } | IoError::NoDescription { .. } => Errno::EINVAL,
            IoError::Unsupported { .. } => Errno::EOPNOTSUPP,
            IoError::ReadOnlyMemory => Errno::EFAULT,
            IoError::Indeterminate => Errno::ETIMEDOUT,
            IoError::Cancelled => Errno::ECANCELED,
            IoError::Full => Errno::EAGAIN,
            IoError::Forked => Errno::ECHILD,
            IoError::OtherThread => Errno::EPERM,
        }
    }

    /// What to do about it, where something general can be said.
    #[must_use]
    pub fn cure(self) -> Option<&'static str> {
        Some(match self {
            IoError::Misaligned { .. } => "align it, or ask for a cached mode, which takes any offset and length",
            IoError::Poisoned(_) => {
                "check or rewrite the data, then acknowledge the failure; a repeated sync would prove nothing"
            }
            IoError::Full => "complete some requests first, or start the engine with more slots",
            IoError::NoDescription { .. } => {
                "open the file for that mode too (`OpenOptions::every_mode`), or use the one that it was opened for"
            }
            IoError::Unsupported { .. } => "choose another backend: `baio doctor` lists them",
            IoError::ReadOnlyMemory => "read into a buffer of your own",
            IoError::DeviceLost { .. } => {
                "give the engine another backend for the device, and read back what was being written"
            }
            IoError::Forked => "start an engine of its own in the child",
            IoError::OtherThread => "use it where it was started, or start it for any thread (`Affinity::AnyThread`)",
            IoError::Indeterminate => "read the range back before relying on it",
            IoError::System(Errno::EFBIG) => TOO_LARGE_CURE,
            IoError::System(Errno::ENOSPC) => NO_SPACE_CURE,
            IoError::System(Errno::EIO) => {
                "the device or the file system below failed: look into the kernel's log (`dmesg`), save what can be read, then try again"
            }
            IoError::System(_) | IoError::Cancelled => return None,
        })
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoError::System(errno) => write!(f, "{errno}"),
            IoError::Misaligned { argument, value, need } => write!(
                f,
                "the {argument} {value} is not a multiple of {need}, which direct I/O needs here"
            ),
            IoError::Unsupported { operation, backend } => {
                write!(f, "the {backend} backend cannot do `{operation}`")
            }
            IoError::NoDescription { mode } => {
                write!(f, "the file was not opened for mode `{mode}`")
            }
            IoError::ReadOnlyMemory => f.write_str("the memory is shared and read-only: a read cannot fill it"),
            IoError::Poisoned(errno) => write!(f, "an earlier sync failed with {errno}"),
            IoError::Indeterminate => f.write_str("given up while it ran: it may or may not take effect"),
            IoError::Cancelled => f.write_str("cancelled"),
            IoError::Full => f.write_str("every slot is taken"),
            IoError::DeviceLost { device, errno } => {
                write!(
                    f,
                    "the backend `{device}` has failed with {errno} and is not used any more"
                )
            }
            IoError::Forked => f.write_str("the engine was started by the parent of this process"),
            IoError::OtherThread => f.write_str("the engine was started by another thread"),
        }
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IoError::System(errno) | IoError::Poisoned(errno) | IoError::DeviceLost { errno, .. } => Some(errno),
            _ => None,
        }
    }
}

impl From<IoError> for std::io::Error {
    /// The error itself is inside; `raw_os_error` is `None`.
    fn from(error: IoError) -> std::io::Error {
        into_std(error.errno(), error)
    }
}

impl From<Errno> for IoError {
    fn from(errno: Errno) -> IoError {
        IoError::System(errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_device_has_a_cure_that_changes_nothing() {
        let cure = IoError::System(Errno::EIO).cure().unwrap();
        assert!(
            cure.contains("dmesg") && cure.contains("save what can be read"),
            "{cure}"
        );
        assert!(!cure.contains("format") && !cure.contains("repair"), "{cure}");
    }
}
