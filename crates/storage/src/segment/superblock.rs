//! The superblock: four copies of the one page from which everything else is found.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `BAIOVOL\0` |
//! | 8 | 4 | format version, 0 |
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
//! | 208 | 64 | reserved for the snapshot of the clean close |
//! | 272 | 3824 | reserved |
//!
//! Reserved bytes are written as zero and not looked at. A feature that uses some sets a read-only compatible or an
//! incompatible bit, so that no program that does not know them writes zeroes over them.
//!
//! # Update
//!
//! The next sequence goes to copies 0 and 1, which are flushed, then to copies 2 and 3, which are flushed; then it is
//! acknowledged. **The newest sequence with two equal valid copies is current**; the others are healed (copies 0 and 1
//! first, then 2 and 3) before the next update.
//!
//! Why two: a sequence with a single copy was never flushed as a pair, so nobody was told about it, and if it were believed,
//! the loss of that one page would silently take the volume back. Why equal: two different pages with one sequence are the
//! remains of two attempts, and only the one that reached a pair can have been acknowledged. Whatever one crash tears,
//! one pair is whole; whatever single page rots, three others agree.
//!
//! ```text
//! crash while writing   0      1      2   3      current   heal
//! copies 0 and 1        s+1    torn   s   s      s         0, 1
//! between the pairs     s+1    s+1    s   s      s+1       2, 3
//! copies 2 and 3        s+1    s+1    ?   ?      s+1       2, 3
//! ```
//!
//! # Opening
//!
//! Read copies 0 and 1; one that is valid names the place of 2 and 3 ([`rear_copies_at`]); [`choose`] decides. When both are
//! gone, scan upward in steps of 64 KiB from byte 131072 for the first page that is a superblock and stands where it claims
//! to stand ([`recognise`]). Copies 2 and 3 come before the first data block, so the first hit is real as long as one of
//! them is: behind them an owner's data could imitate anything.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Geometry, Layout, LayoutError, SUPERBLOCK_COPIES, SUPERBLOCK_STEP};
use super::page::{self, PAGE_BYTES, Page};

/// The first eight bytes of every superblock.
pub const MAGIC: [u8; 8] = *b"BAIOVOL\0";
/// The format version that this code reads and writes.
pub const VERSION: u32 = 0;
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
    snapshot: [u8; 64],
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
const _: () = assert!(std::mem::offset_of!(RawSuperblock, snapshot) == 208);
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

    /// Checks version, checksum, features and the whole geometry.
    pub fn verify(&self) -> Result<Superblock, SuperblockError> {
        self.check_version()?;
        self.check_checksum()?;
        self.check_features()?;
        let superblock = self.decode()?;
        superblock.check_numbers()?;
        Ok(superblock)
    }

    /// The version comes before the checksum: another version may use another checksum.
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
        let epoch = self.epoch.checked_add(1).ok_or(SuperblockError::Exhausted)?;
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

/// What [`choose`] decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The current superblock.
    pub current: Superblock,
    /// Numbers of the copies that do not hold it, ascending: to be written before the next update.
    pub heal: Vec<u8>,
}

