//! What is on the medium, and what is only in the disk's volatile cache.
//!
//! A disk distinguishes the two when it has faults or may lose its power. The list of writes is in the order in which they
//! ended. A durable write behind a volatile one waits in the list, so that replaying the list over the medium always gives
//! the bytes that a reader sees. A flush makes the entries that it covers durable, and moves the durable head of the list to the medium.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::backend::sim::pages::Pages;
use crate::backend::sim::random::Random;

/// Granularity of a torn write, in bytes: the smallest sector.
pub const SECTOR: usize = 512;

/// Bytes that a cache holds; older ones go to the medium by themselves, as a device may do at any time.
const CAPACITY: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Cache {
    medium: Pages,
    pending: VecDeque<Pending>,
    bytes: usize,
    /// Number of the next write.
    next: u64,
    /// Writes that have begun and not ended.
    under_way: Vec<UnderWay>,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    change: Change,
    durable: bool,
}

#[derive(Debug)]
struct UnderWay {
    token: u64,
    change: Change,
}

/// What a write does to the bytes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Bytes(u64, Arc<[u8]>),
    Zero(Range<u64>),
}

impl Change {
    pub(crate) fn apply(&self, pages: &mut Pages) {
        match self {
            Change::Bytes(offset, bytes) => pages.write(*offset, bytes),
            Change::Zero(range) => pages.zero(range),
        }
    }

    pub(crate) fn range(&self) -> Range<u64> {
        match self {
            Change::Bytes(offset, bytes) => *offset..*offset + bytes.len() as u64,
            Change::Zero(range) => range.clone(),
        }
    }

    /// What it takes of a cache.
    fn weight(&self) -> usize {
        match self {
            Change::Bytes(_, bytes) => bytes.len(),
            Change::Zero(_) => 0,
        }
    }

    /// Is there as a whole, not at all, up to some sector, or here and there: as the dice say.
    fn apply_in_part(&self, pages: &mut Pages, dice: &mut Random) {
        let Range { start, end } = self.range();
        let sectors = (end - start).div_ceil(SECTOR as u64);
        let head = start + (dice.below(sectors) * SECTOR as u64).min(end - start);
        match (dice.below(4), self) {
            (0, _) => {}
            (1, _) => self.apply(pages),
            (2, Change::Bytes(_, bytes)) => pages.write(start, &bytes[..(head - start) as usize]),
            (_, Change::Zero(_)) => pages.zero(&(start..head)),
            (_, Change::Bytes(_, bytes)) => {
                for (nth, sector) in bytes.chunks(SECTOR).enumerate() {
                    if dice.below(2) == 0 {
                        pages.write(start + (nth * SECTOR) as u64, sector);
                    }
                }
            }
        }
    }
}

impl Cache {
    /// Everything so far is on the medium.
    pub(crate) fn over(medium: Pages) -> Cache {
        Cache {
            medium,
            pending: VecDeque::new(),
            bytes: 0,
            next: 0,
            under_way: Vec::new(),
        }
    }

    /// Writes with smaller numbers have ended: what a flush that begins now covers.
    pub(crate) fn ended(&self) -> u64 {
        self.next
    }

    pub(crate) fn begin(&mut self, token: u64, change: Change) {
        self.under_way.push(UnderWay { token, change });
    }

    pub(crate) fn end(&mut self, token: u64) {
        self.under_way.retain(|write| write.token != token);
    }

    pub(crate) fn add(&mut self, change: Change, durable: bool) {
        self.bytes += change.weight();
        self.pending.push_back(Pending {
            number: self.next,
            change,
            durable,
        });
        self.next += 1;
        while self.bytes > CAPACITY {
            self.settle_first();
        }
        self.settle();
    }

    /// Makes durable what had ended when the flush began.
    pub(crate) fn flush(&mut self, covers: u64) {
        for write in self.pending.iter_mut().take_while(|write| write.number < covers) {
            write.durable = true;
        }
        self.settle();
    }

