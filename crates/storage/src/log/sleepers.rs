//! Threads that sleep until a record is durable. They sleep by batch, so that one call to the kernel wakes all threads that wait for the same
//! batch, and no others.
//!
//! Batches are numbered in the order of their LSNs: sealed batches that are not durable as a whole, and behind them the open one.
//! Under the front's lock a thread finds the batch that has its record, and then sleeps on the *bed* `number % 64`, a futex word. For a record
//! that is still to come it takes the bed of the open batch.
//!
//! No wake-up is lost:
//!
//! - The thread that publishes a durable LSN holds the same lock. It marks the beds of all batches that are durable to their end, and of the
//!   batch in which the durable LSN lies. A sleeper whose record has just become durable sleeps on the bed of that record's batch, or on
//!   that of the batch that was open when it looked. Both are marked, now or before.
//! - A bed is a word that counts up. The sleeper reads it under the lock. The waker marks the bed under the lock, and then counts it up.
//!   So either the word has changed when the kernel compares it, or the thread sleeps already and is woken.
//! - The sleeper sets `slept_on` under the lock. The waker that will count the bed up next clears it under the lock. So a bed with a
//!   sleeper has it set, or is about to be woken.
//!
//! A woken thread looks again: wake-ups may be spurious if two batches share a futex word, or if a group ends in the middle of a batch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Flags, Timespec};

/// More than there usually are batches that are not durable; and the bits of a word.
const BEDS: usize = 64;

/// What threads sleep on.
#[derive(Debug)]
pub(super) struct Beds([AtomicU32; BEDS]);

impl Beds {
    pub(super) fn new() -> Beds {
        Beds(std::array::from_fn(|_| AtomicU32::new(0)))
    }

    /// Wakes all who sleep there. Without the front's lock, which they may want.
    pub(super) fn wake(&self, due: Due) {
        let Due(mut left) = due;
        while left != 0 {
            let word = &self.0[left.trailing_zeros() as usize];
            left &= left - 1;
            // Other side: the kernel's look at it in `sleep`. What they wake up for they find by other means.
            word.fetch_add(1, Ordering::Release);
            let _ = futex::wake(word, Flags::PRIVATE, i32::MAX as u32);
        }
    }

    /// Sleeps until the bed is woken. May end early: look again. False: the deadline is over.
    pub(super) fn sleep(&self, bed: Bed, deadline: Option<Instant>) -> bool {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        // Beyond the clock's end is never.
        let left = left.and_then(|left| {
            Some(Timespec {
                tv_sec: i64::try_from(left.as_secs()).ok()?,
                tv_nsec: i64::from(left.subsec_nanos()),
            })
        });
        // A signal ends it early, and a word that is another already.
        let _ = futex::wait(&self.0[bed.index], Flags::PRIVATE, bed.word, left.as_ref());
        true
    }
}

/// Where to sleep, and what stood there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bed {
    index: usize,
    word: u32,
}

/// Beds to be woken, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "who sleeps there sleeps on"]
pub(super) struct Due(u64);

/// Which batches there are to sleep for. Part of the front, under its lock.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// Where the batches end that were sealed and are not durable as a whole.
    ends: VecDeque<u64>,
    /// Number of the first of them.
    first: u64,
    /// Beds on which somebody may sleep.
    slept_on: u64,
    /// Beds on which somebody is to be woken.
    due: u64,
}

impl Sleepers {
    /// The open batch takes no more, and ends there.
    pub(super) fn sealed(&mut self, end: u64) {
        self.ends.push_back(end);
    }

    /// Everything below this LSN is durable, or lost.
    pub(super) fn end_below(&mut self, durable: u64) {
        let mut end = None;
        while let Some(first) = self.ends.front().copied().filter(|first| *first <= durable) {
            self.ends.pop_front();
            self.mark(self.first);
            self.first += 1;
            end = Some(first);
        }
        if end != Some(durable) {
            // It lies in the next one.
            self.mark(self.first);
        }
    }

