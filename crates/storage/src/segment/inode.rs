//! The inode: what one slot of the table says of a segment, its owner, and the operation under way on it.
//!
//! | file | what it knows |
//! |---|---|
//! | `inode.rs` | the states, and the fields once they are decoded |
//! | `inode/raw.rs` | the 1008 bytes |
//! | `inode/validate.rs` | which values no operation writes |
//! | `inode/grant.rs` | rights of those who are not the owner |
//!
//! ```text
//!              create                        delete
//!   Free ---------------> Live --------------------------> Tombstone --- create ---> Live
//!    ^                     |  ^                              ^   |
//!    |       move, defrag  v  | all copied     rename: the --+   |
//!    |                    Moving               old name          |
//!    +-----------------------------------------------------------+
//!          where no probe needs it (super::tombstones)
//! ```
//!
//! A slot that is given up becomes a tombstone, which may be used again but, unlike a free slot, does not end a probe
//! ([`super::probe`]); its generation is raised. Where no key has gone past its bucket it becomes free at once, all zeroes, and
//! its generations begin again.
//!
//! [`Inode::decode`] refuses what no operation writes: a size above the reserve, a run outside the data area, a name that
//! could not have been created. It judges one inode; that two live ones do not overlap is for the volume to check, by their
//! [`AllocSeq`]. Where an inode cannot be decoded the other slots still are. The image around it has a right checksum, so
//! it was meant, by a newer or a broken program, and falling back to an older image would silently undo other changes.

use super::name::{Key, SegmentName};
use crate::identity::Ownership;

mod grant;
mod raw;
mod validate;

pub use grant::{Grant, Rights, Subject};
pub use validate::InodeError;

/// Bytes of an inode.
pub const INODE_BYTES: usize = 1008;
/// Grants that an inode has room for.
pub const GRANTS: usize = 8;
/// The permission bits that a mode may have.
pub const MODE_MASK: u32 = 0o7777;

/// What a slot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InodeState {
    /// Never used. Create moves it to `Live`.
    #[default]
    Free,
    /// A segment in service. A move makes it `Moving`; a delete, and a rename in its old slot, `Tombstone` or `Free`.
    Live,
    /// Used once, empty now, and passed by probes. Create moves it to `Live`.
    Tombstone,
    /// A segment that is being copied to another run. When all is copied it is `Live` there.
    Moving,
    /// A segment that lost against another one that claims the same blocks. Only `check` touches it.
    Quarantined,
    /// The quota of an owner; no segment.
    Quota,
}

impl InodeState {
    /// Whether a create may use the slot.
    pub fn is_reusable(self) -> bool {
        matches!(self, Self::Free | Self::Tombstone)
    }

    /// Whether the inode's run belongs to a segment and is not free: `Quarantined` is left out, its run is another's.
    pub fn holds_blocks(self) -> bool {
        matches!(self, Self::Live | Self::Moving)
    }

    /// Whether the inode is a segment, of whatever fate.
    pub fn is_segment(self) -> bool {
        matches!(self, Self::Live | Self::Moving | Self::Quarantined)
    }
}

/// When a run was allocated: of two inodes that claim one block, the higher one has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocSeq {
    /// The epoch of the volume.
    pub epoch: u64,
    /// How many allocations came before in that epoch.
    pub counter: u64,
}

/// The inode that a renamed one replaces: recovery makes it a tombstone if it still has this generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RenameFrom {
    /// Its bucket.
    pub bucket: u64,
    /// Its slot in the bucket.
    pub slot: u32,
    /// The generation of the slot; never 0.
    pub generation: u64,
}

/// The run that a segment is being copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoveTo {
    /// Its first block.
    pub start: u64,
    /// Its length, the future reserve; never 0.
    pub blocks: u64,
    /// Blocks copied so far: requests below go to the new run, those at or above to the old one.
    pub done: u64,
}

/// One inode, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// What the slot holds.
    pub state: InodeState,
    /// The segment's name; none in a free slot and in a quota record.
    pub name: Option<SegmentName>,
    /// The owner's uid.
    pub owner_uid: u32,
    /// The owner's gid.
    pub owner_gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Generation of the slot; 0 only if free.
    pub generation: u64,
    /// Identity of the segment; a rename keeps it.
    pub uuid: [u8; 16],
    /// First data block.
    pub start_block: u64,
    /// Size in blocks.
    pub blocks: u64,
    /// Length of the run in blocks, at least the size.
    pub reserve_blocks: u64,
    /// So many blocks from the start are known to be zeroed or written.
    pub zeroed_to: u64,
    /// When the run was allocated.
    pub alloc_seq: AllocSeq,
    /// When the segment was created, nanoseconds since 1970.
    pub created_ns: u64,
    /// The rename under way.
    pub rename_from: Option<RenameFrom>,
    /// The move under way; there is one exactly while `Moving`, and possibly after it was quarantined.
    pub move_to: Option<MoveTo>,
    /// The operation that wrote this last.
    pub operation_id: [u8; 16],
    /// Rights of others.
    pub grants: [Option<Grant>; GRANTS],
    /// Quota record: blocks its owner may hold.
    pub quota_blocks: u64,
    /// Quota record: segments its owner may hold.
    pub quota_segments: u64,
}

impl Inode {
    /// The inode of a slot that was never used.
    pub fn free() -> Self {
        Self::default()
    }

    /// What decides on who may open the segment.
    pub fn ownership(&self) -> Ownership {
        Ownership {
            owner_uid: self.owner_uid,
            owner_gid: self.owner_gid,
            mode: self.mode,
        }
    }

    /// What this slot becomes when its segment is gone: the name and the id of the operation stay for a repeat to be
    /// recognised, the generation is raised, the blocks are nobody's.
    pub fn tombstone(&self, operation_id: [u8; 16]) -> Self {
        Self {
            state: InodeState::Tombstone,
            name: self.name.clone(),
            owner_uid: self.owner_uid,
            owner_gid: self.owner_gid,
            generation: self.next_generation(),
            uuid: self.uuid,
            operation_id,
            ..Self::default()
        }
    }

    /// The generation that the next create or delete in this slot gives it. Decoded inodes are below the last one.
    pub fn next_generation(&self) -> u64 {
        self.generation.saturating_add(1)
    }

    /// What this inode is found by; nothing if it is free or a tombstone.
    pub fn key(&self) -> Option<Key> {
        (!self.state.is_reusable()).then(|| Key {
            owner_uid: self.owner_uid,
            name: self.name.clone(),
        })
    }

    /// Whether a look-up for `key` ends at this inode.
    pub fn answers(&self, key: &Key) -> bool {
        !self.state.is_reusable() && self.owner_uid == key.owner_uid && self.name == key.name
    }

    /// One block behind the run.
    pub fn end_block(&self) -> u64 {
        self.start_block.saturating_add(self.reserve_blocks)
    }
}

#[cfg(test)]
pub(super) mod tests;
