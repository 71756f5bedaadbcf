//! The 1008 bytes of an inode.

use super::super::layout::Geometry;
use super::super::name::NameError;
use super::*;
use proptest::prelude::*;

pub(in super::super) const GEOMETRY: Geometry = Geometry {
    block_size: 4096,
    data_blocks: 1000,
    data_blocks_max: 2000,
    segments_max: 16,
};

/// A live segment that uses every field.
pub(in super::super) fn live(owner_uid: u32, name: &str) -> Inode {
    let mut grants = [None; GRANTS];
    grants[0] = Some(Grant {
        subject: Subject::User(7),
        rights: Rights::READ,
    });
    grants[7] = Some(Grant {
        subject: Subject::Group(8),
        rights: Rights::READ.union(Rights::WRITE),
    });
    Inode {
        state: InodeState::Live,
        name: Some(SegmentName::new(name).unwrap()),
        owner_uid,
        owner_gid: 100,
        mode: 0o640,
        generation: 3,
        uuid: [0xab; 16],
        start_block: 10,
        blocks: 20,
        reserve_blocks: 30,
        zeroed_to: 25,
        alloc_seq: AllocSeq { epoch: 2, counter: 9 },
        created_ns: 1_700_000_000_000_000_000,
        rename_from: Some(RenameFrom {
            bucket: 7,
            slot: 3,
            generation: 1,
        }),
        move_to: None,
        operation_id: [0xcd; 16],
        grants,
        quota_blocks: 0,
        quota_segments: 0,
    }
}

fn moving(start: u64, blocks: u64, done: u64) -> Inode {
    Inode {
        state: InodeState::Moving,
        move_to: Some(MoveTo { start, blocks, done }),
        ..live(1, "m")
    }
}

fn round_trip(inode: &Inode) {
    assert_eq!(Inode::decode(&inode.encode(), &GEOMETRY).as_ref(), Ok(inode));
}

fn refused(inode: Inode) -> InodeError {
    Inode::decode(&inode.encode(), &GEOMETRY).unwrap_err()
}

#[test]
fn every_state_survives() {
    round_trip(&Inode::free());
    round_trip(&live(1000, "log"));
    round_trip(&live(1000, &"é".repeat(127)));
    round_trip(&live(0, &"x".repeat(255)));
    round_trip(&moving(40, 60, 20));
    round_trip(&Inode {
        state: InodeState::Quarantined,
        ..live(5, "q")
    });
    round_trip(&live(5, "t").tombstone([1; 16]));
    round_trip(&Inode {
        state: InodeState::Quota,
        owner_uid: 5,
        generation: 1,
        quota_blocks: 100,
        quota_segments: u64::MAX,
        ..Inode::default()
    });
    assert_eq!(Inode::free().encode(), [0; INODE_BYTES]);
}

#[test]
fn a_tombstone_holds_nothing_and_answers_nothing() {
    let inode = live(5, "t");
    let key = inode.key().unwrap();
    assert!(inode.answers(&key) && !inode.answers(&Key::quota(5)));
    let tombstone = inode.tombstone([1; 16]);
    assert!(!tombstone.answers(&key) && tombstone.state.is_reusable());
    assert_eq!((tombstone.generation, tombstone.reserve_blocks), (4, 0));
}

