//! The inode: 1008 bytes that describe one segment, its owner, and the operation under way on it.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | state: 0 free, 1 live, 2 tombstone, 3 moving, 4 deleting, 5 quarantined, 6 quota record |
//! | 4 | 1 | length of the name |
//! | 5 | 255 | name, zero-padded |
//! | 260 | 4 | owner's uid |
//! | 264 | 4 | owner's gid |
//! | 268 | 4 | mode: the permission bits of chmod, 12 of them |
//! | 272 | 8 | generation of this slot: raised at every create and delete |
//! | 280 | 16 | uuid of the segment |
//! | 296 | 8 | first data block |
//! | 304 | 8 | blocks: the size |
//! | 312 | 8 | reserved blocks: the length of the run, at least the size |
//! | 320 | 8 | zeroed to: so many blocks from the start are known to be zeroed or written |
//! | 328 | 8 | allocation sequence: epoch |
//! | 336 | 8 | allocation sequence: counter in the epoch |
//! | 344 | 8 | created, nanoseconds since 1970 |
//! | 352 | 8 | renamed from: bucket |
//! | 360 | 4 | renamed from: slot |
//! | 364 | 4 | reserved |
//! | 368 | 8 | renamed from: generation; 0 means that no rename is under way |
//! | 376 | 8 | moving to: first data block |
//! | 384 | 8 | moving to: reserved blocks; 0 means that no move is under way |
//! | 392 | 8 | moving to: blocks that are copied |
//! | 400 | 16 | id of the operation that wrote this last, by which a repeat is recognised |
//! | 416 | 64 | eight grants: (kind << 16 \| rights), uid or gid; kind 0 none, 1 user, 2 group |
//! | 480 | 8 | quota record: blocks its owner may hold |
//! | 488 | 8 | quota record: segments its owner may hold |
//! | 496 | 512 | reserved |
//!
//! ```text
//!              create                    delete                  blocks returned
//!   Free ---------------> Live ------------------> Deleting -----------------> Tombstone --- create ---> Live
//!                          |  ^                                                    ^
//!            move, defrag  v  | all copied                 rename: the old name ---+
//!                         Moving
//! ```
//!
//! Free means never used: all 1008 bytes are zero. A slot that was used once becomes a tombstone, which may be used again
//! but, unlike a free slot, does not end a probe ([`super::probe`]); it keeps its generation, so that a handle to what was
//! there before is recognised as stale.
//!
//! [`Inode::decode`] refuses what no operation writes: a size above the reserve, a run outside the data area, a name that
//! could not have been created. It judges one inode; that two live ones do not overlap is for the volume to check, by their
//! [`AllocSeq`]. Where an inode cannot be decoded the other slots still are; an open refuses the volume, as its blocks are
//! unknown. The image around it has a right checksum, so it was meant, by a newer or a broken program, and falling back to
//! an older image would silently undo other changes.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Geometry, SLOTS_PER_BUCKET};
use super::name::{Key, NameError, SegmentName};

/// Bytes of an inode.
pub const INODE_BYTES: usize = 1008;
/// Grants that an inode has room for.
pub const GRANTS: usize = 8;
/// The permission bits that a mode may have.
pub const MODE_MASK: u32 = 0o7777;

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawGrant {
    kind_and_rights: U32,
    id: U32,
}

/// An inode as its bytes lie on the device.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInode {
    state: U32,
    name_len: u8,
    name: [u8; 255],
    owner_uid: U32,
    owner_gid: U32,
    mode: U32,
    generation: U64,
    uuid: [u8; 16],
    start_block: U64,
    blocks: U64,
    reserve_blocks: U64,
    zeroed_to: U64,
    alloc_epoch: U64,
    alloc_counter: U64,
    created_ns: U64,
    rename_bucket: U64,
    rename_slot: U32,
    reserved_0: U32,
    rename_generation: U64,
    move_start: U64,
    move_blocks: U64,
    move_done: U64,
    operation_id: [u8; 16],
    grants: [RawGrant; GRANTS],
    quota_blocks: U64,
    quota_segments: U64,
    reserved_1: [u8; 512],
}

const _: () = assert!(size_of::<RawInode>() == INODE_BYTES);
const _: () = assert!(std::mem::offset_of!(RawInode, name) == 5);
const _: () = assert!(std::mem::offset_of!(RawInode, owner_uid) == 260);
const _: () = assert!(std::mem::offset_of!(RawInode, generation) == 272);
const _: () = assert!(std::mem::offset_of!(RawInode, start_block) == 296);
const _: () = assert!(std::mem::offset_of!(RawInode, alloc_epoch) == 328);
const _: () = assert!(std::mem::offset_of!(RawInode, rename_bucket) == 352);
const _: () = assert!(std::mem::offset_of!(RawInode, move_start) == 376);
const _: () = assert!(std::mem::offset_of!(RawInode, operation_id) == 400);
const _: () = assert!(std::mem::offset_of!(RawInode, grants) == 416);
const _: () = assert!(std::mem::offset_of!(RawInode, quota_blocks) == 480);
const _: () = assert!(std::mem::offset_of!(RawInode, reserved_1) == 496);

