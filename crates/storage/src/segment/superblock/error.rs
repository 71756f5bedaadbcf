//! Why a page, or the four of them, is no superblock.

use std::fmt;

use baio_engine::Errno;

use crate::segment::layout::{LayoutError, SUPERBLOCK_COPIES};
use crate::segment::page::PAGE_BYTES;

/// Why a page, or the four of them, is no superblock that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// It could not be read: nobody knows what is there.
    Unread {
        /// What the device said.
        errno: Errno,
    },
    /// Not a whole page: the device ends before.
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
    pub(super) fn tells(&self) -> u8 {
        match self {
            Self::Unread { .. } => 0,
            Self::Short { .. } => 1,
            Self::NotVolume => 2,
            Self::Checksum { .. } => 3,
            Self::Misplaced { .. } => 4,
            Self::Geometry { .. } => 5,
            Self::Version { .. } => 6,
            Self::Features { .. } => 7,
            Self::NoPair { .. } | Self::Conflict { .. } | Self::Truncated { .. } | Self::Exhausted => 8,
        }
    }
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread { errno } => write!(f, "it could not be read ({errno})"),
            Self::Short { bytes } => write!(f, "a superblock has {PAGE_BYTES} bytes, here are {bytes}"),
            Self::NotVolume => write!(f, "not a baio volume: no superblock is stored here"),
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
