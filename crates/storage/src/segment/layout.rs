//! Where everything lies on the device: fixed at format, a function of four numbers.
//!
//! ```text
//! byte 0                superblock copy 0                    4 KiB, the rest up to 64 KiB is unused
//!      65536            superblock copy 1                    4 KiB, the rest up to 128 KiB is unused
//!      131072           inode table                          buckets x 8 KiB: even image, odd image
//!      mirror_at        mirror of the table                  the same size, right behind it
//!      superblock 2     next multiple of 64 KiB              4 KiB
//!      superblock 3     64 KiB further                       4 KiB
//!      bitmap_at        next page: snapshot of the bitmap    one page for 32256 blocks of the maximal volume
//!      data_at          next multiple of 1 MiB (of the block size if the maximal volume is below 64 MiB)
//!      ...              data blocks 0, 1, 2 ...
//! ```
//!
//! Table and bitmap are sized for `data_blocks_max`, the volume as large as it may ever grow (`--max-size`). Growing it
//! then changes one number in the superblock and moves nothing. Copies 2 and 3 of the superblock stand at a multiple of
//! 64 KiB so that a scan finds them when 0 and 1 are gone.
//!
//! The paper reserves one inode per 1000 data blocks; so do we, at least 16. Twice as many slots as usable inodes keep the
//! probes short, and four slots make a bucket: `buckets = ceil(segments_max / 2)`.
//!
//! A superblock stores both the four numbers ([`Geometry`]) and the offsets, and an open recomputes the second from the
//! first ([`Layout::of`]) and refuses a difference. That one check is why no arithmetic after it can overflow: the last
//! byte of the maximal volume lies below 2^63.

use std::fmt;

use super::page::PAGE_BYTES_U64;

/// Generations of slots and buckets rise by one with each change: what claims to have come further than this is damage.
pub const GENERATION_MAX: u64 = u64::MAX >> 1;
/// A repair gives a slot or a bucket that has fewer changes than this before it a low generation again.
const GENERATIONS_LEFT_MIN: u64 = 1 << 32;

/// Is this generation so near the last one that what has it will soon not change any more?
pub fn is_used_up(generation: u64) -> bool {
    generation > GENERATION_MAX - GENERATIONS_LEFT_MIN
}

/// Slots for inodes in a bucket.
pub const SLOTS_PER_BUCKET: usize = 4;
/// The fewest usable segments of a volume.
pub const SEGMENTS_MIN: u64 = 16;
/// Data blocks for which one segment is reserved, unless the user says otherwise (the paper's ratio).
pub const BLOCKS_PER_SEGMENT: u64 = 1000;
/// The smallest block size.
pub const BLOCK_SIZE_MIN: u32 = 4096;
/// The largest block size.
pub const BLOCK_SIZE_MAX: u32 = 65536;
/// Superblock copies stand at multiples of this; a scan for lost ones goes in these steps.
pub const SUPERBLOCK_STEP: u64 = 64 << 10;
/// How many copies of the superblock there are.
pub const SUPERBLOCK_COPIES: usize = 4;
/// Where the inode table begins.
pub const TABLE_AT: u64 = 2 * SUPERBLOCK_STEP;
/// Bytes of a bucket in the table: its even and its odd image.
pub const BUCKET_BYTES: u64 = 2 * PAGE_BYTES_U64;
/// Header bytes of a page of the bitmap snapshot.
pub const BITMAP_HEADER_BYTES: u64 = 64;
/// Blocks that one page of the bitmap snapshot describes.
pub const BITMAP_BLOCKS_PER_PAGE: u64 = (PAGE_BYTES_U64 - BITMAP_HEADER_BYTES) * 8;
/// From this size on, data begins at a multiple of [`DATA_ALIGNMENT`].
pub const ALIGNED_FROM_BYTES: u64 = 64 << 20;
/// The alignment of the data area of all but small volumes.
pub const DATA_ALIGNMENT: u64 = 1 << 20;
/// No volume ends behind this byte: file offsets are signed.
const END_MAX: u64 = i64::MAX as u64;

/// Which of the two images of a bucket: generation `g` lives in image `g mod 2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parity {
    /// The first image of the pair, home of even generations.
    Even,
    /// The second image of the pair, home of odd generations.
    Odd,
}

impl fmt::Display for Parity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Even => "even",
            Self::Odd => "odd",
        })
    }
}

impl Parity {
    /// Both, in the order of the disk.
    pub const BOTH: [Self; 2] = [Self::Even, Self::Odd];