/// What a slot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InodeState {
    /// Never used. Create moves it to `Live`.
    #[default]
    Free,
    /// A segment in service. A move makes it `Moving`, a delete `Deleting`, a rename leaves a `Tombstone` in its old slot.
    Live,
    /// Used once, empty now. Create moves it to `Live`.
    Tombstone,
    /// A segment that is being copied to another run. When all is copied it is `Live` there.
    Moving,
    /// A segment that no new request reaches; its blocks are not free yet. Then it is a `Tombstone`.
    Deleting,
    /// A segment that lost against another one that claims the same blocks. Only `check` touches it.
    Quarantined,
    /// The quota of an owner; no segment.
    Quota,
}

impl InodeState {
    fn code(self) -> u32 {
        match self {
            Self::Free => 0,
            Self::Live => 1,
            Self::Tombstone => 2,
            Self::Moving => 3,
            Self::Deleting => 4,
            Self::Quarantined => 5,
            Self::Quota => 6,
        }
    }

    fn from_code(code: u32) -> Result<Self, InodeError> {
        Ok(match code {
            0 => Self::Free,
            1 => Self::Live,
            2 => Self::Tombstone,
            3 => Self::Moving,
            4 => Self::Deleting,
            5 => Self::Quarantined,
            6 => Self::Quota,
            found => return Err(InodeError::State { found }),
        })
    }

    /// Whether a create may use the slot.
    pub fn is_reusable(self) -> bool {
        matches!(self, Self::Free | Self::Tombstone)
    }

    /// Whether the inode's run belongs to a segment and is not free: `Quarantined` is left out, its run is another's.
    pub fn holds_blocks(self) -> bool {
        matches!(self, Self::Live | Self::Moving | Self::Deleting)
    }

    /// Whether the inode is a segment, of whatever fate.
    pub fn is_segment(self) -> bool {
        matches!(self, Self::Live | Self::Moving | Self::Deleting | Self::Quarantined)
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

/// Who is granted something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The user with this uid.
    User(u32),
    /// The members of the group with this gid.
    Group(u32),
}

/// A set of rights on a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u16);

impl Rights {
    /// May read.
    pub const READ: Self = Self(1);
    /// May write.
    pub const WRITE: Self = Self(2);
    /// May resize, rename, delete and grant.
    pub const MANAGE: Self = Self(4);
    /// All of them.
    pub const ALL: Self = Self(7);

    /// The set with these bits; `None` if one is unknown.
    pub fn from_bits(bits: u16) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }

    /// The bits of the set.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Both sets together.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Rights on a segment for somebody who does not own it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// For whom.
    pub subject: Subject,
    /// Which.
    pub rights: Rights,
}

impl Grant {
    fn encode(grant: Option<Self>) -> RawGrant {
        let Some(Self { subject, rights }) = grant else {
            return RawGrant::default();
        };
        let (kind, id) = match subject {
            Subject::User(uid) => (1, uid),
            Subject::Group(gid) => (2, gid),
        };
        RawGrant {
            kind_and_rights: (kind << 16 | u32::from(rights.bits())).into(),
            id: id.into(),
        }
    }

    fn decode(at: usize, raw: &RawGrant) -> Result<Option<Self>, InodeError> {
        let (word, id) = (raw.kind_and_rights.get(), raw.id.get());
        let subject = match word >> 16 {
            0 if word == 0 && id == 0 => return Ok(None),
            1 => Subject::User(id),
            2 => Subject::Group(id),
            _ => return Err(InodeError::Grant { at }),
        };
        let rights = Rights::from_bits((word & 0xffff) as u16).ok_or(InodeError::Grant { at })?;
        Ok(Some(Self { subject, rights }))
    }
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
    /// The move under way; there is one exactly while `Moving`, and possibly after it was deleted or quarantined.
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

    /// Decodes 1008 bytes of a volume with this geometry.
    pub fn decode(bytes: &[u8; INODE_BYTES], geometry: &Geometry) -> Result<Self, InodeError> {
        // An array of this size is a RawInode, as asserted above; zerocopy proves it at compile time.
        let raw: &RawInode = zerocopy::transmute_ref!(bytes);
        let inode = raw.decode()?;
        if inode.state == InodeState::Free && bytes.iter().any(|byte| *byte != 0) {
            return Err(InodeError::FreeNotEmpty);
        }
        inode.validate(geometry)?;
        Ok(inode)
    }

