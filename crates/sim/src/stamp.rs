//! What a sector bears. Every sector that a workload writes is filled with one 64-bit word that names the segment, the
//! place in it and the write; every byte that was on the disk before the volume was made bears another word. So wherever a
//! sector turns up, it is known who wrote it, for which place, and when; and a torn or mixed one is recognised.

/// Bytes of a sector: what a device writes whole or not at all.
pub const SECTOR: usize = 512;

/// A segment from its creation to its deletion; a second one of the same name has another number.
pub type Instance = u16;

/// A write; later ones have higher numbers. 0 is the zeroes of the creation.
pub type Version = u32;

/// The bytes on the disk before it was formatted.
pub const STALE: u64 = 0xdead_beef_0bad_cafe;

const MARK: u64 = 0xb5 << 56;

/// What a sector turned out to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeroes.
    Zero,
    /// What a workload wrote.
    Written {
        /// For which segment.
        instance: Instance,
        /// For which sector of it.
        position: u16,
        /// By which write.
        version: Version,
    },
    /// What was there before the volume.
    Stale,
    /// Nothing that anybody wrote as a whole.
    Mixed,
    /// The exploration damaged it on purpose, where nothing is promised: whatever it holds is right.
    Damaged,
}

/// Fills `bytes`, which begin at sector `position` of the segment, as the write `version` does.
pub fn fill(bytes: &mut [u8], instance: Instance, position: u64, version: Version) {
    for (sector, bytes) in bytes.chunks_mut(SECTOR).enumerate() {
        let word = word(instance, position + sector as u64, version);
        fill_word(bytes, word);
    }
}

/// Fills `bytes` with one word.
pub fn fill_word(bytes: &mut [u8], word: u64) {
    for target in bytes.chunks_mut(8) {
        target.copy_from_slice(&word.to_le_bytes()[..target.len()]);
    }
}

fn word(instance: Instance, position: u64, version: Version) -> u64 {
    MARK | u64::from(instance) << 40 | (position & 0x3ff) << 30 | u64::from(version & 0x3fff_ffff)
}

/// Reads one sector.
#[must_use]
pub fn read(sector: &[u8]) -> Content {
    let (words, _) = sector.as_chunks::<8>();
    let Some(first) = words.first() else {
        return Content::Mixed;
    };
    if words.iter().any(|word| word != first) {
        return Content::Mixed;
    }
    match u64::from_le_bytes(*first) {
        0 => Content::Zero,
        STALE => Content::Stale,
        word if word & (0xff << 56) == MARK => Content::Written {
            instance: (word >> 40) as Instance,
            position: (word >> 30) as u16 & 0x3ff,
            version: word as Version & 0x3fff_ffff,
        },
        _ => Content::Mixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_tells_who_wrote_it() {
        let mut bytes = [0; 3 * SECTOR];
        fill(&mut bytes[SECTOR..], 7, 41, 99);
        let seen: Vec<_> = bytes.chunks(SECTOR).map(read).collect();
        let written = |position| Content::Written {
            instance: 7,
            position,
            version: 99,
        };
        assert_eq!(seen, [Content::Zero, written(41), written(42)]);
        fill_word(&mut bytes[..SECTOR], STALE);
        assert_eq!(read(&bytes[..SECTOR]), Content::Stale);
        assert_eq!(read(&bytes[8..SECTOR + 8]), Content::Mixed);
    }
}
