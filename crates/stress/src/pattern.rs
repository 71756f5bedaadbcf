//! The offsets of one stream: in order, at random, or at random and each block exactly once.
//!
//! "Exactly once" needs no table: a Feistel network permutes the numbers below a power of four, and whatever falls beyond the
//! number of blocks is sent round again until it falls below (Black and Rogaway 2002, cycle walking; fewer than four rounds
//! on average, because the power of four is less than four times too large).

/// SplitMix64: good enough to spread offsets, and as cheap as fio's generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number, of 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Noise, for zeros are a special case to many a device.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.word().to_le_bytes()[..part.len()]);
        }
    }

    /// A number below `bound` (0 for a bound of 0), by the high half of a product (Lemire 2019).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }
}

pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finisher of SplitMix64: a bijection in which every bit of the input moves every bit of the output.
pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A permutation of the numbers below a bound.
#[derive(Clone, Debug)]
pub struct Permutation {
    bound: u64,
    /// Bits of one half.
    half: u32,
    seed: u64,
}

impl Permutation {
    const ROUNDS: u64 = 4;

    /// Another one for each seed.
    pub fn new(bound: u64, seed: u64) -> Permutation {
        let bits = u64::BITS - bound.saturating_sub(1).leading_zeros();
        Permutation {
            bound,
            half: bits.div_ceil(2).max(1),
            seed,
        }
    }

    /// Where `index`, a number below the bound, goes.
    pub fn at(&self, index: u64) -> u64 {
        let mut number = index;
        loop {
            number = self.round_trip(number);
            if number < self.bound || self.bound == 0 {
                return number;
            }
        }
    }

    fn round_trip(&self, number: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for round in 0..Permutation::ROUNDS {
            let moved = mix(self.seed ^ right.wrapping_add(round.wrapping_mul(GOLDEN))) & mask;
            (left, right) = (right, left ^ moved);
        }
        left << self.half | right
    }
}

/// In which order a stream goes through its range.
#[derive(Clone, Debug)]
enum Order {
    Sequential,
    Random(Random),
    Once(Permutation),
}

/// What a pattern is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Bytes of one request.
    pub(crate) request_size: u64,
}

impl Range {
    /// Requests that fit one behind the other.
    pub(crate) fn blocks(&self) -> u64 {
        self.end.saturating_sub(self.start) / self.request_size.max(1)
    }
}

/// The offsets of one stream in one stage.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    range: Range,
    order: Order,
    made: u64,
    endless: bool,
}

impl Pattern {
    pub(crate) fn sequential(range: Range, endless: bool) -> Pattern {
        Pattern::new(range, Order::Sequential, endless)
    }

    pub(crate) fn random(range: Range, seed: u64, endless: bool) -> Pattern {
        Pattern::new(range, Order::Random(Random::new(seed)), endless)
    }

    pub(crate) fn once(range: Range, seed: u64) -> Pattern {
        let permutation = Permutation::new(range.blocks(), seed);
        Pattern::new(range, Order::Once(permutation), false)
    }

    fn new(range: Range, order: Order, endless: bool) -> Pattern {
        Pattern {
            range,
            order,
            made: 0,
            endless,
        }
    }

    /// The next offset; `None` when the stream has made all its requests.
    pub(crate) fn next_offset(&mut self) -> Option<u64> {
        let blocks = self.range.blocks();
        if blocks == 0 || (!self.endless && self.made >= blocks) {
            return None;
        }
        let index = self.made % blocks;
        self.made += 1;
        let Range {
            start, request_size, ..
        } = self.range;
        Some(match &mut self.order {
            Order::Sequential => start + index * request_size,
            Order::Random(random) => start + random.below(blocks) * request_size,
            Order::Once(permutation) => start + permutation.at(index) * request_size,
        })
    }

    /// Gives back the last offset for another one, where any will do.
    pub(crate) fn another(&mut self) -> Option<u64> {
        match self.order {
            Order::Random(_) => {
                self.made -= 1;
                self.next_offset()
            }
            Order::Sequential | Order::Once(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, blocks: u64) -> Range {
        Range {
            start,
            end: start + blocks * 4096,
            request_size: 4096,
        }
    }

    fn all(mut pattern: Pattern) -> Vec<u64> {
        std::iter::from_fn(|| pattern.next_offset()).collect()
    }

    #[test]
    fn a_permutation_takes_every_number_once() {
        for bound in (1..=300).chain([1023, 1024, 1025, 4095, 4096, 4097, 65_537]) {
            for seed in [0, 1, u64::MAX, 42] {
                let permutation = Permutation::new(bound, seed);
                let mut seen = vec![false; bound as usize];
                for index in 0..bound {
                    let at = permutation.at(index) as usize;
                    assert!(!std::mem::replace(&mut seen[at], true), "{bound} {seed}: {at} twice");
                }
            }
        }
    }

    #[test]
    fn a_permutation_is_no_order() {
        let permutation = Permutation::new(4096, 7);
        let in_order = (0..4095)
            .filter(|&i| permutation.at(i) + 1 == permutation.at(i + 1))
            .count();
        assert!(in_order < 20, "{in_order}");
        let other = Permutation::new(4096, 8);
        let same = (0..4096).filter(|&i| permutation.at(i) == other.at(i)).count();
        assert!(same < 30, "{same}");
    }

    #[test]
    fn in_order_ends_or_begins_again() {
        assert_eq!(all(Pattern::sequential(range(8192, 3), false)), [8192, 12288, 16384]);
        let mut endless = Pattern::sequential(range(0, 2), true);
        let five: Vec<_> = (0..5).filter_map(|_| endless.next_offset()).collect();
        assert_eq!(five, [0, 4096, 0, 4096, 0]);
    }

    #[test]
    fn once_is_every_block_of_the_range() {
        let mut offsets = all(Pattern::once(range(4096, 100), 3));
        offsets.sort_unstable();
        let expected: Vec<u64> = (1..=100).map(|block| block * 4096).collect();
        assert_eq!(offsets, expected);
    }

    #[test]
    fn random_requests_stay_inside_and_begin_at_blocks() {
        let range = Range {
            start: 1 << 20,
            end: (1 << 20) + 150_000,
            request_size: 65_536,
        };
        let mut pattern = Pattern::random(range, 1, true);
        for _ in 0..1000 {
            let offset = pattern.next_offset().unwrap();
            assert!(
                offset >= range.start && offset + range.request_size <= range.end,
                "{offset}"
            );
            assert_eq!((offset - range.start) % 65_536, 0);
        }
        assert_eq!(
            all(Pattern::random(range, 1, false)).len(),
            2,
            "as many as one behind the other"
        );
    }

    #[test]
    fn a_range_without_room_has_no_requests() {
        let range = Range {
            end: 4095,
            ..range(0, 1)
        };
        assert_eq!(all(Pattern::random(range, 1, true)), [0; 0]);
        assert_eq!(all(Pattern::once(range, 1)), [0; 0]);
    }
}