    /// The 1008 bytes. [`Inode::validate`] says whether they can be decoded again.
    pub fn encode(&self) -> [u8; INODE_BYTES] {
        let mut raw = RawInode::new_zeroed();
        self.fill(&mut raw);
        zerocopy::transmute!(raw)
    }

    fn fill(&self, raw: &mut RawInode) {
        let name = self.name.as_ref().map_or(&[][..], SegmentName::as_bytes);
        raw.state = self.state.code().into();
        // Both lengths are at most 255: a SegmentName has no more bytes.
        raw.name_len = name.len() as u8;
        raw.name
            .iter_mut()
            .zip(name)
            .for_each(|(target, source)| *target = *source);
        raw.owner_uid = self.owner_uid.into();
        raw.owner_gid = self.owner_gid.into();
        raw.mode = self.mode.into();
        raw.generation = self.generation.into();
        raw.uuid = self.uuid;
        raw.start_block = self.start_block.into();
        raw.blocks = self.blocks.into();
        raw.reserve_blocks = self.reserve_blocks.into();
        raw.zeroed_to = self.zeroed_to.into();
        raw.alloc_epoch = self.alloc_seq.epoch.into();
        raw.alloc_counter = self.alloc_seq.counter.into();
        raw.created_ns = self.created_ns.into();
        if let Some(from) = self.rename_from {
            raw.rename_bucket = from.bucket.into();
            raw.rename_slot = from.slot.into();
            raw.rename_generation = from.generation.into();
        }
        if let Some(to) = self.move_to {
            raw.move_start = to.start.into();
            raw.move_blocks = to.blocks.into();
            raw.move_done = to.done.into();
        }
        raw.operation_id = self.operation_id;
        raw.grants = self.grants.map(Grant::encode);
        raw.quota_blocks = self.quota_blocks.into();
        raw.quota_segments = self.quota_segments.into();
    }

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
        if !free && (self.generation == 0 || self.generation == u64::MAX) {
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
            (InodeState::Moving | InodeState::Deleting | InodeState::Quarantined, Some(to)) => to,
            (state, Some(_)) => return Err(InodeError::MoveInState { state }),
        };
        if to.blocks < self.blocks || to.done > self.blocks {
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

impl RawInode {
    fn decode(&self) -> Result<Inode, InodeError> {
        Ok(Inode {
            state: InodeState::from_code(self.state.get())?,
            name: self.name()?,
            owner_uid: self.owner_uid.get(),
            owner_gid: self.owner_gid.get(),
            mode: self.mode.get(),
            generation: self.generation.get(),
            uuid: self.uuid,
            start_block: self.start_block.get(),
            blocks: self.blocks.get(),
            reserve_blocks: self.reserve_blocks.get(),
            zeroed_to: self.zeroed_to.get(),
            alloc_seq: AllocSeq {
                epoch: self.alloc_epoch.get(),
                counter: self.alloc_counter.get(),
            },
            created_ns: self.created_ns.get(),
            rename_from: self.rename_from(),
            move_to: self.move_to(),
            operation_id: self.operation_id,
            grants: self.grants()?,
            quota_blocks: self.quota_blocks.get(),
            quota_segments: self.quota_segments.get(),
        })
    }

    fn name(&self) -> Result<Option<SegmentName>, InodeError> {
        let (name, padding) = self.name.split_at(usize::from(self.name_len));
        if padding.iter().any(|byte| *byte != 0) {
            return Err(InodeError::NamePadding);
        }
        match name {
            [] => Ok(None),
            name => SegmentName::from_bytes(name).map(Some).map_err(InodeError::Name),
        }
    }

    fn rename_from(&self) -> Option<RenameFrom> {
        let from = RenameFrom {
            bucket: self.rename_bucket.get(),
            slot: self.rename_slot.get(),
            generation: self.rename_generation.get(),
        };
        (from.generation != 0).then_some(from)
    }

    fn move_to(&self) -> Option<MoveTo> {
        let to = MoveTo {
            start: self.move_start.get(),
            blocks: self.move_blocks.get(),
            done: self.move_done.get(),
        };
        (to.blocks != 0).then_some(to)
    }

    fn grants(&self) -> Result<[Option<Grant>; GRANTS], InodeError> {
        let mut grants = [None; GRANTS];
        for (at, (grant, raw)) in grants.iter_mut().zip(&self.grants).enumerate() {
            *grant = Grant::decode(at, raw)?;
        }
        Ok(grants)
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
    /// A generation of 0 in a used slot, or the last one.
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
#[cfg(test)]
pub(super) mod tests;
