//! The superblock: four copies of the one page from which everything else is found.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `BAIOVOL\0` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | number of this copy, 0 to 3 |
//! | 16 | 4 | CRC-32C of the page, this field taken as zero |
//! | 20 | 4 | the predecessor's checksum, that of its copy 0 |
//! | 24 | 8 | compatible features: an older program may write |
//! | 32 | 8 | read-only compatible features: an older program may read |
//! | 40 | 8 | incompatible features: an older program must refuse |
//! | 48 | 16 | uuid of the volume |
//! | 64 | 8 | sequence: one more with every update |
//! | 72 | 8 | epoch: one more with every opening to write |
//! | 80 | 8 | healed epoch: the last epoch that began with every bucket whole |
//! | 88 | 8 | clean epoch: equal to the epoch after a clean close, and only then |
//! | 96 | 16 | seed of the name hash |
//! | 112 | 4 | block size |
//! | 116 | 4 | reserved |
//! | 120 | 8 | usable segments |
//! | 128 | 8 | buckets |
//! | 136 | 8 | data blocks |
//! | 144 | 8 | data blocks that table and bitmap are made for |
//! | 152 | 8 | where the inode table begins |
//! | 160 | 8 | where its mirror begins |
//! | 168 | 8 | where copy 2 stands |
//! | 176 | 8 | where copy 3 stands |
//! | 184 | 8 | where the bitmap snapshot begins |
//! | 192 | 8 | where data block 0 begins |
//! | 200 | 8 | allocation hint: the block where a search for free blocks begins (the paper's freelist hint) |
//! | 208 | 8 | snapshot: epoch of the clean close that wrote it; 0 if none did |
//! | 216 | 8 | snapshot: pages of the bitmap |
//! | 224 | 8 | snapshot: owners' accounts |
//! | 232 | 8 | snapshot: blocks in use |
//! | 240 | 8 | snapshot: segments |
//! | 248 | 24 | reserved |
//! | 272 | 3824 | reserved |
//!
//! Reserved bytes are written as zero and not looked at. A feature that uses some sets a read-only compatible or an
//! incompatible bit, so that no program that does not know them writes zeroes over them.
//!
//! How the copies are written and which of them is believed stands in `superblock/choose.rs`.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Geometry, Layout};
use super::page::{self, PAGE_BYTES, Page};

mod choose;
mod error;

pub use choose::{Chosen, Mixed, agreed_newer, choose, choose_single, decode, rear_copies_at, recognise};
pub use error::SuperblockError;

/// The first eight bytes of every superblock.
pub const MAGIC: [u8; 8] = *b"BAIOVOL\0";
/// The format version that this code reads and writes.
pub const VERSION: u32 = 1;
/// Read-only compatible features that this code knows: none yet.
pub const FEATURES_RO_COMPAT_KNOWN: u64 = 0;
/// Incompatible features that this code knows: none yet.
pub const FEATURES_INCOMPAT_KNOWN: u64 = 0;

/// A superblock as its bytes lie on the device: recognised, not yet believed.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    magic: [u8; 8],
    version: U32,
    copy: U32,
    checksum: U32,
    parent_checksum: U32,
    feature_compat: U64,
    feature_ro_compat: U64,
    feature_incompat: U64,
    uuid: [u8; 16],
    sequence: U64,
    epoch: U64,
    healed_epoch: U64,
    clean_epoch: U64,
    hash_seed: [u8; 16],
    block_size: U32,
    reserved_0: U32,
    segments_max: U64,
    buckets: U64,
    data_blocks: U64,
    data_blocks_max: U64,
    table_at: U64,
    mirror_at: U64,
    superblock_2_at: U64,
    superblock_3_at: U64,
    bitmap_at: U64,
    data_at: U64,
    alloc_hint: U64,
    snapshot_epoch: U64,
    snapshot_pages: U64,
    snapshot_accounts: U64,
    snapshot_used_blocks: U64,
    snapshot_segments: U64,
    snapshot_reserved: [u8; 24],
    reserved_1: [u8; 3824],
}

const COPY_AT: usize = std::mem::offset_of!(RawSuperblock, copy);
const CHECKSUM_AT: usize = std::mem::offset_of!(RawSuperblock, checksum);
const PARENT_CHECKSUM_AT: usize = std::mem::offset_of!(RawSuperblock, parent_checksum);

