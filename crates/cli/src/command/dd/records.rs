//! Records, counted as GNU dd counts them: full ones have as many bytes as `bs=` says, all others are partial.
//!
//! Pieces are not records: what is read at any offset is cut for the output's sake, and the records follow from the bytes
//! alone. Only a stream has short reads in the middle, so its records are remembered until their bytes are written.
//!
//! After a failure the counts are those of a dd that copies one record after the other: a record that was read and could
//! not be written counts as read only, even where a part of it was.

use std::collections::VecDeque;

/// Full and partial records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) full: u64,
    pub(super) partial: u64,
}

impl Count {
    /// The records that so many bytes make.
    pub(super) fn of(bytes: u64, block: u64) -> Count {
        Count {
            full: bytes / block.max(1),
            partial: u64::from(!bytes.is_multiple_of(block.max(1))),
        }
    }

    fn add(&mut self, is_full: bool, count: u64) {
        if is_full {
            self.full += count;
        } else {
            self.partial += count;
        }
    }
}

/// Like records that follow one another.
#[derive(Clone, Copy, Debug)]
struct Run {
    len: u64,
    count: u64,
}

/// The records of a stream that are read and not yet written.
#[derive(Debug)]
pub(super) struct Records {
    block: u64,
    runs: VecDeque<Run>,
    /// Where the first run begins.
    begin: u64,
    passed: Count,
}

impl Records {
    pub(super) fn new(block: u64) -> Records {
        Records {
            block,
            runs: VecDeque::new(),
            begin: 0,
            passed: Count::default(),
        }
    }

    /// A record of `len` bytes was read.
    pub(super) fn push(&mut self, len: u64) {
        match self.runs.back_mut() {
            Some(run) if run.len == len => run.count += 1,
            _ => self.runs.push_back(Run { len, count: 1 }),
        }
    }

    /// Everything before `position` is written.
    pub(super) fn advance(&mut self, position: u64) {
        while let Some(run) = self.runs.front_mut() {
            let written = position.saturating_sub(self.begin) / run.len.max(1);
            let count = written.min(run.count);
            self.passed.add(run.len == self.block, count);
            self.begin += count * run.len;
            run.count -= count;
            if run.count > 0 {
                return;
            }
            self.runs.pop_front();
        }
    }

    /// Records that are written.
    pub(super) fn passed(&self) -> Count {
        self.passed
    }

    /// Records that are written, and the one that could not be.
    pub(super) fn passed_and_failed(&self) -> Count {
        let mut count = self.passed;
        if let Some(run) = self.runs.front() {
            count.add(run.len == self.block, 1);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_make_records() {
        assert_eq!(Count::of(1024, 512), Count { full: 2, partial: 0 });
        assert_eq!(Count::of(1025, 512), Count { full: 2, partial: 1 });
        assert_eq!(Count::of(0, 512), Count::default());
    }

    #[test]
    fn short_reads_count_where_they_stand() {
        let mut records = Records::new(4);
        for len in [4, 4, 3, 4, 1] {
            records.push(len);
        }
        records.advance(9);
        assert_eq!(records.passed(), Count { full: 2, partial: 0 });
        assert_eq!(records.passed_and_failed(), Count { full: 2, partial: 1 });
        records.advance(11);
        assert_eq!(records.passed(), Count { full: 2, partial: 1 });
        records.advance(16);
        assert_eq!(records.passed(), Count { full: 3, partial: 2 });
        assert_eq!(records.passed_and_failed(), Count { full: 3, partial: 2 });
    }
}