/// Decides which superblock is current. A copy that could not be read is given as an empty slice.
///
/// The newest sequence with two equal valid copies wins. Two copies that agree on a newer version or on unknown features
/// refuse the volume, even if an older pair could be read: an older program must not heal over a newer one's work.
pub fn choose(copies: [&[u8]; SUPERBLOCK_COPIES]) -> Result<Chosen, SuperblockError> {
    let decoded: [Result<Superblock, SuperblockError>; SUPERBLOCK_COPIES] =
        std::array::from_fn(|copy| Superblock::decode(copies[copy], copy as u8));
    refuse_newer(&decoded)?;
    let same: [[bool; SUPERBLOCK_COPIES]; SUPERBLOCK_COPIES] = std::array::from_fn(|a| {
        std::array::from_fn(|b| decoded[a].is_ok() && decoded[b].is_ok() && same_content(copies[a], copies[b]))
    });
    let paired = |copy: usize| same[copy].iter().filter(|same| **same).count() >= 2;
    let newest = (0..SUPERBLOCK_COPIES)
        .filter(|copy| paired(*copy))
        .filter_map(|copy| decoded[copy].as_ref().ok().map(|superblock| (copy, superblock)))
        .rev() // of equal ones max_by_key takes the last: make it the lowest copy
        .max_by_key(|(_, superblock)| superblock.sequence);
    let Some((winner, current)) = newest else {
        return Err(no_pair(&decoded));
    };
    let conflicts = |copy: usize| {
        paired(copy) && !same[winner][copy] && decoded[copy].as_ref().is_ok_and(|s| s.sequence == current.sequence)
    };
    if (0..SUPERBLOCK_COPIES).any(conflicts) {
        return Err(SuperblockError::Conflict {
            sequence: current.sequence,
        });
    }
    let heal = (0..SUPERBLOCK_COPIES as u8)
        .filter(|copy| !same[winner][usize::from(*copy)])
        .collect();
    Ok(Chosen {
        current: current.clone(),
        heal,
    })
}

fn same_content(a: &[u8], b: &[u8]) -> bool {
    match (RawSuperblock::view(a), RawSuperblock::view(b)) {
        (Ok(a), Ok(b)) => a.same_content(b),
        _ => false,
    }
}

fn refuse_newer(decoded: &[Result<Superblock, SuperblockError>]) -> Result<(), SuperblockError> {
    let newer = |error: &SuperblockError| {
        matches!(
            error,
            SuperblockError::Version { .. } | SuperblockError::Features { .. }
        )
    };
    for (at, copy) in decoded.iter().enumerate() {
        let Err(error) = copy else { continue };
        if newer(error)
            && decoded[at + 1..]
                .iter()
                .any(|other| other.as_ref().err() == Some(error))
        {
            return Err(error.clone());
        }
    }
    Ok(())
}

/// The error that tells the user most when no two copies agree.
fn no_pair(decoded: &[Result<Superblock, SuperblockError>; SUPERBLOCK_COPIES]) -> SuperblockError {
    let sequences = std::array::from_fn(|copy| decoded[copy].as_ref().ok().map(|superblock| superblock.sequence));
    if sequences.iter().any(Option::is_some) {
        return SuperblockError::NoPair { sequences };
    }
    let telling = decoded
        .iter()
        .filter_map(|copy| copy.as_ref().err())
        .max_by_key(|error| error.tells());
    telling.cloned().unwrap_or(SuperblockError::NotVolume)
}

/// Where copies 2 and 3 stand according to copies 0 and 1: nothing if neither is valid, two answers if they disagree.
pub fn rear_copies_at(front: [&[u8]; 2]) -> Vec<[u64; 2]> {
    let mut found: Vec<[u64; 2]> = Vec::with_capacity(2);
    for (copy, bytes) in (0u8..).zip(front) {
        if let Ok(superblock) = Superblock::decode(bytes, copy) {
            let [_, _, second, third] = superblock.layout().superblocks_at();
            if !found.contains(&[second, third]) {
                found.push([second, third]);
            }
        }
    }
    found
}

/// Whether the page read at byte `at` is a valid superblock that claims to stand there; which copy it is, and what it says.
pub fn recognise(bytes: &[u8], at: u64) -> Option<(u8, Superblock)> {
    if !at.is_multiple_of(SUPERBLOCK_STEP) {
        return None;
    }
    let raw = RawSuperblock::view(bytes).ok()?;
    let copy = u8::try_from(raw.copy()).ok()?;
    let superblock = raw.verify().ok()?;
    let claimed = *superblock.layout().superblocks_at().get(usize::from(copy))?;
    (claimed == at).then_some((copy, superblock))
}

