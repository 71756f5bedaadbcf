//! How batches of a log are told from other bytes: by a stamp that nobody computes without the log's salt.
//!
//! Whoever appends chooses most bytes of a batch and can guess the rest: where it lies, its LSN, its epoch, and so a checksum. A record
//! may look like a batch, and lie where one is looked for: behind one that is torn, or where the next one goes in another lap. The
//! salt stands in the header alone, and no stamp tells of another's.

use std::fmt;

/// Random bytes that a log has had since it was made. They are in its header, and nothing shows them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub [u8; 16]);

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

impl Salt {
    /// What the batch with this LSN has in this epoch: SipHash-2-4 of both numbers, 16 bytes, with the salt as its key.
    #[must_use]
    pub fn stamp(&self, epoch: u64, lsn: u64) -> u64 {
        let key = u128::from_le_bytes(self.0);
        let (low, high) = (key as u64, (key >> 64) as u64);
        let mut state = [
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ];
        for word in [epoch, lsn, 16 << 56] {
            state[3] ^= word;
            rounds(&mut state, 2);
            state[0] ^= word;
        }
        state[2] ^= 0xff;
        rounds(&mut state, 4);
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

fn rounds(state: &mut [u64; 4], count: u32) {
    let [v0, v1, v2, v3] = state;
    for _ in 0..count {
        *v0 = v0.wrapping_add(*v1);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v3);
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.wrapping_add(*v3);
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.wrapping_add(*v1);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v2 = v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_that_of_the_papers() {
        // Key 00 01 .. 0f, message 00 01 .. 0f: a vector of the reference implementation (siphash24.c, vectors_sip64[16]).
        let salt = Salt(std::array::from_fn(|at| at as u8));
        let word = |from: u8| u64::from_le_bytes(std::array::from_fn(|at| from + at as u8));
        assert_eq!(salt.stamp(word(0), word(8)), 0x3f2a_cc7f_57c2_9bdb);
        assert_eq!(format!("{salt:?}"), "Salt(..)");
    }
}
