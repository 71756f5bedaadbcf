//! Writes that were not flushed yet. They are kept in their order, and reach the medium in it.
//!
//! A flush covers the writes that were answered before it came. A write that was not answered yet may stay here, unless it was overwritten
//! since: it would come back over newer bytes.

use std::ops::Range;

use baio_engine::sim::Random;

use crate::stamp::SECTOR;

/// What a power cut leaves of the writes that nobody flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Nothing.
    Whole,
    /// Some of the writes, others not.
    Some,
    /// Some of the writes, others not, and of some only some sectors.
    Torn,
    /// All of them: the process is killed, and the device is not.
    Nothing,
}

impl Manner {
    /// All there are, by name.
    pub const ALL: [(&'static str, Manner); 4] = [
        ("whole", Manner::Whole),
        ("some", Manner::Some),
        ("torn", Manner::Torn),
        ("nothing", Manner::Nothing),
    ];
}

/// A write that has not been flushed.
#[derive(Debug)]
struct Unflushed {
    id: u64,
    offset: usize,
    bytes: Vec<u8>,
    /// The client may know that it has ended.
    answered: bool,
}

impl Unflushed {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes.len()
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The volatile cache.
#[derive(Debug, Default)]
pub(super) struct Cache {
    writes: Vec<Unflushed>,
    bytes: usize,
    next: u64,
}

impl Cache {
    /// Takes a write that is under way; gives its number.
    pub(super) fn take(&mut self, offset: usize, bytes: Vec<u8>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.bytes += bytes.len();
        self.writes.push(Unflushed {
            id,
            offset,
            bytes,
            answered: false,
        });
        id
    }

    /// The client is about to know that it has ended.
    pub(super) fn answered(&mut self, id: u64) {
        if let Ok(found) = self.writes.binary_search_by_key(&id, |write| write.id) {
            self.writes[found].answered = true;
        }
    }

    /// Of which writes a flush that comes now must make sure: those before this number that were answered.
    pub(super) fn answered_so_far(&self) -> Vec<u64> {
        let answered = self.writes.iter().filter(|write| write.answered);
        answered.map(|write| write.id).collect()
    }

    /// Puts these writes on the medium, and whatever they were written over.
    pub(super) fn put(&mut self, medium: &mut [u8], wanted: impl Fn(u64) -> bool) {
        let mut later: Vec<Range<usize>> = Vec::new();
        let mut put = vec![false; self.writes.len()];
        for (write, put) in self.writes.iter().zip(&mut put).rev() {
            *put = wanted(write.id) || later.iter().any(|range| overlap(range, &write.range()));
            if *put {
                later.push(write.range());
            }
        }
        let mut put = put.into_iter();
        self.writes.retain(|write| {
            let put = put.next().unwrap_or(false);
            if put {
                medium[write.range()].copy_from_slice(&write.bytes);
                self.bytes -= write.bytes.len();
            }
            !put
        });
    }

    /// A cache has an end: the oldest writes go to the medium by themselves.
    pub(super) fn make_room(&mut self, medium: &mut [u8], bytes_max: usize) {
        if self.bytes <= bytes_max {
            return;
        }
        let (mut bytes, mut last) = (self.bytes, 0);
        for write in &self.writes {
            last = write.id;
            bytes -= write.bytes.len();
            if bytes <= bytes_max / 2 {
                break;
            }
        }
        self.put(medium, |id| id <= last);
    }

    /// The power is cut: gives the ranges that were in the cache, and how many writes are gone, at least in part.
    pub(super) fn lose(&mut self, medium: &mut [u8], manner: Manner, random: &mut Random) -> (Vec<Range<usize>>, u64) {
        let (mut ranges, mut lost) = (Vec::new(), 0);
        // How much survives differs from cut to cut: nearly nothing, half, nearly all.
        let survive = 10 + random.below(81);
        for write in self.writes.drain(..) {
            ranges.push(write.range());
            let sectors = write.bytes.chunks(SECTOR).zip(medium[write.range()].chunks_mut(SECTOR));
            let is_torn = manner == Manner::Torn && random.percent(30);
            let is_whole = match manner {
                Manner::Whole => false,
                Manner::Nothing => true,
                Manner::Some | Manner::Torn => random.percent(survive),
            };
            for (bytes, medium) in sectors {
                if if is_torn { random.percent(50) } else { is_whole } {
                    medium.copy_from_slice(bytes);
                }
            }
            lost += u64::from(is_torn || !is_whole);
        }
        self.bytes = 0;
        (ranges, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(writes: &[(usize, u8)]) -> Cache {
        let mut cache = Cache::default();
        for &(offset, byte) in writes {
            let id = cache.take(offset, vec![byte; 2 * SECTOR]);
            cache.answered(id);
        }
        cache
    }

    #[test]
    fn a_write_that_goes_to_the_medium_takes_what_lies_under_it() {
        let mut medium = vec![0; 8 * SECTOR];
        let mut cache = cache(&[(0, 1), (SECTOR, 2), (2 * SECTOR, 3), (6 * SECTOR, 4)]);
        cache.put(&mut medium, |id| id == 2);
        let bytes: Vec<u8> = medium.iter().step_by(SECTOR).copied().collect();
        assert_eq!(bytes, [1, 2, 3, 3, 0, 0, 0, 0]);
        assert_eq!(cache.answered_so_far(), [3]);
    }

    #[test]
    fn a_cut_loses_all_some_or_parts() {
        let mut random = Random::from(&[7]);
        let lose = |manner, random: &mut Random| {
            let mut medium = vec![0; 200 * SECTOR];
            let mut cache = cache(&[1; 100].map(|byte| (0, byte)));
            for (at, write) in cache.writes.iter_mut().enumerate() {
                write.offset = 2 * at * SECTOR;
            }
            cache.lose(&mut medium, manner, random);
            let pairs = medium.chunks(2 * SECTOR).map(|pair| (pair[0], pair[SECTOR]));
            pairs.fold([0; 3], |mut counts, (first, second)| {
                counts[usize::from(first + second)] += 1;
                counts
            })
        };
        assert_eq!(lose(Manner::Whole, &mut random), [100, 0, 0]);
        assert_eq!(lose(Manner::Nothing, &mut random), [0, 0, 100]);
        let [gone, torn, whole] = lose(Manner::Some, &mut random);
        assert!(gone > 0 && torn == 0 && whole > 0, "{gone} {torn} {whole}");
        let [gone, torn, whole] = lose(Manner::Torn, &mut random);
        assert!(gone > 0 && torn > 0 && whole > 0, "{gone} {torn} {whole}");
    }
}