/// Why a page, or the four of them, is no superblock that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// Not a whole page: the device ends before, or it could not be read.
    Short {
        /// Bytes that there are.
        bytes: usize,
    },
    /// No magic: something else, or nothing, is stored here.
    NotVolume,
    /// A version of the format that this program does not know.
    Version {
        /// The version of the volume.
        found: u32,
        /// The version that this program knows.
        supported: u32,
    },
    /// Torn or rotten.
    Checksum {
        /// What the page says.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// Features without which the volume cannot be understood.
    Features {
        /// The bits that this program does not know.
        unknown: u64,
    },
    /// A number that no volume has, or that contradicts another.
    Geometry {
        /// Which field.
        what: &'static str,
        /// What is wrong with the numbers that all offsets follow from.
        cause: Option<LayoutError>,
    },
    /// A valid copy in another one's place.
    Misplaced {
        /// The number that it bears.
        found: u32,
        /// The number that belongs here.
        copy: u8,
    },
    /// Copies are valid, but no two are equal.
    NoPair {
        /// The sequence of each valid copy.
        sequences: [Option<u64>; SUPERBLOCK_COPIES],
    },
    /// Two pairs of one sequence contradict each other: no update of ours leaves that behind.
    Conflict {
        /// Their sequence.
        sequence: u64,
    },
    /// The device is smaller than the volume.
    Truncated {
        /// Bytes of the device.
        size_bytes: u64,
        /// Bytes that the volume needs.
        needed_bytes: u64,
    },
    /// Sequence or epoch cannot be raised further.
    Exhausted,
}

impl SuperblockError {
    /// How much this error says about the volume, compared with the errors of the other copies.
    fn tells(&self) -> u8 {
        match self {
            Self::Short { .. } => 0,
            Self::NotVolume => 1,
            Self::Checksum { .. } => 2,
            Self::Misplaced { .. } => 3,
            Self::Geometry { .. } => 4,
            Self::Version { .. } => 5,
            Self::Features { .. } => 6,
            Self::NoPair { .. } | Self::Conflict { .. } | Self::Truncated { .. } | Self::Exhausted => 7,
        }
    }
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { bytes } => write!(f, "a superblock has {PAGE_BYTES} bytes, here are {bytes}"),
            Self::NotVolume => write!(
                f,
                "not a baio volume: no superblock is stored here; `baio format` makes one"
            ),
            Self::Version { found, supported } => write!(
                f,
                "the volume has format version {found}, this program knows version {supported}: use a matching one"
            ),
            Self::Checksum { found, computed } => {
                write!(
                    f,
                    "the superblock is damaged: checksum {found:08x}, its bytes give {computed:08x}"
                )
            }
            Self::Features { unknown } => {
                write!(
                    f,
                    "the volume uses features unknown to this program (bits {unknown:#x}): use a newer one"
                )
            }
            Self::Geometry { what, cause: None } => write!(f, "the superblock contradicts itself: {what}"),
            Self::Geometry {
                what,
                cause: Some(cause),
            } => write!(f, "the superblock's {what} is impossible: {cause}"),
            Self::Misplaced { found, copy } => {
                write!(f, "superblock copy {found} stands in the place of copy {copy}")
            }
            Self::NoPair { sequences } => {
                write!(
                    f,
                    "no two copies of the superblock agree; the sequences of copies 0 to 3 are"
                )?;
                sequences.iter().try_for_each(|sequence| match sequence {
                    Some(sequence) => write!(f, " {sequence}"),
                    None => write!(f, " none"),
                })
            }
            Self::Conflict { sequence } => {
                write!(
                    f,
                    "the copies of the superblock with sequence {sequence} contradict each other"
                )
            }
            Self::Truncated {
                size_bytes,
                needed_bytes,
            } => {
                write!(
                    f,
                    "the device has {size_bytes} bytes, the volume on it needs {needed_bytes}"
                )
            }
            Self::Exhausted => write!(f, "the superblock's sequence or epoch cannot be raised further"),
        }
    }
}

impl std::error::Error for SuperblockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Geometry { cause: Some(cause), .. } => Some(cause),
            _ => None,
        }
    }
}
#[cfg(test)]
mod tests;
