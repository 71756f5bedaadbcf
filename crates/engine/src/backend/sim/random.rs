//! Choices that follow from a seed: SplitMix64 (Steele, Lea, Flood 2014), small, and equal for equal seeds everywhere.

/// A source of choices, begun with a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The choices that follow from these numbers; different numbers give unrelated choices.
    #[must_use]
    pub fn from(numbers: &[u64]) -> Random {
        let mut random = Random(0x6a09_e667_f3bc_c908);
        for &number in numbers {
            random.0 ^= number;
            random.0 = random.bits();
        }
        random
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias is below 2^-50 for the small ends that choices have.
        self.bits() % end.max(1)
    }

    /// True in one of so many cases; never in one of 0.
    pub fn one_in(&mut self, many: u64) -> bool {
        many > 0 && self.below(many) == 0
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several things; `None` of nothing.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        things.get(self.below(things.len() as u64) as usize)
    }

    /// So many random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.bits() as u8).collect()
    }

    /// The same into memory that is there, eight bytes of each choice.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.bits();
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_choices_and_others_do_not() {
        let take = |numbers: &[u64]| {
            let mut random = Random::from(numbers);
            [random.bits(), random.bits(), random.below(10)]
        };
        assert_eq!(take(&[1, 2]), take(&[1, 2]));
        assert_ne!(take(&[1, 2]), take(&[2, 1]));
        assert_ne!(take(&[1]), take(&[1, 0]));
    }
}
