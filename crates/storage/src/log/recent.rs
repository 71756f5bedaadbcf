//! The latest durable batches, in memory that the driver shares with readers of the log's end. Without such readers nothing is kept.
//!
//! A reader holds the batch that it looks at, so that its memory is not reused meanwhile. A slow reader holds nobody up: batches that it has
//! not taken are dropped, and it reads them from the device.

use std::collections::VecDeque;
use std::sync::Arc;

use super::read::Batches;

/// So many batches are kept after the last read before it is taken for over.
const INTEREST: u32 = 4096;

/// However much is wished.
const BYTES_MAX: usize = 1 << 30;

/// Batches that were forgotten, for their memory.
const SPARE_MAX: usize = 4;

#[derive(Debug)]
struct Kept {
    prev: u64,
    end: u64,
    len: usize,
    batch: Arc<Batches>,
}

/// Whole batches that follow one another.
#[derive(Debug)]
pub(super) struct Recent {
    bytes_max: usize,
    bytes: usize,
    kept: VecDeque<Kept>,
    spare: Vec<Arc<Batches>>,
    interest: u32,
    /// Nothing below is shown any more.
    head: u64,
    taken: u64,
}

impl Recent {
    pub(super) fn new(bytes_max: usize) -> Recent {
        Recent {
            bytes_max: bytes_max.min(BYTES_MAX),
            bytes: 0,
            kept: VecDeque::new(),
            spare: Vec::new(),
            interest: 0,
            head: 0,
            taken: 0,
        }
    }

    /// How many batches were taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Has somebody read lately?
    pub(super) fn is_kept(&self) -> bool {
        self.interest > 0 && self.bytes_max > 0
    }

    /// The next durable batch; those between it and the last one are not kept.
    pub(super) fn keep(&mut self, prev: u64, end: u64, bytes: &[u8]) {
        if self.interest == 0 {
            return;
        }
        self.interest -= 1;
        if self.interest == 0 || bytes.len() > self.bytes_max {
            self.forget_all();
            return;
        }
        if self.kept.back().is_some_and(|last| last.end != prev) {
            self.forget_all(); // One between could not be kept.
        }
        while self.bytes + bytes.len() > self.bytes_max && self.forget_oldest() {}
        let mut batch = self.memory(bytes.len());
        if Arc::get_mut(&mut batch).is_some_and(|batch| batch.keep(bytes, end)) {
            let len = bytes.len();
            self.bytes += len;
            self.kept.push_back(Kept { prev, end, len, batch });
        }
    }

    /// Memory of one that nobody looks at any more, if it is about as long.
    fn memory(&mut self, len: usize) -> Arc<Batches> {
        let fits = |batch: &mut Arc<Batches>| {
            let capacity = Arc::get_mut(batch).map_or(0, |batch| batch.capacity());
            (len..=2 * len).contains(&capacity)
        };
        let found = self.spare.iter_mut().position(fits);
        found.map_or_else(|| Arc::new(Batches::kept()), |index| self.spare.swap_remove(index))
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.kept.pop_front() else {
            return false;
        };
        self.bytes -= oldest.len;
        if self.spare.len() == SPARE_MAX {
            self.spare.swap_remove(0);
        }
        self.spare.push(oldest.batch);
        true
    }

    fn forget_all(&mut self) {
        self.kept.clear();
        self.spare.clear();
        self.bytes = 0;
    }

    /// What is below this LSN has been given up.
    pub(super) fn truncate(&mut self, head: u64) {
        self.head = head;
        while self.kept.front().is_some_and(|oldest| oldest.end <= head) {
            self.forget_oldest();
        }
    }

    /// The log is closed: who reads on is to hear it from the driver.
    pub(super) fn end(&mut self) {
        self.bytes_max = 0;
        self.forget_all();
    }

    /// Somebody reads: the batch in which this LSN lies, if it is here.
    pub(super) fn take(&mut self, lsn: u64) -> Option<Arc<Batches>> {
        self.interest = INTEREST;
        if lsn < self.head {
            return None;
        }
        let first = self.kept.partition_point(|kept| kept.end <= lsn);
        let kept = self.kept.get(first).filter(|kept| kept.prev <= lsn)?;
        self.taken += 1;
        Some(Arc::clone(&kept.batch))
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{BatchHeader, Salt};
    use super::*;

    fn batch(prev: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![(len / 512) as u8; len as usize];
        let header = BatchHeader {
            epoch: 1,
            lsn: prev,
            prev,
            watermark: 0,
            bytes: len as u32,
            first: 64,
            goes_on: false,
        };
        header.seal(&mut bytes, &Salt([1; 16]));
        bytes
    }

    fn keep(recent: &mut Recent, prev: u64, len: u64) {
        recent.keep(prev, prev + len, &batch(prev, len));
    }

    #[test]
    fn the_latest_batches_are_there_and_whole() {
        let mut recent = Recent::new(10_000);
        keep(&mut recent, 0, 512);
        assert!(recent.take(0).is_none(), "nobody has read");
        let mut end = 0_u64;
        for number in 0..200_u64 {
            let len = 512 * (1 + number % 5);
            keep(&mut recent, end, len);
            end += len;
            let mut behind = end;
            for kept in recent.kept.iter().rev() {
                assert_eq!(kept.end, behind);
                behind = kept.prev;
            }
            assert!(end - behind <= 10_000 && (number < 10 || end - behind > 10_000 - 2 * 2560));
            assert_eq!(recent.bytes as u64, end - behind);
            while behind < end {
                let taken = recent.take(behind).unwrap();
                let [range] = taken.ranges() else { panic!("one") };
                let len = range.end - range.header.prev;
                assert_eq!((range.header.prev, taken.next().0), (behind, range.end));
                assert_eq!(taken.bytes(range), batch(behind, len));
                behind = range.end;
            }
        }
        keep(&mut recent, end + 512, 512);
        assert!(recent.take(end - 1).is_none(), "one between is not there");
        assert!(recent.take(end + 512).is_some());
        keep(&mut recent, end + 1024, 20_480);
        assert!(recent.take(end + 1024).is_none(), "too long to be kept");
    }

    #[test]
    fn what_a_reader_looks_at_stays_as_it_is() {
        let mut recent = Recent::new(1024);
        assert!(recent.take(0).is_none());
        keep(&mut recent, 0, 512);
        let held = recent.take(100).unwrap();
        for number in 1..20 {
            keep(&mut recent, number * 512, 512);
        }
        assert!(recent.take(100).is_none(), "nobody is held up");
        assert_eq!(held.bytes(&held.ranges()[0]), batch(0, 512));
    }

    #[test]
    fn what_is_given_up_is_not_shown() {
        let mut recent = Recent::new(10_240);
        assert!(recent.take(0).is_none());
        (0..4).for_each(|number| keep(&mut recent, number * 512, 512));
        recent.truncate(1024 + 64);
        assert!(
            recent.take(512).is_none() && recent.take(1024).is_none(),
            "below the head"
        );
        assert!(recent.take(1024 + 64).is_some());
        recent.end();
        assert!(recent.take(1024 + 64).is_none());
        keep(&mut recent, 2048, 512);
        assert!(recent.take(2048).is_none(), "it is closed");
    }
}