    /// The home of a generation.
    pub fn of(generation: u64) -> Self {
        if generation % 2 == 0 { Self::Even } else { Self::Odd }
    }

    /// The other place of the pair.
    pub fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }

    /// 0 or 1: the place in the pair.
    pub fn index(self) -> usize {
        match self {
            Self::Even => 0,
            Self::Odd => 1,
        }
    }
}

/// Which of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The inode table: written first.
    Table,
    /// Its mirror: written when the table is durable.
    Mirror,
}

/// The four numbers from which every offset follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block, a power of two from 4096 to 65536.
    pub block_size: u32,
    /// Data blocks now.
    pub data_blocks: u64,
    /// Data blocks that table and bitmap are made for.
    pub data_blocks_max: u64,
    /// Usable segments; there are twice as many slots.
    pub segments_max: u64,
}

impl Geometry {
    /// Buckets in the table: two slots for every usable segment, four slots in a bucket.
    pub fn buckets(&self) -> u64 {
        self.segments_max.div_ceil(2)
    }
}

/// All offsets of a volume, in bytes; consistent by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    geometry: Geometry,
    offsets: Offsets,
}

/// What follows from the block size, the maximal size and the number of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offsets {
    mirror_at: u64,
    superblock_2_at: u64,
    superblock_3_at: u64,
    bitmap_at: u64,
    bitmap_pages: u64,
    data_at: u64,
    /// One byte behind the last of the maximal volume.
    end_max: u64,
}

impl Offsets {
    /// Lays everything out; `None` if it would end behind [`END_MAX`].
    fn place(block_size: u32, data_blocks_max: u64, segments_max: u64) -> Option<Self> {
        let block_size = u64::from(block_size);
        let table_bytes = segments_max.div_ceil(2).checked_mul(BUCKET_BYTES)?;
        let mirror_at = TABLE_AT.checked_add(table_bytes)?;
        let superblock_2_at = mirror_at
            .checked_add(table_bytes)?
            .checked_next_multiple_of(SUPERBLOCK_STEP)?;
        let superblock_3_at = superblock_2_at.checked_add(SUPERBLOCK_STEP)?;
        let bitmap_at = superblock_3_at.checked_add(PAGE_BYTES_U64)?;
        let bitmap_pages = data_blocks_max.div_ceil(BITMAP_BLOCKS_PER_PAGE);
        let bitmap_end = bitmap_at.checked_add(bitmap_pages.checked_mul(PAGE_BYTES_U64)?)?;
        let data_bytes = data_blocks_max.checked_mul(block_size)?;
        let data_at = data_at(bitmap_end, data_bytes, block_size)?;
        let end_max = data_at.checked_add(data_bytes).filter(|end| *end <= END_MAX)?;
        Some(Self {
            mirror_at,
            superblock_2_at,
            superblock_3_at,
            bitmap_at,
            bitmap_pages,
            data_at,
            end_max,
        })
    }
}

/// Where data begins. Whether the volume counts as large is asked of the aligned layout, so that the answer follows from
/// the geometry alone. (A volume just below 64 MiB leaves up to 1 MiB at its end unused for this.)
fn data_at(bitmap_end: u64, data_bytes: u64, block_size: u64) -> Option<u64> {
    let aligned = bitmap_end.checked_next_multiple_of(DATA_ALIGNMENT)?;
    if aligned.checked_add(data_bytes)? >= ALIGNED_FROM_BYTES {
        Some(aligned)
    } else {
        bitmap_end.checked_next_multiple_of(block_size)
    }
}

impl Layout {
    /// Plans a volume of `size_bytes` that may grow to `max_size_bytes`.
    ///
    /// `segments` overrides one segment per 1000 blocks of the maximum; at least 16 are reserved in either case.
    pub fn plan(
        size_bytes: u64,
        max_size_bytes: u64,
        block_size: u32,
        segments: Option<u64>,
    ) -> Result<(Geometry, Self), LayoutError> {
        check_block_size(block_size)?;
        if max_size_bytes < size_bytes {
            return Err(LayoutError::MaxBelowSize {
                size_bytes,
                max_size_bytes,
            });
        }
        let data_blocks_max = blocks_that_fit(max_size_bytes, block_size, segments)?;
        let segments_max = segments_for(data_blocks_max, segments);
        let offsets = Offsets::place(block_size, data_blocks_max, segments_max).ok_or(LayoutError::Overflow)?;
        let data_blocks = size_bytes.saturating_sub(offsets.data_at) / u64::from(block_size);
        if data_blocks == 0 {
            let least_bytes = offsets.data_at.saturating_add(u64::from(block_size));
            return Err(LayoutError::TooSmall {
                size_bytes,
                least_bytes,
            });
        }
        let geometry = Geometry {
            block_size,
            data_blocks,
            data_blocks_max,
            segments_max,
        };
        Ok((geometry, Self { geometry, offsets }))
    }

