//! What a device holds: bytes that are durable, and sectors that only its cache has.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use baio_engine::sim::Random;

/// What the device writes whole or not at all.
pub const SECTOR: usize = 512;

/// A device's bytes.
#[derive(Clone, Debug)]
pub struct Medium {
    bytes: Vec<u8>,
    /// By their number: what is read, and may be gone when the power fails.
    cached: BTreeMap<u64, [u8; SECTOR]>,
    /// By their number: sectors that give an error until they are written again.
    unreadable: BTreeSet<u64>,
}

/// What becomes of writes that nobody was told the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fall {
    /// The power fails: what is only in the cache may be gone.
    PowerCut,
    /// The process ends: what of its writes came so far is in the cache.
    Kill,
}

/// A write on its way.
#[derive(Clone, Debug)]
pub struct Write {
    /// Its first byte, a multiple of the sector.
    pub offset: u64,
    /// What it writes, whole sectors.
    pub bytes: Arc<[u8]>,
}

impl Write {
    /// What of it lies outside of this range: in front of it, and behind.
    pub fn without(self, range: &Range<u64>) -> impl Iterator<Item = Write> {
        let end = self.offset + self.bytes.len() as u64;
        let parts = [self.offset..range.start.min(end), range.end.max(self.offset)..end];
        parts.into_iter().filter(|part| !part.is_empty()).map(move |part| {
            let at = (part.start - self.offset) as usize;
            Write {
                offset: part.start,
                bytes: Arc::from(&self.bytes[at..at + (part.end - part.start) as usize]),
            }
        })
    }
}

impl Medium {
    /// So many bytes, all of which are stale.
    #[must_use]
    pub fn stale(len: u64, random: &mut Random) -> Medium {
        let word = random.bits().to_le_bytes();
        Medium {
            bytes: word.iter().copied().cycle().take(len as usize).collect(),
            cached: BTreeMap::new(),
            unreadable: BTreeSet::new(),
        }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Has it none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is read there.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let at = offset as usize;
        into.copy_from_slice(&self.bytes[at..at + into.len()]);
        for (sector, bytes) in self.cached.range(offset / SECTOR as u64..) {
            let at = (*sector * SECTOR as u64 - offset) as usize;
            match into.get_mut(at..at + SECTOR) {
                Some(into) => into.copy_from_slice(bytes),
                None => break,
            }
        }
    }

    /// Can all of these bytes be read?
    #[must_use]
    pub fn can_read(&self, offset: u64, len: u64) -> bool {
        let sectors = offset / SECTOR as u64..(offset + len).div_ceil(SECTOR as u64);
        self.unreadable.range(sectors).next().is_none()
    }

    /// Damage: the sector with this byte gives an error.
    pub fn spoil(&mut self, offset: u64) {
        self.unreadable.insert(offset / SECTOR as u64);
    }

    /// All bytes as they are, also where they cannot be read.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.bytes.len()];
        self.read(0, &mut image);
        image
    }

    /// Writes durably.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        let sectors = offset / SECTOR as u64..(offset + bytes.len() as u64) / SECTOR as u64;
        if !self.unreadable.is_empty() {
            self.unreadable.retain(|sector| !sectors.contains(sector));
        }
        if !self.cached.is_empty() {
            self.cached.retain(|sector, _| !sectors.contains(sector));
        }
    }

    /// All that is in the cache is durable.
    pub fn sync(&mut self) {
        for (sector, bytes) in std::mem::take(&mut self.cached) {
            let at = sector as usize * SECTOR;
            self.bytes[at..at + SECTOR].copy_from_slice(&bytes);
        }
    }

    /// Damage: these bytes are there now.
    pub fn poke(&mut self, offset: u64, bytes: &[u8]) {
        self.sync();
        self.write(offset, bytes);
    }

    /// The moment at which these writes are on their way: each is lost, torn or there, in any order.
    pub fn fall(&mut self, how: Fall, mut doubtful: Vec<Write>, random: &mut Random) {
        if how == Fall::PowerCut && !self.cached.is_empty() {
            let kept = [0, 50, 100][random.below(3) as usize];
            self.cached.retain(|_, _| random.percent(kept));
            self.sync();
        }
        while !doubtful.is_empty() {
            let write = doubtful.swap_remove(random.below(doubtful.len() as u64) as usize);
            let sectors = (write.bytes.len() / SECTOR) as u64;
            let cut = random.below(sectors + 1);
            let mask = random.bits();
            let kind = random.below(10);
            for sector in 0..sectors {
                let is_there = match kind {
                    0..=2 => false,
                    3..=5 => true,
                    6 => sector < cut,
                    7 => sector >= cut,
                    8 => sector != cut,
                    _ => mask >> (sector % 64) & 1 == 1,
                };
                if !is_there {
                    continue;
                }
                let at = sector as usize * SECTOR;
                let bytes = &write.bytes[at..at + SECTOR];
                let offset = write.offset + at as u64;
                if how == Fall::PowerCut {
                    self.write(offset, bytes);
                } else if let Ok(bytes) = bytes.try_into() {
                    self.cached.insert(offset / SECTOR as u64, bytes);
                }
            }
        }
    }

    /// A number that other bytes hardly have.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0x9e37_79b9_7f4a_7c15_u64 ^ self.len();
        let mut take = |bytes: &[u8]| {
            for word in bytes.chunks_exact(8) {
                let mut eight = [0; 8];
                eight.copy_from_slice(word);
                hash = (hash ^ u64::from_le_bytes(eight)).wrapping_mul(0xff51_afd7_ed55_8ccd);
                hash ^= hash >> 32;
            }
        };
        take(&self.bytes);
        for (sector, bytes) in &self.cached {
            take(&sector.to_le_bytes());
            take(bytes);
        }
        for sector in &self.unreadable {
            take(&(!sector).to_le_bytes());
        }
        hash
    }
}
