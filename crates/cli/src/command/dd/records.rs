//! Records, counted as GNU dd counts them: full ones have as many bytes as `bs=` says, all others are partial.
//!
//! Pieces are not records: what is read at any offset is cut for the output's sake, and the records follow from the bytes
//! alone. An input that comes in order has short reads in the middle, so its records are remembered until their bytes are written.
//!
//! After a failure the counts are those of a dd that copies one record after the other: what was read to fill the block that could
//! not be written counts as read, and nothing behind it.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Bytes that the input moves on by each.
    taken: u64,
    /// Bytes that each became.
    made: u64,
    /// What is passed over is none.
    is_record: bool,
    count: u64,
}

/// Records that were read, and how far the input moved on by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) records: Count,
    pub(super) bytes: u64,
}

impl Read {
    fn add(&mut self, run: &Run, count: u64, block: u64) {
        if run.is_record {
            self.records.add(run.taken == block, count);
        }
        self.bytes += run.taken * count;
    }
}

/// The records of an input that comes in order.
#[derive(Clone, Debug)]
pub(super) struct Records {
    block: u64,
    /// Those that are not written to their end.
    runs: VecDeque<Run>,
    /// Where the first run begins on the output, counted from the beginning of the copy.
    begin: u64,
    passed: Read,
    written: Count,
}

impl Records {
    pub(super) fn new(block: u64) -> Records {
        Records {
            block,
            runs: VecDeque::new(),
            begin: 0,
            passed: Read::default(),
            written: Count::default(),
        }
    }

    /// A record of `taken` bytes was read, and became `made` bytes.
    pub(super) fn push(&mut self, taken: u64, made: u64) {
        self.add(taken, made, true);
    }

    /// So many bytes of the input were passed over.
    pub(super) fn pass_over(&mut self, taken: u64) {
        self.add(taken, 0, false);
    }

    fn add(&mut self, taken: u64, made: u64, is_record: bool) {
        let run = Run {
            taken,
            made,
            is_record,
            count: 1,
        };
        match self.runs.back_mut() {
            Some(last) if Run { count: 1, ..*last } == run => last.count += 1,
            _ => self.runs.push_back(run),
        }
    }

    /// Everything before `position` is written.
    pub(super) fn advance(&mut self, position: u64) {
        while let Some(run) = self.runs.front_mut() {
            let written = position.saturating_sub(self.begin);
            let count = written.checked_div(run.made).unwrap_or(u64::MAX).min(run.count);
            self.passed.add(run, count, self.block);
            if run.is_record {
                self.written.add(run.made == self.block, count);
            }
            self.begin += count * run.made;
            run.count -= count;
            if run.count > 0 {
                return;
            }
            self.runs.pop_front();
        }
    }

    /// What was read by a dd that has read no record which begins at `position` or behind it.
    pub(super) fn read_before(&self, position: u64) -> Read {
        let (mut read, mut begin) = (self.passed, self.begin);
        for run in &self.runs {
            let left = position.saturating_sub(begin);
            if left == 0 {
                break;
            }
            let count = match run.made {
                0 => run.count,
                made => left.div_ceil(made).min(run.count),
            };
            read.add(run, count, self.block);
            begin += count * run.made;
        }
        read
    }

    /// Records that are written when everything before `position` is, where each is a block of the output.
    pub(super) fn written_before(&self, position: u64) -> Count {
        let mut records = self.clone();
        records.advance(position);
        records.written
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
            records.push(len, len);
        }
        records.advance(9);
        assert_eq!(records.written_before(9), Count { full: 2, partial: 0 });
        assert_eq!(records.read_before(8).records, Count { full: 2, partial: 0 });
        assert_eq!(records.read_before(9).records, Count { full: 2, partial: 1 });
        assert_eq!(records.read_before(12).records, Count { full: 3, partial: 1 });
        assert_eq!(records.written_before(11), Count { full: 2, partial: 1 });
        records.advance(16);
        assert_eq!(records.written_before(16), Count { full: 3, partial: 2 });
        let all = Read {
            records: Count { full: 3, partial: 2 },
            bytes: 16,
        };
        assert_eq!(records.read_before(17), all);
    }

    #[test]
    fn what_is_filled_up_or_passed_over_has_two_lengths() {
        let mut records = Records::new(4);
        records.push(4, 4);
        records.push(1, 4);
        records.pass_over(3);
        records.push(0, 4);
        assert_eq!(records.written_before(8), Count { full: 2, partial: 0 });
        let read = records.read_before(9);
        assert_eq!((read.records, read.bytes), (Count { full: 1, partial: 2 }, 8));
    }
}