    /// The layout that follows from a geometry, or what is wrong with the geometry.
    pub fn of(geometry: &Geometry) -> Result<Self, LayoutError> {
        check_block_size(geometry.block_size)?;
        if geometry.segments_max < SEGMENTS_MIN {
            return Err(LayoutError::Segments {
                found: geometry.segments_max,
            });
        }
        if geometry.data_blocks == 0 || geometry.data_blocks > geometry.data_blocks_max {
            let (found, max) = (geometry.data_blocks, geometry.data_blocks_max);
            return Err(LayoutError::DataBlocks { found, max });
        }
        let offsets = Offsets::place(geometry.block_size, geometry.data_blocks_max, geometry.segments_max)
            .ok_or(LayoutError::Overflow)?;
        Ok(Self {
            geometry: *geometry,
            offsets,
        })
    }

    /// The same volume on a device of another size: only the number of data blocks changes.
    ///
    /// A device larger than the reserved maximum gives the maximum.
    pub fn resized(&self, size_bytes: u64) -> Result<Self, LayoutError> {
        let block_size = u64::from(self.geometry.block_size);
        let blocks = size_bytes.saturating_sub(self.offsets.data_at) / block_size;
        if blocks == 0 {
            let least_bytes = self.offsets.data_at.saturating_add(block_size);
            return Err(LayoutError::TooSmall {
                size_bytes,
                least_bytes,
            });
        }
        let data_blocks = blocks.min(self.geometry.data_blocks_max);
        Ok(Self {
            geometry: Geometry {
                data_blocks,
                ..self.geometry
            },
            offsets: self.offsets,
        })
    }

    /// Whether a device of this size is larger than any that the volume was formatted for: one on which a format would have
    /// planned more data blocks. (The largest volume may end a little before the size that was asked for.)
    pub fn leaves_room_unused(&self, size_bytes: u64) -> bool {
        let Geometry {
            block_size,
            data_blocks_max,
            segments_max,
            ..
        } = self.geometry;
        let by_blocks = segments_max == segments_for(data_blocks_max, None);
        let asked = (!by_blocks).then_some(segments_max);
        let more = data_blocks_max.saturating_add(1);
        Offsets::place(block_size, more, segments_for(more, asked)).is_some_and(|larger| larger.end_max <= size_bytes)
    }

    /// The numbers that it follows from.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.geometry.block_size
    }

    /// Buckets in the table, and in the mirror.
    pub fn buckets(&self) -> u64 {
        self.geometry.buckets()
    }

    /// Where the four copies of the superblock stand.
    pub fn superblocks_at(&self) -> [u64; SUPERBLOCK_COPIES] {
        [
            0,
            SUPERBLOCK_STEP,
            self.offsets.superblock_2_at,
            self.offsets.superblock_3_at,
        ]
    }

    /// Where the inode table begins.
    pub fn table_at(&self) -> u64 {
        TABLE_AT
    }

    /// Bytes of the table, and of the mirror.
    pub fn table_bytes(&self) -> u64 {
        self.offsets.mirror_at - TABLE_AT
    }

    /// Where the mirror of the table begins.
    pub fn mirror_at(&self) -> u64 {
        self.offsets.mirror_at
    }

    /// Where the snapshot of the bitmap begins.
    pub fn bitmap_at(&self) -> u64 {
        self.offsets.bitmap_at
    }

    /// Pages of the snapshot of the bitmap, for the maximal volume.
    pub fn bitmap_pages(&self) -> u64 {
        self.offsets.bitmap_pages
    }

    /// Where data block 0 begins.
    pub fn data_at(&self) -> u64 {
        self.offsets.data_at
    }

    /// One byte behind the last data block: a device or file must have at least so many bytes.
    pub fn end(&self) -> u64 {
        self.offsets.data_at + self.geometry.data_blocks * u64::from(self.geometry.block_size)
    }

    /// One byte behind the last data block of the volume as large as it may grow.
    pub fn end_max(&self) -> u64 {
        self.offsets.end_max
    }

    /// Where a bucket begins: its even image, the odd one follows. `None` if there is no such bucket.
    pub fn bucket_at(&self, bucket: u64, place: Place) -> Option<u64> {
        let start = match place {
            Place::Table => TABLE_AT,
            Place::Mirror => self.offsets.mirror_at,
        };
        (bucket < self.buckets()).then(|| start + bucket * BUCKET_BYTES)
    }

    /// Where one image of a bucket stands. `None` if there is no such bucket.
    pub fn image_at(&self, bucket: u64, parity: Parity, place: Place) -> Option<u64> {
        let bucket_at = self.bucket_at(bucket, place)?;
        Some(match parity {
            Parity::Even => bucket_at,
            Parity::Odd => bucket_at + PAGE_BYTES_U64,
        })
    }

    /// Where a data block stands. `None` if there is no such block.
    pub fn block_at(&self, block: u64) -> Option<u64> {
        let block_size = u64::from(self.geometry.block_size);
        (block < self.geometry.data_blocks).then(|| self.offsets.data_at + block * block_size)
    }

    /// Where a run of data blocks begins and how many bytes it has. `None` unless all of it exists.
    pub fn run_at(&self, start: u64, blocks: u64) -> Option<(u64, u64)> {
        let end = start.checked_add(blocks)?;
        let block_size = u64::from(self.geometry.block_size);
        (end <= self.geometry.data_blocks).then(|| (self.offsets.data_at + start * block_size, blocks * block_size))
    }
}