    /// Something else has happened that all are to look at.
    pub(super) fn rouse(&mut self) {
        self.due |= std::mem::take(&mut self.slept_on);
    }

    /// Beds to be woken: nobody else does it.
    pub(super) fn take_due(&mut self) -> Due {
        Due(std::mem::take(&mut self.due))
    }

    fn mark(&mut self, number: u64) {
        let bit = 1 << index_of(number);
        self.due |= self.slept_on & bit;
        self.slept_on &= !bit;
    }

    /// Where to sleep for an LSN that is not durable.
    pub(super) fn bed(&mut self, lsn: u64, beds: &Beds) -> Bed {
        let before = self.ends.partition_point(|end| *end <= lsn);
        let index = index_of(self.first + before as u64);
        self.slept_on |= 1 << index;
        // Relaxed: whoever counts it up for this sleeper has had the lock since.
        let word = beds.0[index].load(Ordering::Relaxed);
        Bed { index, word }
    }
}

fn index_of(number: u64) -> usize {
    (number % BEDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bed_of(sleepers: &mut Sleepers, beds: &Beds, lsn: u64) -> u64 {
        1 << sleepers.bed(lsn, beds).index
    }

    #[test]
    fn only_who_waits_for_what_became_durable_is_woken() {
        let (mut sleepers, beds) = (Sleepers::default(), Beds::new());
        sleepers.sealed(100);
        sleepers.sealed(200);
        let first = bed_of(&mut sleepers, &beds, 50);
        let second = bed_of(&mut sleepers, &beds, 100);
        let open = bed_of(&mut sleepers, &beds, 200);
        assert_eq!([first, second, open], [1, 2, 4]);
        sleepers.end_below(100);
        assert_eq!(sleepers.take_due(), Due(1));
        assert_eq!(sleepers.take_due(), Due(0), "once");
        sleepers.end_below(200);
        assert_eq!(sleepers.take_due(), Due(2));
        sleepers.sealed(300);
        assert_eq!(bed_of(&mut sleepers, &beds, 299), open, "sealed, it keeps its number");
    }

    #[test]
    fn a_group_that_is_whole_in_the_middle_wakes_its_batch() {
        let (mut sleepers, beds) = (Sleepers::default(), Beds::new());
        sleepers.sealed(100);
        let bed = bed_of(&mut sleepers, &beds, 50);
        sleepers.end_below(60);
        assert_eq!(sleepers.take_due(), Due(bed));
        assert_eq!(bed_of(&mut sleepers, &beds, 80), bed, "the rest still is that batch");
        sleepers.end_below(100);
        assert_eq!(sleepers.take_due(), Due(bed));
    }

    #[test]
    fn who_waits_for_what_is_to_come_moves_on_with_the_open_batch() {
        let (mut sleepers, beds) = (Sleepers::default(), Beds::new());
        let bed = bed_of(&mut sleepers, &beds, 1000);
        sleepers.sealed(100);
        sleepers.end_below(100);
        assert_eq!(sleepers.take_due(), Due(bed), "it looks again");
        assert_ne!(bed_of(&mut sleepers, &beds, 1000), bed);
    }

    #[test]
    fn who_was_marked_before_it_slept_does_not_sleep() {
        let (mut sleepers, beds) = (Sleepers::default(), Beds::new());
        let bed = sleepers.bed(0, &beds);
        sleepers.rouse();
        beds.wake(sleepers.take_due());
        assert!(beds.sleep(bed, None), "it returns at once");
    }

    #[test]
    fn nobody_is_woken_where_nobody_sleeps() {
        let mut sleepers = Sleepers::default();
        sleepers.sealed(100);
        sleepers.end_below(100);
        sleepers.rouse();
        assert_eq!(sleepers.take_due(), Due(0));
    }
}
