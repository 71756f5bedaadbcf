//! What no operation writes, and why it is refused.

use std::fmt;

use super::{Inode, InodeState, MODE_MASK, RenameFrom};
use crate::segment::layout::{GENERATION_MAX, Geometry, SLOTS_PER_BUCKET};
use crate::segment::name::NameError;

impl Inode {
    /// Refuses what no operation writes; a writer may ask before it encodes.
    pub fn validate(&self, geometry: &Geometry) -> Result<(), InodeError> {
        self.validate_identity()?;
        self.validate_run(geometry)?;
        self.validate_rename(geometry)?;
        self.validate_move(geometry)
    }

    fn validate_identity(&self) -> Result<(), InodeError> {
        let free = self.state == InodeState::Free;
        if free && *self != Self::default() {
            return Err(InodeError::FreeNotEmpty);
        }
        if !free && (self.generation == 0 || self.generation > GENERATION_MAX) {
            return Err(InodeError::Generation { found: self.generation });
        }
        if self.mode & !MODE_MASK != 0 {
            return Err(InodeError::Mode { found: self.mode });
        }
        match (self.state, &self.name) {
            (InodeState::Quota, Some(_)) => Err(InodeError::QuotaWithName),
            (state, None) if state.is_segment() => Err(InodeError::Name(NameError::Empty)),
            _ => Ok(()),
        }
    }

    fn validate_run(&self, geometry: &Geometry) -> Result<(), InodeError> {
        let (start, blocks, reserve) = (self.start_block, self.blocks, self.reserve_blocks);
        if !self.state.is_segment() {
            return match blocks | reserve {
                0 => Ok(()),
                _ => Err(InodeError::BlocksWithoutSegment { blocks, reserve }),
            };
        }
        if blocks > reserve {
            return Err(InodeError::SizeAboveReserve { blocks, reserve });
        }
        if self.zeroed_to > reserve {
            return Err(InodeError::ZeroedAboveReserve {
                zeroed_to: self.zeroed_to,
                reserve,
            });
        }
        check_run(start, reserve, geometry)
    }

    fn validate_rename(&self, geometry: &Geometry) -> Result<(), InodeError> {
        let Some(RenameFrom {
            bucket,
            slot,
            generation,
        }) = self.rename_from
        else {
            return Ok(());
        };
        if bucket < geometry.buckets() && slot < SLOTS_PER_BUCKET as u32 && generation != 0 {
            Ok(())
        } else {
            Err(InodeError::RenameFrom { bucket, slot })
        }
    }

    fn validate_move(&self, geometry: &Geometry) -> Result<(), InodeError> {
        let to = match (self.state, self.move_to) {
            (InodeState::Moving, None) => return Err(InodeError::MovingNowhere),
            (_, None) => return Ok(()),
            (InodeState::Moving | InodeState::Quarantined, Some(to)) => to,
            (state, Some(_)) => return Err(InodeError::MoveInState { state }),
        };
        // A target of no blocks would be read as none, also where there are no blocks to be moved.
        if to.blocks == 0 || to.blocks < self.blocks || to.done > self.blocks {
            return Err(InodeError::MoveTooShort {
                blocks: self.blocks,
                target: to.blocks,
                done: to.done,
            });
        }
        check_run(to.start, to.blocks, geometry)?;
        // Neither end can overflow: both runs were found to lie in the data area.
        if to.start < self.end_block() && self.start_block < to.start.saturating_add(to.blocks) {
            return Err(InodeError::MoveOntoItself {
                source: self.start_block,
                target: to.start,
            });
        }
        Ok(())
    }
}

/// Refuses a run that leaves the data area.
fn check_run(start: u64, blocks: u64, geometry: &Geometry) -> Result<(), InodeError> {
    match start.checked_add(blocks) {
        Some(end) if end <= geometry.data_blocks => Ok(()),
        _ => Err(InodeError::OutsideData {
            start,
            blocks,
            data_blocks: geometry.data_blocks,
        }),
    }
}

