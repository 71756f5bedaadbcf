//! Checking data: every block carries a stamp, and a ledger knows which stamp that must be.
//!
//! A block is stamped from its first byte to its last: four words in plain text (a magic number, the seed, the block's
//! offset, its generation), then words that follow from these. So a flipped bit, a block of another place, a write that was
//! lost and one that was torn are all seen, and told apart.
//!
//! The ledger has one word a block. A write in flight owns its block; reads in flight share theirs: what a read that
//! overlaps a write finds is anybody's guess (no order between requests), so there is none. All lanes use the same ledger.
//! Only they are on the other side of its atomics: a lane that sees a block free sees the generation that the last write
//! left, and the bytes come from the kernel, whose own locks order them.

use std::sync::atomic::{AtomicU32, Ordering};

use super::pattern::{GOLDEN, mix};

/// Bytes of the part in plain text; no block is smaller.
pub(crate) const HEADER: u64 = 32;

/// Blocks of all objects together that ledgers may know: a gigabyte of memory.
pub(crate) const BLOCKS_MAX: u64 = 1 << 28;

const MAGIC: u64 = u64::from_le_bytes(*b"baiostmp");

const WRITER: u32 = 1 << 31;
const READER: u32 = 1 << 24;
const READERS: u32 = 0x7f << 24;
const GENERATION: u32 = READER - 1;

/// Who uses which block of an object, and what was last written there.
#[derive(Debug)]
pub(super) struct Ledger {
    blocks: Box<[AtomicU32]>,
    block_size: u64,
}

impl Ledger {
    /// `generation` is that of every block at first; 0 for unknown.
    pub(super) fn new(size: u64, block_size: u64, generation: u32) -> Ledger {
        let count = size / block_size.max(1);
        Ledger {
            blocks: (0..count).map(|_| AtomicU32::new(generation)).collect(),
            block_size,
        }
    }

    fn block(&self, offset: u64) -> Option<&AtomicU32> {
        self.blocks.get((offset / self.block_size.max(1)) as usize)
    }

    fn change(&self, offset: u64, change: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let block = self.block(offset)?;
        block
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, &change)
            .ok()
            .and_then(change)
    }

    /// Takes a block for a write: its new generation. `None` while somebody else uses it.
    pub(super) fn begin_write(&self, offset: u64) -> Option<u32> {
        let taken = self.change(offset, |word| {
            let free = word & (WRITER | READERS) == 0;
            free.then(|| WRITER | next_generation(word & GENERATION))
        })?;
        Some(taken & GENERATION)
    }

    /// Gives it back; what a failed write has left there is unknown.
    pub(super) fn end_write(&self, offset: u64, written: bool) {
        self.change(offset, |word| Some(if written { word & GENERATION } else { 0 }));
    }

    /// Takes a block for a read: the generation that must be found, 0 for unknown. `None` while it is being written.
    pub(super) fn begin_read(&self, offset: u64) -> Option<u32> {
        let taken = self.change(offset, |word| {
            let free = word & WRITER == 0 && word & READERS != READERS;
            free.then_some(word + READER)
        })?;
        Some(taken & GENERATION)
    }

    /// Gives it back.
    pub(super) fn end_read(&self, offset: u64) {
        self.change(offset, |word| (word & READERS != 0).then(|| word - READER));
    }
}

/// 0 stays unknown.
fn next_generation(generation: u32) -> u32 {
    if generation == GENERATION { 1 } else { generation + 1 }
}

/// Which bytes a block must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) seed: u64,
    pub(super) offset: u64,
    pub(super) generation: u32,
}

impl Stamp {
    fn header(&self) -> [u64; 4] {
        [MAGIC, self.seed, self.offset, self.generation.into()]
    }

    fn words(&self) -> impl Iterator<Item = u64> + use<> {
        let key = mix(self.seed ^ mix(self.offset ^ mix(self.generation.into())));
        let body = (1..).map(move |index: u64| mix(key.wrapping_add(index.wrapping_mul(GOLDEN))));
        self.header().into_iter().chain(body)
    }

    /// Stamps a block.
    pub(super) fn fill(&self, block: &mut [u8]) {
        for (part, word) in block.chunks_mut(8).zip(self.words()) {
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        }
    }

    /// The first byte that is not this stamp's.
    fn differs(&self, block: &[u8]) -> Option<usize> {
        let mut parts = block.chunks(8).zip(self.words()).enumerate();
        parts.find_map(|(index, (part, word))| {
            let expected = word.to_le_bytes();
            let byte = part
                .iter()
                .zip(&expected)
                .position(|(found, expected)| found != expected)?;
            Some(index * 8 + byte)
        })
    }
}

/// A block that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// The first wrong byte of the block.
    pub(super) at: u64,
    pub(super) said: String,
}

