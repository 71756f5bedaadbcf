//! Why a request failed, as it crosses a ring: a code, two small details and a large one.

use crate::errno::Errno;
use crate::io_error::{Argument, IoError};

/// Why a request failed, in words that cross the ring. What was asked for, and of which object, the client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It failed in the engine.
    Io(IoError),
    /// It goes beyond the end of its object, which is at this byte.
    Beyond {
        /// Size of the object.
        size: u64,
    },
    /// A write through a handle for reading.
    ReadOnly,
    /// The handle is not valid any more.
    Stale,
    /// Not built yet: an index into [`FEATURES`].
    NotYet(u32),
    /// The service has no page cache.
    NoCache,
    /// The page cache refused it.
    Cache {
        /// Which of its errors.
        word: u32,
        /// What goes with it: an error number, an LSN.
        with: u64,
    },
    /// The service is ending.
    Ending,
    /// Its size is not for a request to change.
    NotAFile,
    /// A log is open on it.
    HasLog,
}

/// What a service may not have: the words for [`Failure::NotYet`]. The last one stands for everything else.
pub const FEATURES: [&str; 2] = ["the kernel's page cache on a segment", "this"];

const OPERATIONS: [&str; 10] = [
    "read",
    "write",
    "sync",
    "fence",
    "sync range",
    "allocate",
    "zero",
    "discard",
    "truncate",
    "this operation",
];
const BACKENDS: [&str; 6] = ["sync", "threads", "aio", "uring", "sim", "chosen"];
const MODES: [&str; 3] = ["kernel", "uncached", "direct"];

/// The place of a word in its table; the last one stands for what is not in it.
#[must_use]
pub fn word_in(table: &[&str], word: &str) -> u32 {
    let found = table.iter().position(|known| *known == word);
    found.unwrap_or(table.len() - 1) as u32
}

/// The word at a place that a peer named.
#[must_use]
pub fn word_at(table: &[&'static str], at: u32) -> &'static str {
    table[(at as usize).min(table.len() - 1)]
}

pub(crate) fn encode_failure(failure: Failure) -> (u8, u32, u32, u64) {
    let errno = |errno: Errno| errno.raw() as u32;
    match failure {
        Failure::Io(IoError::System(system)) => (1, errno(system), 0, 0),
        Failure::Io(IoError::Misaligned { argument, value, need }) => {
            let argument = match argument {
                Argument::Offset => 0,
                Argument::Length => 1,
                Argument::Memory => 2,
            };
            (2, need, argument, value)
        }
        Failure::Io(IoError::Unsupported { operation, backend }) => {
            (3, word_in(&OPERATIONS, operation), word_in(&BACKENDS, backend), 0)
        }
        Failure::Io(IoError::NoDescription { mode }) => (4, word_in(&MODES, mode), 0, 0),
        Failure::Io(IoError::ReadOnlyMemory) => (5, 0, 0, 0),
        Failure::Io(IoError::Poisoned(system)) => (6, errno(system), 0, 0),
        Failure::Io(IoError::Indeterminate) => (7, 0, 0, 0),
        Failure::Io(IoError::Cancelled) => (8, 0, 0, 0),
        Failure::Io(IoError::Full) => (9, 0, 0, 0),
        // What the engine learns to say later is told by its number.
        Failure::Io(other) => (1, errno(other.errno()), 0, 0),
        Failure::Beyond { size } => (10, 0, 0, size),
        Failure::ReadOnly => (11, 0, 0, 0),
        Failure::Stale => (12, 0, 0, 0),
        Failure::NotYet(feature) => (13, feature, 0, 0),
        Failure::Ending => (14, 0, 0, 0),
        Failure::NoCache => (15, 0, 0, 0),
        Failure::Cache { word, with } => (16, word, 0, with),
        Failure::NotAFile => (17, 0, 0, 0),
        Failure::HasLog => (18, 0, 0, 0),
    }
}

pub(crate) fn decode_failure(code: u8, small: u32, second: u32, large: u64) -> Option<Failure> {
    // No other number is an error's: a peer could make a success of it.
    let errno = || (1..=4095).contains(&small).then(|| Errno::from_raw(small as i32));
    Some(match code {
        1 => Failure::Io(IoError::System(errno()?)),
        2 => {
            let argument = match second {
                0 => Argument::Offset,
                1 => Argument::Length,
                2 => Argument::Memory,
                _ => return None,
            };
            let (value, need) = (large, small);
            Failure::Io(IoError::Misaligned { argument, value, need })
        }
        3 => Failure::Io(IoError::Unsupported {
            operation: word_at(&OPERATIONS, small),
            backend: word_at(&BACKENDS, second),
        }),
        4 => Failure::Io(IoError::NoDescription {
            mode: word_at(&MODES, small),
        }),
        5 => Failure::Io(IoError::ReadOnlyMemory),
        6 => Failure::Io(IoError::Poisoned(errno()?)),
        7 => Failure::Io(IoError::Indeterminate),
        8 => Failure::Io(IoError::Cancelled),
        9 => Failure::Io(IoError::Full),
        10 => Failure::Beyond { size: large },
        11 => Failure::ReadOnly,
        12 => Failure::Stale,
        13 => Failure::NotYet(small),
        14 => Failure::Ending,
        15 => Failure::NoCache,
        16 => Failure::Cache {
            word: small,
            with: large,
        },
        17 => Failure::NotAFile,
        18 => Failure::HasLog,
        _ => return None,
    })
}
