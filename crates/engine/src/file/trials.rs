//! How reads of one file that were tried at once have fared (`trial.rs`): whether the next one is worth a try.

/// So many misses in a row, and trying stops for a while.
const PATIENCE: u32 = 8;

/// Requests that are not tried the first time, and at most.
const REST: u32 = 32;
const REST_MAX: u32 = 4096;

/// How trying has worked on one file so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trials {
    misses: u32,
    resting: u32,
    last_rest: u32,
    /// The file does not know `RWF_NOWAIT`.
    refused: bool,
}

impl Trials {
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
        *self = Trials::default();
    }

    pub(crate) fn miss(&mut self) {
        self.misses += 1;
        if self.misses >= PATIENCE || self.last_rest > 0 {
            self.last_rest = (self.last_rest * 2).clamp(REST, REST_MAX);
            self.resting = self.last_rest;
            self.misses = 0;
        }
    }

    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_make_it_rest_longer_each_time_and_a_hit_makes_good() {
        let mut trials = Trials::default();
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
}
