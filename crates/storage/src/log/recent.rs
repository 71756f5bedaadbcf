//! The latest durable batches, kept in memory for whoever reads the tail: nothing is kept while nobody does.

use std::collections::VecDeque;

/// So many batches are kept after the last read before it is taken for over.
const INTEREST: u32 = 4096;

#[derive(Clone, Copy, Debug)]
struct Kept {
    prev: u64,
    end: u64,
    at: usize,
    len: usize,
}

/// However much is wished.
const BYTES_MAX: usize = 1 << 30;

/// A ring of bytes, with whole batches in it that follow one another.
#[derive(Debug)]
pub(super) struct Recent {
    bytes_max: usize,
    ring: Vec<u8>,
    kept: VecDeque<Kept>,
    interest: u32,
}

impl Recent {
    pub(super) fn new(bytes_max: usize) -> Recent {
        Recent {
            bytes_max: bytes_max.min(BYTES_MAX),
            ring: Vec::new(),
            kept: VecDeque::new(),
            interest: 0,
        }
    }

    /// Somebody reads.
    pub(super) fn is_wanted(&mut self) {
        self.interest = INTEREST;
    }

    pub(super) fn is_kept(&self) -> bool {
        self.interest > 0 && self.bytes_max > 0
    }

    /// The next durable batch; those between it and the last one are not kept.
    pub(super) fn keep(&mut self, prev: u64, end: u64, batch: &[u8]) {
        if self.interest == 0 {
            return;
        }
        self.interest -= 1;
        if self.interest == 0 || batch.len() > self.bytes_max {
            self.kept.clear();
            return;
        }
        if self.kept.back().is_some_and(|last| last.end != prev) {
            self.kept.clear(); // One between could not be kept.
        }
        if self.ring.is_empty() {
            self.ring = vec![0; self.bytes_max];
        }
        let behind = self.kept.back().map_or(0, |last| last.at + last.len);
        let at = if behind + batch.len() > self.ring.len() {
            0
        } else {
            behind
        };
        let to = at + batch.len();
        // What lies where this goes, or in front of where it wraps, is the oldest.
        while let Some(oldest) = self.kept.front() {
            let is_behind_wrap = at < behind && oldest.at >= behind;
            if !is_behind_wrap && (oldest.at >= to || oldest.at + oldest.len <= at) {
                break;
            }
            self.kept.pop_front();
        }
        self.ring[at..to].copy_from_slice(batch);
        let len = batch.len();
        self.kept.push_back(Kept { prev, end, at, len });
    }

    /// Batches from that on in which this LSN lies, at most so many bytes, but one at least.
    pub(super) fn from(&self, lsn: u64, bytes_max: usize) -> impl Iterator<Item = &[u8]> {
        let first = self.kept.partition_point(|kept| kept.end <= lsn);
        let is_there = self.kept.get(first).is_some_and(|kept| kept.prev <= lsn);
        let first = if is_there { first } else { self.kept.len() };
        let mut bytes = 0;
        self.kept
            .range(first..)
            .take_while(move |kept| {
                let is_first = bytes == 0;
                bytes += kept.len;
                is_first || bytes <= bytes_max
            })
            .map(|kept| &self.ring[kept.at..kept.at + kept.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_batches_are_there_and_whole() {
        let mut recent = Recent::new(10_000);
        recent.keep(0, 512, &[9; 512]);
        assert_eq!(recent.from(0, 1 << 20).count(), 0, "nobody reads");
        recent.is_wanted();
        let mut end = 0_u64;
        for number in 0..200_u64 {
            let len = 512 * (1 + number % 5);
            recent.keep(end, end + len, &vec![number as u8; len as usize]);
            end += len;
            let mut behind = end;
            for kept in recent.kept.iter().rev() {
                assert_eq!(kept.end, behind);
                behind = kept.prev;
                assert_eq!(kept.len as u64, kept.end - kept.prev);
            }
            assert!(end - behind <= 10_000 && (number < 10 || end - behind > 10_000 - 2 * 2560));
            let latest: Vec<&[u8]> = recent.from(end - 1, 1).collect();
            assert_eq!(latest, [&vec![number as u8; len as usize][..]]);
            let all: usize = recent.from(behind, 1 << 20).map(<[u8]>::len).sum();
            assert_eq!(all as u64, end - behind);
            for bytes in recent.from(behind, 1 << 20) {
                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            }
        }
        recent.keep(end + 512, end + 1024, &[7; 512]);
        assert_eq!(recent.from(end - 1, 1 << 20).count(), 0, "one between is not there");
        assert_eq!(recent.from(end + 512, 1 << 20).count(), 1);
        recent.keep(end, end + 20_000, &[1; 20_000]);
        assert_eq!(recent.from(end, 1 << 20).count(), 0, "too long to be kept");
    }
}