/// Why 1008 bytes are no inode of this volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeError {
    /// A state that this program does not know.
    State {
        /// Its number.
        found: u32,
    },
    /// A name that cannot have been created, or none where one belongs.
    Name(NameError),
    /// Bytes behind the end of the name.
    NamePadding,
    /// A quota record with a name.
    QuotaWithName,
    /// A free slot that is not all zero.
    FreeNotEmpty,
    /// A generation of 0 in a used slot, or one that no slot comes to.
    Generation {
        /// What it is.
        found: u64,
    },
    /// More than permission bits.
    Mode {
        /// What it is.
        found: u32,
    },
    /// Blocks in a slot that holds no segment.
    BlocksWithoutSegment {
        /// Its size.
        blocks: u64,
        /// Its reserve.
        reserve: u64,
    },
    /// A size above the reserve.
    SizeAboveReserve {
        /// The size.
        blocks: u64,
        /// The reserve.
        reserve: u64,
    },
    /// More blocks zeroed than there are.
    ZeroedAboveReserve {
        /// So many.
        zeroed_to: u64,
        /// The reserve.
        reserve: u64,
    },
    /// A run that leaves the data area.
    OutsideData {
        /// Its first block.
        start: u64,
        /// Its length.
        blocks: u64,
        /// Blocks of the volume.
        data_blocks: u64,
    },
    /// A rename from a slot that does not exist.
    RenameFrom {
        /// The bucket.
        bucket: u64,
        /// The slot.
        slot: u32,
    },
    /// Moving, but no target.
    MovingNowhere,
    /// A target, but not moving.
    MoveInState {
        /// The state.
        state: InodeState,
    },
    /// A target that does not hold the segment, or more copied than there is.
    MoveTooShort {
        /// The segment's size.
        blocks: u64,
        /// The target's length.
        target: u64,
        /// Blocks copied.
        done: u64,
    },
    /// Source and target overlap.
    MoveOntoItself {
        /// First block of the source.
        source: u64,
        /// First block of the target.
        target: u64,
    },
    /// A grant of an unknown kind or with unknown rights.
    Grant {
        /// Which of the eight.
        at: usize,
    },
}

impl fmt::Display for InodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { found } => write!(f, "unknown inode state {found}"),
            Self::Name(error) => write!(f, "impossible name: {error}"),
            Self::NamePadding => write!(f, "bytes behind the end of the name"),
            Self::QuotaWithName => write!(f, "a quota record with a name"),
            Self::FreeNotEmpty => write!(f, "a free slot that is not empty"),
            Self::Generation { found } => write!(f, "impossible slot generation {found}"),
            Self::Mode { found } => write!(f, "mode {found:#o} has more than permission bits"),
            Self::BlocksWithoutSegment { blocks, reserve } => {
                write!(f, "size {blocks} and reserve {reserve} in a slot that holds no segment")
            }
            Self::SizeAboveReserve { blocks, reserve } => write!(f, "size {blocks} is above the reserve {reserve}"),
            Self::ZeroedAboveReserve { zeroed_to, reserve } => {
                write!(f, "zeroed to block {zeroed_to} of a reserve of {reserve}")
            }
            Self::OutsideData {
                start,
                blocks,
                data_blocks,
            } => {
                write!(
                    f,
                    "{blocks} blocks from block {start} leave the data area of {data_blocks} blocks"
                )
            }
            Self::RenameFrom { bucket, slot } => {
                write!(f, "renamed from slot {slot} of bucket {bucket}: there is none")
            }
            Self::MovingNowhere => write!(f, "moving, but without a target"),
            Self::MoveInState { state } => write!(f, "a move under way in state {state:?}"),
            Self::MoveTooShort { blocks, target, done } => {
                write!(f, "{done} of {blocks} blocks moved into a run of {target}")
            }
            Self::MoveOntoItself { source, target } => {
                write!(f, "moving from block {source} onto itself at block {target}")
            }
            Self::Grant { at } => write!(f, "grant {at} is of an unknown kind or has unknown rights"),
        }
    }
}

impl std::error::Error for InodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Name(error) => Some(error),
            _ => None,
        }
    }
}
