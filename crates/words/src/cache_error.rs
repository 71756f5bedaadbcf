//! Why the page cache refused a request.

use std::fmt;

use crate::advice::into_std;
use crate::errno::Errno;

/// Why a request on the page cache failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheError {
    /// The device said so: about a fill to a read, about a write or a flush to a durable write, a sync or a reservation.
    System(Errno),
    /// It was cancelled; a write may have been done in part.
    Cancelled,
    /// A write does not lie inside the object.
    PastEnd,
    /// Too many pages of the object, or of the whole cache, could not be written, for this reason; no more can become dirty.
    Unwritable(Errno),
    /// An earlier write of these pages was given up on, and the device has not given their memory back.
    Stuck,
    /// No frame can be had: all are held by pins, or lost to I/Os that were given up on.
    NoFrame,
    /// A read cannot fill shared, read-only memory.
    ReadOnlyMemory,
    /// Memory lent by a foreign interface cannot be copied here.
    MemoryKind,
    /// The request is longer than a result can tell (4 GiB less one byte).
    TooLong,
    /// There is no such object (any more).
    NoObject,
    /// The object is in use: end its requests first.
    Busy,
    /// No memory for bookkeeping.
    NoMemory,
    /// A page is held by a pin, and a direct write cannot take its place.
    Pinned,
    /// The pin is not of this cache, or its page has left since: its object was deleted or changed its size.
    StalePin,
    /// The page is on its way to the device, and not changed meanwhile.
    BeingWritten,
    /// Too many pages are not clean yet: no more can become so now.
    NoRoom,
    /// A sync waits for this page, and the page for the log: it can be changed again when the log is durable up to this LSN
    /// and the page has been written. Once the log has failed it stays so.
    LogFirst(u64),
    /// More pages are lent than may be.
    LentOut,
    /// There is no such write gate (any more).
    NoGate,
    /// The object has pages that were changed under LSNs of another gate and are not safe.
    OtherGate,
    /// More pages would be kept than may be: by one user, or in all.
    KeptFull,
}

/// What has nothing more to say, in the order of their words.
const PLAIN: [CacheError; 18] = [
    CacheError::Cancelled,
    CacheError::PastEnd,
    CacheError::Stuck,
    CacheError::NoFrame,
    CacheError::ReadOnlyMemory,
    CacheError::MemoryKind,
    CacheError::TooLong,
    CacheError::NoObject,
    CacheError::Busy,
    CacheError::NoMemory,
    CacheError::Pinned,
    CacheError::StalePin,
    CacheError::BeingWritten,
    CacheError::NoRoom,
    CacheError::LentOut,
    CacheError::NoGate,
    CacheError::OtherGate,
    CacheError::KeptFull,
];

/// Words below the plain ones: those with a number.
const NUMBERED: u32 = 3;

impl CacheError {
    /// The error as a word and a number, to be sent to another process. They are kept: new errors get new words.
    #[must_use]
    pub fn to_words(self) -> (u32, u64) {
        match self {
            CacheError::System(errno) => (0, u64::from(errno.raw().unsigned_abs())),
            CacheError::Unwritable(errno) => (1, u64::from(errno.raw().unsigned_abs())),
            CacheError::LogFirst(lsn) => (2, lsn),
            plain => {
                let at = PLAIN.iter().position(|error| *error == plain);
                (NUMBERED + at.unwrap_or(PLAIN.len()) as u32, 0)
            }
        }
    }

    /// The error of these words; `None` for words that no error has.
    #[must_use]
    pub fn from_words(word: u32, with: u64) -> Option<CacheError> {
        let errno = || (1..=4095).contains(&with).then(|| Errno::from_raw(with as i32));
        match word {
            0 => errno().map(CacheError::System),
            1 => errno().map(CacheError::Unwritable),
            2 => Some(CacheError::LogFirst(with)),
            plain => PLAIN.get((plain - NUMBERED) as usize).copied(),
        }
    }