/// Checks a block. Where the generation is unknown (0), the one that it tells will do.
pub(super) fn check(block: &[u8], expected: Stamp) -> Result<(), Mismatch> {
    let word = |index: usize| {
        let bytes = block.get(index * 8..index * 8 + 8);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    };
    let mut stamp = expected;
    if stamp.generation == 0 {
        stamp.generation = word(3) as u32;
    }
    let Some(at) = stamp.differs(block) else {
        return Ok(());
    };
    let generation = match expected.generation {
        0 => "any generation".to_owned(),
        known => format!("generation {known}"),
    };
    let wanted = format!(
        "expected the stamp of seed {}, offset {}, {generation}",
        expected.seed, expected.offset
    );
    let found = if word(0) != MAGIC {
        format!(
            "found no stamp, but a block that begins with {:02x?}",
            &block[..block.len().min(16)]
        )
    } else if at < HEADER as usize {
        format!(
            "found that of seed {}, offset {}, generation {}",
            word(1),
            word(2),
            word(3)
        )
    } else {
        let mut right = vec![0; block.len()];
        stamp.fill(&mut right);
        format!(
            "found it with byte {at} of the block damaged: expected {:#04x}, found {:#04x}",
            right[at], block[at]
        )
    };
    Err(Mismatch {
        at: at as u64,
        said: format!("{wanted}; {found}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        seed: 7,
        offset: 8192,
        generation: 3,
    };

    fn stamped(len: usize) -> Vec<u8> {
        let mut block = vec![0; len];
        STAMP.fill(&mut block);
        block
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        for len in [32, 512, 519] {
            let good = stamped(len);
            assert_eq!(check(&good, STAMP), Ok(()));
            for bit in 0..len * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let mismatch = check(&bad, STAMP).unwrap_err();
                assert_eq!(mismatch.at, bit as u64 / 8, "{}", mismatch.said);
            }
        }
    }

    #[test]
    fn a_mismatch_tells_expected_and_found() {
        let block = stamped(512);
        let said = |expected: Stamp| check(&block, expected).unwrap_err().said;
        let stale = said(Stamp { generation: 4, ..STAMP });
        assert!(
            stale.contains("offset 8192, generation 4; found that of seed 7, offset 8192, generation 3"),
            "{stale}"
        );
        let misplaced = said(Stamp { offset: 0, ..STAMP });
        assert!(misplaced.contains("offset 0, "), "{misplaced}");
        let nothing = check(&[0; 512], STAMP).unwrap_err().said;
        assert!(nothing.contains("no stamp"), "{nothing}");
    }

    #[test]
    fn an_unknown_generation_is_read_from_the_block_and_still_checked() {
        let unknown = Stamp { generation: 0, ..STAMP };
        let mut block = stamped(512);
        assert_eq!(check(&block, unknown), Ok(()));
        // Half of another generation: a torn write.
        let other = Stamp { generation: 4, ..STAMP };
        let mut newer = vec![0; 512];
        other.fill(&mut newer);
        block[256..].copy_from_slice(&newer[256..]);
        assert_eq!(check(&block, unknown).unwrap_err().at, 256);
    }

    #[test]
    fn a_write_owns_its_block_and_reads_share_theirs() {
        let ledger = Ledger::new(3 * 4096, 4096, 0);
        assert_eq!(ledger.begin_write(4096), Some(1));
        assert_eq!(ledger.begin_write(4096), None);
        assert_eq!(ledger.begin_read(4096), None);
        assert_eq!(ledger.begin_write(0), Some(1), "another block is free");
        ledger.end_write(4096, true);
        assert_eq!(ledger.begin_read(4096), Some(1));
        assert_eq!(ledger.begin_read(4096), Some(1));
        ledger.end_read(4096);
        assert_eq!(ledger.begin_write(4096), None, "one reader is left");
        ledger.end_read(4096);
        assert_eq!(ledger.begin_write(4096), Some(2));
        ledger.end_write(4096, false);
        assert_eq!(ledger.begin_read(4096), Some(0), "a failed write leaves the unknown");
    }

    #[test]
    fn generations_go_round_without_becoming_unknown() {
        let ledger = Ledger::new(4096, 4096, GENERATION);
        assert_eq!(ledger.begin_write(0), Some(1));
    }

    #[test]
    fn so_many_readers_that_none_more_can_be_counted_wait() {
        let ledger = Ledger::new(4096, 4096, 5);
        let readers = std::iter::from_fn(|| ledger.begin_read(0)).count();
        assert_eq!(readers, 127);
        for _ in 0..readers {
            ledger.end_read(0);
        }
        assert_eq!(ledger.begin_write(0), Some(6));
    }
}
