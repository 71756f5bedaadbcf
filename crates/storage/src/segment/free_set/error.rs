//! Why blocks cannot be taken or given back.

use std::fmt;

/// The bitmap of so many blocks does not fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// Blocks of the volume.
    pub blocks: u64,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the bitmap of {} blocks does not fit into memory; larger blocks make it smaller",
            self.blocks
        )
    }
}

impl std::error::Error for NoMemory {}

/// A run that cannot be marked so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSetError {
    /// It leaves the volume.
    Outside {
        /// First block.
        start: u64,
        /// Length.
        blocks: u64,
        /// Blocks of the volume.
        volume: u64,
    },
    /// To be occupied, but a block is in use already.
    Overlap {
        /// First block.
        start: u64,
        /// Length.
        blocks: u64,
        /// The first block in use.
        at: u64,
    },
    /// To be released, but a block is free already.
    NotInUse {
        /// First block.
        start: u64,
        /// Length.
        blocks: u64,
        /// The first free block.
        at: u64,
    },
}

impl fmt::Display for FreeSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { start, blocks, volume } => {
                write!(
                    f,
                    "{blocks} blocks from block {start} leave the volume of {volume} blocks"
                )
            }
            Self::Overlap { start, blocks, at } => {
                write!(f, "of {blocks} blocks from block {start}, block {at} is in use already")
            }
            Self::NotInUse { start, blocks, at } => {
                write!(f, "of {blocks} blocks from block {start}, block {at} is free already")
            }
        }
    }
}

impl std::error::Error for FreeSetError {}
