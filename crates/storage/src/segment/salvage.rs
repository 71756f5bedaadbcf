//! What can be saved of an inode that cannot be decoded: which blocks it may hold, whose it may be, and by which name.
//!
//! The image around it has a right checksum, so its bytes were meant, by a newer or a broken program. As long as it is
//! there, the blocks that it seems to claim are not given away. A field is read by itself, and a run is believed if it lies in
//! the data area.

use super::inode::INODE_BYTES;
use super::layout::Geometry;
use super::name::SegmentName;

// Places of fields; the table stands at the top of `inode.rs`.
const NAME_LENGTH_AT: usize = 4;
const NAME_AT: usize = 5;
const OWNER_UID_AT: usize = 260;
const UUID_AT: usize = 280;
const START_AT: usize = 296;
const RESERVE_AT: usize = 312;
const MOVE_START_AT: usize = 376;
const MOVE_BLOCKS_AT: usize = 384;

/// What the bytes of an inode say, each field by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvage {
    /// The run, if it lies in the data area: first block and length.
    pub run: Option<(u64, u64)>,
    /// The run that it may have been moving to.
    pub target: Option<(u64, u64)>,
    /// The owner's uid, whatever it is worth.
    pub owner_uid: u32,
    /// The segment's uuid.
    pub uuid: [u8; 16],
    /// The name, if it is one.
    pub name: Option<SegmentName>,
}

impl Salvage {
    /// Reads what is legible.
    pub fn of(bytes: &[u8; INODE_BYTES], geometry: &Geometry) -> Salvage {
        let run = |start_at, blocks_at| {
            let (start, blocks) = (word(bytes, start_at), word(bytes, blocks_at));
            let end = start.checked_add(blocks)?;
            (blocks > 0 && end <= geometry.data_blocks).then_some((start, blocks))
        };
        let length = usize::from(bytes[NAME_LENGTH_AT]);
        let mut uid = [0; 4];
        uid.copy_from_slice(&bytes[OWNER_UID_AT..OWNER_UID_AT + 4]);
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[UUID_AT..UUID_AT + 16]);
        Salvage {
            uuid,
            run: run(START_AT, RESERVE_AT),
            target: run(MOVE_START_AT, MOVE_BLOCKS_AT),
            owner_uid: u32::from_le_bytes(uid),
            name: SegmentName::from_bytes(&bytes[NAME_AT..NAME_AT + length]).ok(),
        }
    }

    /// The runs that may hold somebody's bytes.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let target = self.target.filter(|_| !crate::seeded_bug("a-target-is-not-saved"));
        self.run.into_iter().chain(target)
    }
}

fn word(bytes: &[u8; INODE_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::super::inode::tests::{GEOMETRY, live};
    use super::super::inode::{Inode, MoveTo};
    use super::*;

    #[test]
    fn the_fields_are_where_the_inode_has_them() {
        let inode = Inode {
            move_to: Some(MoveTo {
                start: 500,
                blocks: 40,
                done: 3,
            }),
            ..live(7, "here")
        };
        let mut bytes = inode.encode();
        bytes[0] = 99;
        assert!(Inode::decode(&bytes, &GEOMETRY).is_err());
        let found = Salvage::of(&bytes, &GEOMETRY);
        assert_eq!(found.run, Some((inode.start_block, inode.reserve_blocks)));
        assert_eq!(found.target, Some((500, 40)));
        assert_eq!((found.owner_uid, found.name, found.uuid), (7, inode.name, inode.uuid));
        bytes[START_AT + 7] = 0xff;
        bytes[NAME_LENGTH_AT] = 0xff;
        let found = Salvage::of(&bytes, &GEOMETRY);
        assert_eq!((found.run, found.name), (None, None), "what cannot be is not believed");
    }
}