const _: () = assert!(size_of::<RawSuperblock>() == PAGE_BYTES);
const _: () = assert!(COPY_AT == 12 && CHECKSUM_AT == 16 && PARENT_CHECKSUM_AT == 20);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, feature_compat) == 24);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, uuid) == 48);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, sequence) == 64);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, hash_seed) == 96);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, block_size) == 112);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, segments_max) == 120);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, table_at) == 152);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, alloc_hint) == 200);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, snapshot_epoch) == 208);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, reserved_1) == 272);

impl RawSuperblock {
    /// Looks at a page as a superblock; refuses what has another length or no magic.
    pub fn view(bytes: &[u8]) -> Result<&Self, SuperblockError> {
        let raw = Self::ref_from_bytes(bytes).map_err(|_| SuperblockError::Short { bytes: bytes.len() })?;
        if raw.magic == MAGIC {
            Ok(raw)
        } else {
            Err(SuperblockError::NotVolume)
        }
    }

    /// The number that this copy bears.
    pub fn copy(&self) -> u32 {
        self.copy.get()
    }

    /// Checks checksum, version, features and the whole geometry.
    pub fn verify(&self) -> Result<Superblock, SuperblockError> {
        self.check_checksum()?;
        self.check_version()?;
        self.check_features()?;
        let superblock = self.decode()?;
        superblock.check_numbers()?;
        Ok(superblock)
    }

    /// Magic, version, copy number and checksum mean the same in every version: a damaged page must not pass for a newer one.
    fn check_version(&self) -> Result<(), SuperblockError> {
        match self.version.get() {
            VERSION => Ok(()),
            found => Err(SuperblockError::Version {
                found,
                supported: VERSION,
            }),
        }
    }

    fn check_checksum(&self) -> Result<(), SuperblockError> {
        let computed = self.compute_checksum();
        match self.checksum.get() {
            found if found == computed => Ok(()),
            found => Err(SuperblockError::Checksum { found, computed }),
        }
    }

    fn check_features(&self) -> Result<(), SuperblockError> {
        match self.feature_incompat.get() & !FEATURES_INCOMPAT_KNOWN {
            0 => Ok(()),
            unknown => Err(SuperblockError::Features { unknown }),
        }
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.block_size.get(),
            data_blocks: self.data_blocks.get(),
            data_blocks_max: self.data_blocks_max.get(),
            segments_max: self.segments_max.get(),
        }
    }

    /// Every stored offset against the one that follows from the geometry.
    fn check_offsets(&self, layout: &Layout) -> Result<(), SuperblockError> {
        let [_, _, superblock_2_at, superblock_3_at] = layout.superblocks_at();
        let pairs = [
            ("buckets", self.buckets, layout.buckets()),
            ("table_at", self.table_at, layout.table_at()),
            ("mirror_at", self.mirror_at, layout.mirror_at()),
            ("superblock_2_at", self.superblock_2_at, superblock_2_at),
            ("superblock_3_at", self.superblock_3_at, superblock_3_at),
            ("bitmap_at", self.bitmap_at, layout.bitmap_at()),
            ("data_at", self.data_at, layout.data_at()),
        ];
        match pairs
            .into_iter()
            .find(|(_, stored, computed)| stored.get() != *computed)
        {
            None => Ok(()),
            Some((what, ..)) => Err(SuperblockError::Geometry { what, cause: None }),
        }
    }

    fn snapshot(&self) -> Option<SnapshotNote> {
        let note = SnapshotNote {
            epoch: self.snapshot_epoch.get(),
            pages: self.snapshot_pages.get(),
            accounts: self.snapshot_accounts.get(),
            used_blocks: self.snapshot_used_blocks.get(),
            segments: self.snapshot_segments.get(),
        };
        (note.epoch != 0).then_some(note)
    }

    fn decode(&self) -> Result<Superblock, SuperblockError> {
        let layout = Layout::of(&self.geometry()).map_err(|cause| SuperblockError::Geometry {
            what: "geometry",
            cause: Some(cause),
        })?;
        self.check_offsets(&layout)?;
        Ok(Superblock {
            parent_checksum: self.parent_checksum.get(),
            feature_compat: self.feature_compat.get(),
            feature_ro_compat: self.feature_ro_compat.get(),
            feature_incompat: self.feature_incompat.get(),
            uuid: self.uuid,
            sequence: self.sequence.get(),
            epoch: self.epoch.get(),
            healed_epoch: self.healed_epoch.get(),
            clean_epoch: self.clean_epoch.get(),
            hash_seed: self.hash_seed,
            alloc_hint: self.alloc_hint.get(),
            snapshot: self.snapshot(),
            layout,
        })
    }

    fn compute_checksum(&self) -> u32 {
        // The size is asserted above, so the error arm is never taken; a checksum of nothing would match no page.
        match <&[u8; PAGE_BYTES]>::try_from(self.as_bytes()) {
            Ok(bytes) => page::checksum(bytes, CHECKSUM_AT),
            Err(_) => !self.checksum.get(),
        }
    }

    /// Whether two copies say the same: all bytes but the copy's number and the checksum, which covers that number.
    fn same_content(&self, other: &Self) -> bool {
        let (a, b) = (self.as_bytes(), other.as_bytes());
        a[..COPY_AT] == b[..COPY_AT] && a[PARENT_CHECKSUM_AT..] == b[PARENT_CHECKSUM_AT..]
    }
}

