//! The 1008 bytes of an inode.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | state: 0 free, 1 live, 2 tombstone, 3 moving, 5 quarantined, 6 quota record |
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

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::grant::RawGrant;
use super::{AllocSeq, GRANTS, Grant, INODE_BYTES, Inode, InodeError, InodeState, MoveTo, RenameFrom};
use crate::segment::layout::Geometry;
use crate::segment::name::SegmentName;

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

impl InodeState {
    fn code(self) -> u32 {
        match self {
            Self::Free => 0,
            Self::Live => 1,
            Self::Tombstone => 2,
            Self::Moving => 3,
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
            5 => Self::Quarantined,
            6 => Self::Quota,
            found => return Err(InodeError::State { found }),
        })
    }
}

impl Inode {
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
