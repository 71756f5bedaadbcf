//! Why a page is no image, and why a bucket cannot be read or written.

use std::fmt;

use baio_engine::Errno;

use crate::segment::layout::{Parity, SLOTS_PER_BUCKET};

/// Why a page is no image of its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The page could not be read, or not whole: nobody knows what it is.
    Unread {
        /// What the device said.
        errno: Errno,
    },
    /// No magic.
    Magic,
    /// Torn or rotten.
    Checksum {
        /// What the page says.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// An image of another volume, left from before this one was formatted.
    ForeignVolume,
    /// The image of another bucket: a write went astray.
    Misplaced {
        /// The bucket that it belongs to.
        found: u64,
    },
    /// A generation that does not live in this place.
    Generation {
        /// The generation.
        found: u64,
    },
    /// Zeroes where an image must have been written.
    Erased,
    /// Of an epoch that the volume has not reached: it would win over every later update.
    Epoch {
        /// The image's epoch.
        found: u64,
        /// The volume's.
        newest: u64,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread { errno } => write!(f, "it could not be read ({errno})"),
            Self::Magic => write!(f, "no inode image is stored here"),
            Self::Checksum { found, computed } => write!(f, "checksum {found:08x}, the bytes give {computed:08x}"),
            Self::ForeignVolume => write!(f, "the image of another volume"),
            Self::Misplaced { found } => write!(f, "the image of bucket {found}"),
            Self::Generation { found } => write!(f, "generation {found} does not belong here"),
            Self::Erased => write!(f, "zeroes where an image must have been written"),
            Self::Epoch { found, newest } => write!(f, "epoch {found}, the volume is in epoch {newest}"),
        }
    }
}

impl std::error::Error for ImageError {}

/// Why a bucket cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketError {
    /// None of the images that could serve it is valid, in table and mirror.
    Lost {
        /// The bucket.
        bucket: u64,
    },
    /// A copy of an image cannot be read, and the other one cannot either or is damaged: what was not read may be the newest.
    Unread {
        /// The bucket.
        bucket: u64,
        /// Which of its images.
        parity: Parity,
        /// What the device said.
        errno: Errno,
    },
    /// An image is of an epoch that the volume has not reached, in both copies or in the only one that is left.
    TooNew {
        /// The bucket.
        bucket: u64,
        /// The image's epoch.
        found: u64,
        /// The volume's.
        newest: u64,
    },
    /// There are four slots.
    NoSuchSlot {
        /// The bucket.
        bucket: u64,
        /// The slot asked for.
        slot: usize,
    },
    /// The generation cannot be raised further.
    Exhausted {
        /// The bucket.
        bucket: u64,
    },
}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { bucket } => {
                write!(
                    f,
                    "bucket {bucket} has no valid image, neither in the inode table nor in its mirror"
                )
            }
            Self::Unread { bucket, parity, errno } => {
                write!(
                    f,
                    "the {parity} image of bucket {bucket}: one copy cannot be read ({errno}), and the other one cannot either or is damaged"
                )
            }
            Self::TooNew { bucket, found, newest } => {
                write!(
                    f,
                    "bucket {bucket} has an image of epoch {found}, and the volume is in epoch {newest}"
                )
            }
            Self::NoSuchSlot { bucket, slot } => {
                write!(
                    f,
                    "bucket {bucket} has {SLOTS_PER_BUCKET} slots, there is no slot {slot}"
                )
            }
            Self::Exhausted { bucket } => write!(f, "the generation of bucket {bucket} cannot be raised further"),
        }
    }
}

impl std::error::Error for BucketError {}