fn check_block_size(block_size: u32) -> Result<(), LayoutError> {
    if block_size.is_power_of_two() && (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&block_size) {
        Ok(())
    } else {
        Err(LayoutError::BlockSize { found: block_size })
    }
}

/// Usable segments of a volume with so many blocks.
fn segments_for(data_blocks_max: u64, asked: Option<u64>) -> u64 {
    asked.unwrap_or(data_blocks_max / BLOCKS_PER_SEGMENT).max(SEGMENTS_MIN)
}

/// The most data blocks for which a volume ends at or before `max_size_bytes`, by bisection: more blocks never make a
/// volume end earlier.
fn blocks_that_fit(max_size_bytes: u64, block_size: u32, segments: Option<u64>) -> Result<u64, LayoutError> {
    let end = |blocks| Offsets::place(block_size, blocks, segments_for(blocks, segments)).map(|o| o.end_max);
    let fits = |blocks| end(blocks).is_some_and(|end| end <= max_size_bytes);
    if !fits(1) {
        let least_bytes = end(1).ok_or(LayoutError::Overflow)?;
        return Err(LayoutError::TooSmall {
            size_bytes: max_size_bytes,
            least_bytes,
        });
    }
    let (mut most, mut too_many) = (1, max_size_bytes / u64::from(block_size) + 1);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        if fits(middle) { most = middle } else { too_many = middle }
    }
    Ok(most)
}

/// Why a volume cannot be laid out so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// No power of two from 4096 to 65536.
    BlockSize {
        /// What was asked.
        found: u32,
    },
    /// The device does not hold the metadata and one block.
    TooSmall {
        /// The size it has.
        size_bytes: u64,
        /// The least size that would do with the same maximum and number of segments.
        least_bytes: u64,
    },
    /// The maximum is less than the size.
    MaxBelowSize {
        /// The size.
        size_bytes: u64,
        /// The maximum.
        max_size_bytes: u64,
    },
    /// Fewer than 16 segments.
    Segments {
        /// How many.
        found: u64,
    },
    /// No data block, or more than the maximum.
    DataBlocks {
        /// How many.
        found: u64,
        /// The maximum.
        max: u64,
    },
    /// The volume would end behind the largest file offset.
    Overflow,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlockSize { found } => write!(
                f,
                "block size {found} is not a power of two from {BLOCK_SIZE_MIN} to {BLOCK_SIZE_MAX}; 4096 suits most devices"
            ),
            Self::TooSmall {
                size_bytes,
                least_bytes,
            } => write!(
                f,
                "{size_bytes} bytes cannot hold a volume: its metadata and one block need {least_bytes} bytes \
                 (fewer segments or a smaller maximal size need less)"
            ),
            Self::MaxBelowSize {
                size_bytes,
                max_size_bytes,
            } => {
                write!(
                    f,
                    "the maximal size {max_size_bytes} is less than the size {size_bytes}"
                )
            }
            Self::Segments { found } => {
                write!(
                    f,
                    "{found} segments are too few: a volume has room for at least {SEGMENTS_MIN}"
                )
            }
            Self::DataBlocks { found, max } => write!(f, "{found} data blocks are not between 1 and the maximum {max}"),
            Self::Overflow => write!(f, "the volume would end behind byte {END_MAX}, the largest file offset"),
        }
    }
}

impl std::error::Error for LayoutError {}
#[cfg(test)]
mod tests;