    /// The nearest error number, for interfaces that have nothing else.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            CacheError::System(errno) | CacheError::Unwritable(errno) => errno,
            CacheError::Cancelled => Errno::ECANCELED,
            CacheError::PastEnd => Errno::ENOSPC,
            CacheError::Stuck => Errno::ETIMEDOUT,
            CacheError::NoFrame | CacheError::NoMemory => Errno::ENOMEM,
            CacheError::ReadOnlyMemory => Errno::EFAULT,
            CacheError::MemoryKind | CacheError::TooLong => Errno::EINVAL,
            CacheError::NoObject | CacheError::NoGate => Errno::EBADF,
            CacheError::Busy | CacheError::Pinned | CacheError::OtherGate => Errno::EBUSY,
            CacheError::StalePin => Errno::ESTALE,
            CacheError::BeingWritten
            | CacheError::NoRoom
            | CacheError::LogFirst(_)
            | CacheError::LentOut
            | CacheError::KeptFull => Errno::EAGAIN,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn cure(self) -> &'static str {
        match self {
            CacheError::System(errno) | CacheError::Unwritable(errno) if has_no_room(errno) => {
                "make room: on the file system, or below the device (extend the thin pool, or discard what is not needed), or bring back a device that was taken away; then a sync writes them"
            }
            CacheError::System(_) | CacheError::Unwritable(_) => {
                "mend the device, write what could not be written again, and sync"
            }
            CacheError::NoFrame | CacheError::NoMemory => "give the cache more memory, or use mode `direct`",
            CacheError::Stuck => "wait until the device answers, or use another one",
            CacheError::Busy => "wait until what is under way has ended",
            CacheError::Pinned => "unpin the pages of that range, or write them through the pool",
            CacheError::StalePin => "pin the page again",
            CacheError::BeingWritten | CacheError::NoRoom => "wait for it (`Pin::changeable`), and try again",
            CacheError::KeptFull => "keep fewer pages, or give the cache more memory",
            CacheError::LentOut => "drop pages that were lent before",
            CacheError::LogFirst(_) => {
                "flush the log, say how far it is durable, and try again (once the log has failed it stays so)"
            }
            CacheError::NoObject => "open it again",
            CacheError::NoGate => "make a gate, and name that",
            CacheError::OtherGate => "sync it, and try again",
            CacheError::Cancelled | CacheError::PastEnd | CacheError::TooLong => "ask again, for less",
            CacheError::ReadOnlyMemory | CacheError::MemoryKind => "use a buffer of the core",
        }
    }
}

/// The device is whole, and what it is kept in is full.
fn has_no_room(errno: Errno) -> bool {
    matches!(errno, Errno::ENOSPC | Errno::EDQUOT)
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::System(errno) => write!(f, "the device failed: {errno}"),
            CacheError::Cancelled => f.write_str("cancelled"),
            CacheError::PastEnd => f.write_str("the write reaches past the end: make the object larger first"),
            CacheError::Unwritable(errno) => {
                let first = if has_no_room(*errno) { "make room" } else { "repair the device" };
                write!(
                    f,
                    "too many pages could not be written ({errno}): {first}, and a sync writes them again"
                )
            }
            CacheError::Stuck => f.write_str("an earlier write of these pages was given up on and still runs"),
            CacheError::NoFrame => f.write_str("every frame is held by a pin, or by an I/O that was given up on"),
            CacheError::ReadOnlyMemory => {
                f.write_str("the memory is shared and read-only: read into a buffer of your own")
            }
            CacheError::MemoryKind => f.write_str("lent memory cannot be used with the cache: use a buffer or a span"),
            CacheError::TooLong => f.write_str("longer than 4 GiB less one byte: ask in pieces"),
            CacheError::NoObject => f.write_str("no such object"),
            CacheError::Busy => f.write_str("the object is in use: wait for its requests, and sync it"),
            CacheError::NoMemory => f.write_str("no memory for bookkeeping"),
            CacheError::Pinned => f.write_str("a page there is pinned: unpin it first"),
            CacheError::StalePin => f.write_str("the pinned page has left: pin it again"),
            CacheError::BeingWritten => f.write_str("the page is being written: wait for the end of that"),
            CacheError::NoRoom => f.write_str("too many pages are changed and not written: wait for the cleaner"),
            CacheError::KeptFull => f.write_str(
                "more pages would be kept than may be: a quarter of the cache by one user, of one object by 64 handles, half of it in all",
            ),
            CacheError::LentOut => f.write_str("more pages are lent than may be at a time"),
            CacheError::NoGate => f.write_str("no such write gate"),
            CacheError::OtherGate => f.write_str("pages that another log describes are not safe yet: sync them first"),
            CacheError::LogFirst(lsn) => write!(
                f,
                "a sync waits for this page: make the log durable up to {lsn}, and say so"
            ),
        }
    }
}

impl std::error::Error for CacheError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CacheError::System(errno) | CacheError::Unwritable(errno) => Some(errno),
            _ => None,
        }
    }
}

impl From<CacheError> for std::io::Error {
    /// The error itself is inside; `raw_os_error` is `None`.
    fn from(error: CacheError) -> std::io::Error {
        into_std(error.errno(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_words_of_its_own() {
        let numbered = [
            CacheError::System(Errno::EIO),
            CacheError::Unwritable(Errno::ENOSPC),
            CacheError::LogFirst(u64::MAX),
        ];
        for error in numbered.into_iter().chain(PLAIN) {
            let (word, with) = error.to_words();
            assert_eq!(CacheError::from_words(word, with), Some(error));
        }
        assert_eq!(CacheError::from_words(NUMBERED + PLAIN.len() as u32, 0), None);
        assert_eq!(CacheError::from_words(1, u64::MAX), None);
    }
}
