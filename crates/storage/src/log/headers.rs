//! The two copies of a log's header: which counts, and in which order they are written.
//!
//! The newest valid copy counts. An update goes to the other copy first, so the newest is never overwritten before its successor is
//! durable. What must not be taken back (the epoch, the head, the size) is used only when both copies have it: then an old copy is
//! never wrong, only old. A watermark in one copy is enough.
//!
//! A copy that could not be read is neither valid nor damaged. The other one serves, as an old copy is never wrong; alone it is judged by
//! nothing, and whoever salvages needs both.

use super::error::LogError;
use super::format::{Header, HeaderFault};
use super::seen::Unread;

/// What is known of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeaderCopy {
    /// It was read, or is durable now.
    Valid(Header),
    /// It was read, and is none.
    Invalid(HeaderFault),
    /// Nobody knows.
    Unread(Unread),
}

impl From<Result<Result<Header, HeaderFault>, Unread>> for HeaderCopy {
    fn from(read: Result<Result<Header, HeaderFault>, Unread>) -> HeaderCopy {
        match read {
            Ok(Ok(header)) => HeaderCopy::Valid(header),
            Ok(Err(fault)) => HeaderCopy::Invalid(fault),
            Err(unread) => HeaderCopy::Unread(unread),
        }
    }
}

/// What is known to be in the copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    copies: [HeaderCopy; 2],
}

impl Default for Headers {
    fn default() -> Headers {
        Headers {
            copies: [HeaderCopy::Invalid(HeaderFault::Absent); 2],
        }
    }
}

impl Headers {
    /// What is known of a copy now.
    pub(super) fn set(&mut self, copy: usize, found: HeaderCopy) {
        self.copies[copy & 1] = found;
    }

    fn newest_copy(&self) -> Option<usize> {
        match self.copies {
            [HeaderCopy::Valid(zero), HeaderCopy::Valid(one)] => Some(usize::from(one.sequence > zero.sequence)),
            [HeaderCopy::Valid(_), _] => Some(0),
            [_, HeaderCopy::Valid(_)] => Some(1),
            _ => None,
        }
    }

    /// The copy that counts.
    pub(super) fn newest(&self) -> Result<Header, LogError> {
        match self.copies {
            [HeaderCopy::Valid(zero), HeaderCopy::Valid(one)] => {
                if (zero.uuid, zero.salt, zero.block_bytes) != (one.uuid, one.salt, one.block_bytes) {
                    return Err(LogError::HeaderLost);
                }
                Ok(if one.sequence > zero.sequence { one } else { zero })
            }
            [HeaderCopy::Valid(header), _] | [_, HeaderCopy::Valid(header)] => Ok(header),
            [HeaderCopy::Invalid(HeaderFault::Version(version)), _]
            | [_, HeaderCopy::Invalid(HeaderFault::Version(version))] => Err(LogError::Version(version)),
            [HeaderCopy::Unread(unread), _] | [_, HeaderCopy::Unread(unread)] => Err(unread.into()),
            [HeaderCopy::Invalid(HeaderFault::Making), _] | [_, HeaderCopy::Invalid(HeaderFault::Making)] => {
                Err(LogError::NotMade)
            }
            [HeaderCopy::Invalid(HeaderFault::Damaged), _] | [_, HeaderCopy::Invalid(HeaderFault::Damaged)] => {
                Err(LogError::HeaderLost)
            }
            _ => Err(LogError::NotLog),
        }
    }

    /// The first copy that could not be read.
    pub(super) fn unread(&self) -> Option<Unread> {
        self.copies.iter().find_map(|copy| match copy {
            HeaderCopy::Unread(unread) => Some(*unread),
            _ => None,
        })
    }

    /// The highest watermark of any copy.
    pub(super) fn watermark(&self) -> u64 {
        let watermark = |copy: &HeaderCopy| match copy {
            HeaderCopy::Valid(header) => header.watermark,
            _ => 0,
        };
        self.copies.iter().map(watermark).max().unwrap_or(0)
    }

    /// The copy to be written next: that which does not count.
    pub(super) fn older(&self) -> usize {
        self.newest_copy().map_or(0, |copy| 1 - copy)
    }

    /// What follows the newest copy: the same with the next sequence.
    pub(super) fn next(&self) -> Result<Header, LogError> {
        let newest = self.newest()?;
        Ok(Header {
            sequence: newest.sequence + 1,
            is_clean: false,
            ..newest
        })
    }
}
