//! Which requests fail: by kind, place, time (so many requests later, so many times) and chance.

use std::ops::Range;

use baio_engine::sim::Random;

/// The kinds of requests that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Reads.
    Read,
    /// Writes, and whatever else changes bytes.
    Write,
    /// Flushes.
    Flush,
}

impl What {
    /// All there are, by name.
    pub const ALL: [(&'static str, What); 3] = [("read", What::Read), ("write", What::Write), ("flush", What::Flush)];
}

/// Requests that fail.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Of this kind.
    pub what: What,
    /// That touch these bytes of the device; a flush touches all.
    pub place: Range<u64>,
    /// In so many of a million cases.
    pub chance_ppm: u32,
    /// After so many that pass.
    pub after: u64,
    /// So often.
    pub times: u64,
}

impl Fault {
    /// Every request of a kind fails, from now on.
    #[must_use]
    pub fn all(what: What) -> Fault {
        Fault {
            what,
            place: 0..u64::MAX,
            chance_ppm: 1_000_000,
            after: 0,
            times: u64::MAX,
        }
    }

    /// Whether this request, one that passes by, fails.
    pub(super) fn strikes(&mut self, what: What, place: &Range<u64>, random: &mut Random) -> bool {
        let touches = self.place.start < place.end && place.start < self.place.end;
        if self.what != what || !(touches || what == What::Flush) || self.times == 0 {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        let strikes = random.below(1_000_000) < u64::from(self.chance_ppm);
        self.times -= u64::from(strikes);
        strikes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_place_time_and_chance() {
        let mut random = Random::from(&[1]);
        let mut fault = Fault {
            place: 4096..8192,
            after: 1,
            times: 2,
            ..Fault::all(What::Read)
        };
        let mut strikes = |what, place| fault.strikes(what, &place, &mut random);
        assert!(!strikes(What::Write, 4096..8192), "another kind");
        assert!(!strikes(What::Read, 0..4096), "another place");
        assert!(!strikes(What::Read, 0..4097), "the first passes");
        assert!(strikes(What::Read, 8191..9000));
        assert!(strikes(What::Read, 0..4097));
        assert!(!strikes(What::Read, 4096..8192), "twice is enough");
        let mut half = Fault {
            chance_ppm: 500_000,
            ..Fault::all(What::Flush)
        };
        let struck = (0..1000).filter(|_| half.strikes(What::Flush, &(0..0), &mut random));
        assert!((400..600).contains(&struck.count()));
    }
}