/// What a clean close noted about the snapshot that it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotNote {
    /// The epoch that ended with it; a snapshot of another epoch than the current one says nothing.
    pub epoch: u64,
    /// Pages of the bitmap, from its beginning to the last block in use.
    pub pages: u64,
    /// Owners that have an account.
    pub accounts: u64,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Segments.
    pub segments: u64,
}

impl SnapshotNote {
    /// The note of an empty volume.
    pub fn of_nothing(epoch: u64) -> SnapshotNote {
        SnapshotNote {
            epoch,
            pages: 0,
            accounts: 0,
            used_blocks: 0,
            segments: 0,
        }
    }
}

/// A superblock that was checked: every offset of its layout is consistent and below 2^63.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The predecessor's [`Superblock::checksum`]; 0 after format.
    pub parent_checksum: u32,
    /// Compatible features.
    pub feature_compat: u64,
    /// Read-only compatible features.
    pub feature_ro_compat: u64,
    /// Incompatible features.
    pub feature_incompat: u64,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// One more with every update.
    pub sequence: u64,
    /// One more with every opening to write.
    pub epoch: u64,
    /// The last epoch that began with every bucket whole; the rule of [`super::bucket`] needs it.
    pub healed_epoch: u64,
    /// Equal to `epoch` after a clean close, and only then; the snapshot is valid only then.
    pub clean_epoch: u64,
    /// Seed of the name hash.
    pub hash_seed: [u8; 16],
    /// The block where a search for free blocks begins.
    pub alloc_hint: u64,
    /// The last snapshot of a clean close; [`Superblock::valid_snapshot`] says whether it still holds.
    pub snapshot: Option<SnapshotNote>,
    /// Private, so that it is always a checked one.
    layout: Layout,
}

impl Superblock {
    /// The superblock of a freshly formatted volume: epoch 1, closed cleanly, all buckets whole.
    ///
    /// The epoch is 1 and not 0 because a bucket that was never written counts as of epoch 0, and must not look as if it
    /// belonged to the last healed epoch: healing would then read the mirror of every empty bucket.
    pub fn fresh(layout: Layout, uuid: [u8; 16], hash_seed: [u8; 16]) -> Self {
        Self {
            parent_checksum: 0,
            feature_compat: 0,
            feature_ro_compat: 0,
            feature_incompat: 0,
            uuid,
            sequence: 1,
            epoch: 1,
            healed_epoch: 1,
            clean_epoch: 1,
            hash_seed,
            alloc_hint: 0,
            snapshot: None,
            layout,
        }
    }

    /// Decodes the copy that was read from the place of copy number `copy`.
    pub fn decode(bytes: &[u8], copy: u8) -> Result<Self, SuperblockError> {
        let raw = RawSuperblock::view(bytes)?;
        let superblock = raw.verify()?;
        if raw.copy() == u32::from(copy) {
            Ok(superblock)
        } else {
            Err(SuperblockError::Misplaced {
                found: raw.copy(),
                copy,
            })
        }
    }

    /// The page of copy number `copy`, with its checksum.
    pub fn encode(&self, copy: u8) -> Page {
        let mut raw = RawSuperblock::new_zeroed();
        self.fill(&mut raw);
        raw.copy = u32::from(copy).into();
        raw.checksum = raw.compute_checksum().into();
        let mut page = Page::zeroed();
        page.bytes_mut().copy_from_slice(raw.as_bytes());
        page
    }