    /// A flush has failed: the kernel takes the pages for clean, and nobody will write them again. Returns the ranges, and
    /// what a reader sees from now on.
    pub(crate) fn drop_covered(&mut self, covers: u64) -> (Vec<Range<u64>>, Pages) {
        let mut dropped = Vec::new();
        self.pending.retain(|write| {
            let is_lost = write.number < covers && !write.durable;
            if is_lost {
                dropped.push(write.change.range());
            }
            !is_lost
        });
        self.bytes = self.pending.iter().map(|write| write.change.weight()).sum();
        let mut seen = self.medium.clone();
        for write in &self.pending {
            write.change.apply(&mut seen);
        }
        self.settle();
        (dropped, seen)
    }

    /// The power fails now. Of each write that nothing has made durable, and of those under way, the dice say what is
    /// there: all, nothing, or some of its sectors.
    pub(crate) fn after_power_cut(&self, dice: &mut Random) -> Pages {
        let mut left = self.medium.clone();
        for write in &self.pending {
            if write.durable {
                write.change.apply(&mut left);
            } else {
                write.change.apply_in_part(&mut left, dice);
            }
        }
        for write in &self.under_way {
            write.change.apply_in_part(&mut left, dice);
        }
        left
    }

    fn settle(&mut self) {
        while self.pending.front().is_some_and(|write| write.durable) {
            self.settle_first();
        }
    }

    fn settle_first(&mut self) {
        if let Some(write) = self.pending.pop_front() {
            self.bytes -= write.change.weight();
            write.change.apply(&mut self.medium);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sector full of a byte.
    fn fill(number: u64, byte: u8) -> Change {
        Change::Bytes(number * SECTOR as u64, vec![byte; SECTOR].into())
    }

    fn at(pages: &Pages, sector: u64) -> u8 {
        let mut byte = [0];
        pages.read(sector * SECTOR as u64, &mut byte);
        byte[0]
    }

    /// What sector 0..4 may hold after a power cut, over many dice.
    fn outcomes(cache: &Cache, number: u64) -> Vec<u8> {
        let mut seen: Vec<u8> = (0..200)
            .map(|seed| at(&cache.after_power_cut(&mut Random(seed)), number))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    #[test]
    fn a_flush_keeps_what_had_ended_and_promises_the_rest_nothing() {
        let mut cache = Cache::over(Pages::default());
        cache.add(fill(0, 1), false);
        let covers = cache.ended();
        cache.add(fill(1, 2), false);
        cache.begin(7, fill(2, 3));
        cache.flush(covers);
        assert_eq!(outcomes(&cache, 0), [1]);
        assert_eq!(outcomes(&cache, 1), [0, 2]);
        assert_eq!(outcomes(&cache, 2), [0, 3]);
        cache.end(7);
        assert_eq!(outcomes(&cache, 2), [0]);
    }

    #[test]
    fn a_durable_write_over_a_volatile_one_is_what_stays() {
        let mut cache = Cache::over(Pages::default());
        cache.add(fill(0, 1), false);
        cache.add(fill(0, 2), true);
        assert_eq!(outcomes(&cache, 0), [2]);
    }

    #[test]
    fn a_failed_flush_takes_back_what_it_covered() {
        let mut cache = Cache::over(Pages::default());
        cache.add(fill(0, 1), true);
        cache.add(fill(0, 2), false);
        let covers = cache.ended();
        cache.add(fill(1, 3), false);
        let (dropped, seen) = cache.drop_covered(covers);
        assert_eq!(dropped.len(), 1);
        assert_eq!(dropped[0], 0..SECTOR as u64);
        assert_eq!((at(&seen, 0), at(&seen, 1)), (1, 3));
        assert_eq!(outcomes(&cache, 0), [1]);
    }

    #[test]
    fn a_full_cache_goes_to_the_medium_by_itself() {
        let mut cache = Cache::over(Pages::default());
        cache.add(Change::Bytes(0, vec![1; CAPACITY / 2].into()), false);
        cache.add(Change::Bytes(1 << 30, vec![2; CAPACITY / 2 + 1].into()), false);
        assert_eq!(outcomes(&cache, 0), [1]);
        assert!(cache.bytes <= CAPACITY);
    }
}
