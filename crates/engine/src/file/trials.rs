//! How reads of one file that were tried at once have fared (`trial.rs`): whether the next one is worth a try.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many misses in a row, and trying stops for a while.
const PATIENCE: u32 = 8;

/// Requests that are not tried the first time, and at most.
const REST: u32 = 32;
const REST_MAX: u32 = 4096;

/// How trying has worked on one file so far, in one word. Read and written apart: when engines in two threads try at once, one of
/// the two is forgotten, which costs a try.
#[derive(Default)]
pub(crate) struct Trials(AtomicU64);

impl Trials {
    pub(crate) fn get(&self) -> Fared {
        // Relaxed: it tells of nothing but itself.
        let [misses, resting, last_rest, refused] = parts(self.0.load(Ordering::Relaxed));
        Fared {
            misses: u32::from(misses),
            resting: u32::from(resting),
            last_rest: u32::from(last_rest),
            refused: refused != 0,
        }
    }

    pub(crate) fn set(&self, fared: Fared) {
        // None exceeds REST_MAX.
        let parts = [
            fared.misses as u16,
            fared.resting as u16,
            fared.last_rest as u16,
            u16::from(fared.refused),
        ];
        let word = parts
            .into_iter()
            .rev()
            .fold(0, |word, part| word << 16 | u64::from(part));
        self.0.store(word, Ordering::Relaxed);
    }
}

fn parts(word: u64) -> [u16; 4] {
    [0, 16, 32, 48].map(|bits| (word >> bits) as u16)
}

/// What the word says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fared {
    misses: u32,
    resting: u32,
    last_rest: u32,
    /// The file does not know `RWF_NOWAIT`.
    refused: bool,
}

impl Fared {
    /// Shall the next read be tried? Counts down the rest when not.
    pub(crate) fn admits(&mut self) -> bool {
        if self.refused {
            return false;
        }
        let rested = self.resting == 0;
        self.resting = self.resting.saturating_sub(1);
        rested
    }

    pub(crate) fn hit(&mut self) {
        *self = Fared::default();
    }

    pub(crate) fn miss(&mut self) {
        self.misses += 1;
        if self.misses >= PATIENCE || self.last_rest > 0 {
            self.rest();
        }
    }

    /// It was read, and somebody waited for it: once is enough.
    pub(crate) fn waited(&mut self) {
        self.rest();
    }

    fn rest(&mut self) {
        self.last_rest = (self.last_rest * 2).clamp(REST, REST_MAX);
        self.resting = self.last_rest;
        self.misses = 0;
    }

    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_it_all() {
        let trials = Trials::default();
        assert_eq!(trials.get(), Fared::default());
        let fared = Fared {
            misses: PATIENCE,
            resting: REST_MAX,
            last_rest: REST_MAX - 1,
            refused: true,
        };
        trials.set(fared);
        assert_eq!(trials.get(), fared);
    }

    #[test]
    fn misses_make_it_rest_longer_each_time_and_a_hit_makes_good() {
        let mut trials = Fared::default();
        let mut rests = Vec::new();
        for _ in 0..12 {
            let mut rest = 0;
            while !trials.admits() {
                rest += 1;
            }
            rests.push(rest);
            trials.miss();
        }
        assert_eq!(rests, [0, 0, 0, 0, 0, 0, 0, 0, 32, 64, 128, 256]);
        trials.hit();
        assert!((0..PATIENCE).all(|_| trials.admits()));
        trials.refuse();
        assert!(!trials.admits());
    }

    /// Whatever a file in memory does, of 33 reads in a row no more than one waits in the caller's thread.
    #[test]
    fn a_wait_makes_it_rest_at_once() {
        let mut trials = Fared::default();
        let mut reads = Vec::new();
        for number in 0..340 {
            let tried = trials.admits();
            match number % 2 {
                0 if tried => trials.hit(),
                _ if tried => trials.waited(),
                _ => {}
            }
            reads.push(tried && number % 2 == 1);
        }
        assert!(reads[1]);
        assert!(
            reads
                .windows(REST as usize + 1)
                .all(|some| some.iter().filter(|waited| **waited).count() <= 1)
        );
    }
}