    fn fill(&self, raw: &mut RawSuperblock) {
        let geometry = self.layout.geometry();
        let [_, _, superblock_2_at, superblock_3_at] = self.layout.superblocks_at();
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.parent_checksum = self.parent_checksum.into();
        raw.feature_compat = self.feature_compat.into();
        raw.feature_ro_compat = self.feature_ro_compat.into();
        raw.feature_incompat = self.feature_incompat.into();
        raw.uuid = self.uuid;
        raw.sequence = self.sequence.into();
        raw.epoch = self.epoch.into();
        raw.healed_epoch = self.healed_epoch.into();
        raw.clean_epoch = self.clean_epoch.into();
        raw.hash_seed = self.hash_seed;
        raw.block_size = geometry.block_size.into();
        raw.segments_max = geometry.segments_max.into();
        raw.buckets = self.layout.buckets().into();
        raw.data_blocks = geometry.data_blocks.into();
        raw.data_blocks_max = geometry.data_blocks_max.into();
        raw.table_at = self.layout.table_at().into();
        raw.mirror_at = self.layout.mirror_at().into();
        raw.superblock_2_at = superblock_2_at.into();
        raw.superblock_3_at = superblock_3_at.into();
        raw.bitmap_at = self.layout.bitmap_at().into();
        raw.data_at = self.layout.data_at().into();
        raw.alloc_hint = self.alloc_hint.into();
        if let Some(note) = self.snapshot {
            raw.snapshot_epoch = note.epoch.into();
            raw.snapshot_pages = note.pages.into();
            raw.snapshot_accounts = note.accounts.into();
            raw.snapshot_used_blocks = note.used_blocks.into();
            raw.snapshot_segments = note.segments.into();
        }
    }

    /// The checksum of this superblock's copy 0: its name in the successor's `parent_checksum`.
    pub fn checksum(&self) -> u32 {
        page::checksum(self.encode(0).bytes(), CHECKSUM_AT)
    }

    /// The superblock that replaces this one; change it, then write it.
    pub fn successor(&self) -> Result<Self, SuperblockError> {
        let sequence = self.sequence.checked_add(1).ok_or(SuperblockError::Exhausted)?;
        Ok(Self {
            sequence,
            parent_checksum: self.checksum(),
            ..self.clone()
        })
    }

    /// The successor with the next epoch: what an opening to write must make durable before anything else.
    pub fn next_epoch(&self) -> Result<Self, SuperblockError> {
        let more = u64::from(!crate::seeded_bug("the-epoch-stays"));
        let epoch = self.epoch.checked_add(more).ok_or(SuperblockError::Exhausted)?;
        Ok(Self {
            epoch,
            ..self.successor()?
        })
    }

    /// The successor for a device of another size.
    pub fn resized(&self, size_bytes: u64) -> Result<Self, SuperblockError> {
        let layout = self
            .layout
            .resized(size_bytes)
            .map_err(|cause| SuperblockError::Geometry {
                what: "size of the device",
                cause: Some(cause),
            })?;
        let alloc_hint = self.alloc_hint.min(layout.geometry().data_blocks);
        Ok(Self {
            layout,
            alloc_hint,
            ..self.successor()?
        })
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The numbers from which the layout follows.
    pub fn geometry(&self) -> &Geometry {
        self.layout.geometry()
    }

    /// Whether the last writer closed cleanly, so that nothing needs healing and the snapshot is valid.
    pub fn is_clean(&self) -> bool {
        self.clean_epoch == self.epoch
    }

    /// The snapshot, if it was written by the clean close that was the last thing to happen to the volume.
    pub fn valid_snapshot(&self) -> Option<SnapshotNote> {
        self.snapshot.filter(|note| self.is_clean() && note.epoch == self.epoch)
    }

    /// Features that allow reading but not writing to a program that does not know them; 0 means: write.
    pub fn unknown_ro_compat(&self) -> u64 {
        self.feature_ro_compat & !FEATURES_RO_COMPAT_KNOWN
    }

    /// Refuses a device that ends before the volume does.
    pub fn check_device(&self, size_bytes: u64) -> Result<(), SuperblockError> {
        match self.layout.end() {
            needed_bytes if needed_bytes > size_bytes => Err(SuperblockError::Truncated {
                size_bytes,
                needed_bytes,
            }),
            _ => Ok(()),
        }
    }

    fn check_numbers(&self) -> Result<(), SuperblockError> {
        let impossible = [
            ("healed_epoch", self.healed_epoch > self.epoch),
            ("clean_epoch", self.clean_epoch > self.epoch),
            ("alloc_hint", self.alloc_hint > self.geometry().data_blocks),
        ];
        match impossible.into_iter().find(|(_, wrong)| *wrong) {
            None => Ok(()),
            Some((what, _)) => Err(SuperblockError::Geometry { what, cause: None }),
        }
    }
}

#[cfg(test)]
mod tests;