#[test]
fn impossible_values_are_refused() {
    use InodeError as E;
    let ok = || live(1, "a");
    assert_eq!(
        refused(Inode { blocks: 31, ..ok() }),
        E::SizeAboveReserve {
            blocks: 31,
            reserve: 30
        }
    );
    assert!(matches!(
        refused(Inode { zeroed_to: 31, ..ok() }),
        E::ZeroedAboveReserve { .. }
    ));
    assert!(matches!(
        refused(Inode {
            start_block: 971,
            ..ok()
        }),
        E::OutsideData { .. }
    ));
    assert!(matches!(
        refused(Inode {
            start_block: u64::MAX,
            ..ok()
        }),
        E::OutsideData { .. }
    ));
    assert_eq!(refused(Inode { name: None, ..ok() }), E::Name(NameError::Empty));
    assert_eq!(refused(Inode { generation: 0, ..ok() }), E::Generation { found: 0 });
    assert_eq!(refused(Inode { mode: 0o10000, ..ok() }), E::Mode { found: 0o10000 });
    assert_eq!(
        refused(Inode {
            state: InodeState::Free,
            ..ok()
        }),
        E::FreeNotEmpty
    );
    assert!(matches!(
        refused(Inode {
            state: InodeState::Tombstone,
            ..ok()
        }),
        E::BlocksWithoutSegment { .. }
    ));
    assert_eq!(
        refused(Inode {
            state: InodeState::Quota,
            ..ok()
        }),
        E::QuotaWithName
    );
    assert_eq!(
        refused(Inode {
            state: InodeState::Moving,
            ..ok()
        }),
        E::MovingNowhere
    );
    assert_eq!(
        refused(Inode {
            state: InodeState::Live,
            ..moving(40, 60, 0)
        }),
        E::MoveInState {
            state: InodeState::Live
        }
    );
    assert!(matches!(refused(moving(39, 60, 0)), E::MoveOntoItself { .. }));
    assert!(matches!(refused(moving(40, 19, 0)), E::MoveTooShort { .. }));
    assert!(matches!(refused(moving(40, 60, 21)), E::MoveTooShort { .. }));
    assert!(matches!(refused(moving(u64::MAX, 60, 0)), E::OutsideData { .. }));
    // Of a segment without a block: written, it would be one that moves nowhere.
    let nothing = Inode {
        blocks: 0,
        ..moving(40, 0, 0)
    };
    assert!(matches!(nothing.validate(&GEOMETRY), Err(E::MoveTooShort { .. })));
    assert_eq!(refused(nothing), E::MovingNowhere);
    let nowhere = Some(RenameFrom {
        bucket: 8,
        slot: 0,
        generation: 1,
    });
    assert_eq!(
        refused(Inode {
            rename_from: nowhere,
            ..ok()
        }),
        E::RenameFrom { bucket: 8, slot: 0 }
    );
}

#[test]
fn bytes_that_no_encoder_writes_are_refused() {
    let forged = |at: usize, byte: u8| {
        let mut bytes = live(1, "ab").encode();
        bytes[at] = byte;
        Inode::decode(&bytes, &GEOMETRY).unwrap_err()
    };
    assert_eq!(forged(0, 7), InodeError::State { found: 7 });
    // Was once "deleting".
    assert_eq!(forged(0, 4), InodeError::State { found: 4 });
    assert_eq!(forged(5, b'/'), InodeError::Name(NameError::Slash { at: 0 }));
    assert_eq!(forged(6, 0xff), InodeError::Name(NameError::NotUtf8 { at: 1 }));
    assert_eq!(forged(8, 1), InodeError::NamePadding);
    assert_eq!(forged(418, 3), InodeError::Grant { at: 0 });
    assert_eq!(forged(416, 8), InodeError::Grant { at: 0 });
    let mut free = [0; INODE_BYTES];
    free[1007] = 1;
    assert_eq!(Inode::decode(&free, &GEOMETRY), Err(InodeError::FreeNotEmpty));
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(
        state in 0u32..8, at in 4usize..496, noise in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut bytes = moving(40, 60, 20).encode();
        bytes[0] = state as u8;
        bytes[at..].iter_mut().zip(&noise).for_each(|(byte, noise)| *byte = *noise);
        if let Ok(inode) = Inode::decode(&bytes, &GEOMETRY) {
            prop_assert!(inode.validate(&GEOMETRY).is_ok());
            prop_assert!(!inode.state.is_segment() || inode.end_block() <= 1000);
            prop_assert_eq!(Inode::decode(&inode.encode(), &GEOMETRY), Ok(inode));
        }
    }
}
