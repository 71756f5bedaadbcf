//! Why a handle is of no use any more though its link goes on, with the next broker.

use std::fmt;

use crate::errno::Errno;

/// Why a handle does nothing any more. Another one, from an open after that, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Cached writes to its segment had ended and were not synced, and the broker that had them has ended.
    CachedWrites,
    /// Its segment is gone, also if another has its name.
    Segment,
    /// The next broker did not open it: what it said.
    Refused(Errno),
}

impl Lost {
    /// The word that stands for it in JSON.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Lost::CachedWrites => "EPOISONED",
            lost => lost.errno().name(),
        }
    }

    pub(crate) fn errno(self) -> Errno {
        match self {
            Lost::CachedWrites => Errno::EIO,
            Lost::Segment => Errno::ESTALE,
            Lost::Refused(errno) => errno,
        }
    }

    pub(crate) fn need(self) -> &'static str {
        match self {
            Lost::CachedWrites => "a handle that was opened since",
            Lost::Segment => "a handle of a segment that exists",
            Lost::Refused(_) => "a handle that the broker which serves now opens",
        }
    }

    pub(crate) fn cure(self) -> &'static str {
        match self {
            Lost::CachedWrites => "open it again, and read back what was written and not synced",
            Lost::Segment => "list the segments, and open the one that is meant",
            Lost::Refused(_) => "open it again, which says why not",
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::CachedWrites => f.write_str(
                "cached writes that were not synced may be lost: the broker that had them has ended, and another serves",
            ),
            Lost::Segment => {
                f.write_str("another broker serves, and the segment was deleted meanwhile, or another has its name")
            }
            Lost::Refused(errno) => write!(f, "another broker serves, and does not open the segment again: {errno}"),
        }
    }
}
