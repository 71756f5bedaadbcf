//! The two copies of a log's header: which counts, and in which order they are written.
//!
//! The newest valid copy counts. An update goes to the other copy first, so the newest is never overwritten before its successor is
//! durable. What must not be taken back (the epoch, the head, the size) is used only when both copies have it: then an old copy is
//! never wrong, only old. A watermark in one copy is enough.

use super::error::LogError;
use super::format::{Header, HeaderFault};

/// What is known to be in the copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    copies: [Result<Header, HeaderFault>; 2],
}

impl Default for Headers {
    fn default() -> Headers {
        Headers {
            copies: [Err(HeaderFault::Absent); 2],
        }
    }
}

impl Headers {
    /// A copy was read, or is durable now.
    pub(super) fn set(&mut self, copy: usize, header: Result<Header, HeaderFault>) {
        self.copies[copy & 1] = header;
    }

    fn newest_copy(&self) -> Option<usize> {
        match self.copies {
            [Ok(zero), Ok(one)] => Some(usize::from(one.sequence > zero.sequence)),
            [Ok(_), Err(_)] => Some(0),
            [Err(_), Ok(_)] => Some(1),
            _ => None,
        }
    }

    /// The copy that counts.
    pub(super) fn newest(&self) -> Result<Header, LogError> {
        if let Some(copy) = self.newest_copy() {
            if let [Ok(zero), Ok(one)] = &self.copies {
                if (zero.uuid, zero.salt, zero.block_bytes) != (one.uuid, one.salt, one.block_bytes) {
                    return Err(LogError::HeaderLost);
                }
            }
            return self.copies[copy].map_err(|_| LogError::HeaderLost);
        }
        let faults = self.copies.map(|copy| copy.err());
        for fault in faults.into_iter().flatten() {
            if let HeaderFault::Version(version) = fault {
                return Err(LogError::Version(version));
            }
        }
        Err(if faults == [Some(HeaderFault::Absent); 2] {
            LogError::NotLog
        } else {
            LogError::HeaderLost
        })
    }

    /// The highest watermark of any copy.
    pub(super) fn watermark(&self) -> u64 {
        let valid = self.copies.iter().flatten();
        valid.map(|header| header.watermark).max().unwrap_or(0)
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
