//! Encoding, choosing and healing the superblock.

use super::*;
use crate::segment::layout::{LayoutError, SUPERBLOCK_STEP};
use crate::segment::page::PageRead;
use baio_engine::Errno;
use proptest::prelude::*;

fn sample() -> Superblock {
    let (_, layout) = Layout::plan(1 << 26, 1 << 30, 4096, Some(40)).unwrap();
    let fresh = Superblock::fresh(layout, *b"0123456789abcdef", [9; 16]);
    Superblock {
        alloc_hint: 3,
        ..fresh.next_epoch().unwrap()
    }
}

fn copies(superblock: &Superblock) -> [Page; 4] {
    std::array::from_fn(|copy| superblock.encode(copy as u8))
}

fn choose_pages(pages: &[Page; 4]) -> Result<Chosen, SuperblockError> {
    choose(std::array::from_fn(|copy| PageRead::Read(pages[copy].as_ref())))
}

/// Changes a field of a page and makes its checksum right again.
fn forge(page: &Page, at: usize, bytes: &[u8]) -> Page {
    let mut page = page.clone();
    page.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = page::checksum(page.bytes(), CHECKSUM_AT);
    page.bytes_mut()[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    page
}

/// A page of which only the first `cut` bytes are new.
fn torn(old: &Page, new: &Page, cut: usize) -> Page {
    let mut page = old.clone();
    page.bytes_mut()[..cut].copy_from_slice(&new.bytes()[..cut]);
    page
}

#[test]
fn round_trip_and_parent() {
    let superblock = sample();
    for copy in 0..4 {
        assert_eq!(
            Superblock::decode(superblock.encode(copy).as_ref(), copy),
            Ok(superblock.clone())
        );
    }
    let next = superblock.successor().unwrap();
    let RawSuperblock { checksum, .. } = RawSuperblock::view(superblock.encode(0).as_ref()).unwrap().clone();
    assert_eq!(
        (next.parent_checksum, next.sequence),
        (checksum.get(), superblock.sequence + 1)
    );
}

/// Computed by another program from `docs/inside/disk-format.md`: if this changes, the format did.
#[test]
fn the_bytes_are_those_of_the_document() {
    let superblock = Superblock {
        alloc_hint: 0,
        ..sample()
    };
    let page = superblock.encode(2);
    assert_eq!(
        &page.bytes()[CHECKSUM_AT..CHECKSUM_AT + 4],
        &0x28ce_3aa9_u32.to_le_bytes()
    );
}

#[test]
fn every_flipped_bit_is_rejected() {
    let page = sample().encode(1);
    for bit in 0..PAGE_BYTES * 8 {
        let mut flipped = page.clone();
        flipped.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(flipped.as_ref(), 1).is_err(), "bit {bit}");
    }
}

#[test]
fn each_damage_has_its_own_error() {
    use SuperblockError as E;
    let page = sample().encode(0);
    let decode = |page: &Page| Superblock::decode(page.as_ref(), 0).unwrap_err();
    assert_eq!(
        Superblock::decode(&page.bytes()[..512], 0),
        Err(E::Short { bytes: 512 })
    );
    assert_eq!(decode(&Page::zeroed()), E::NotVolume);
    let newer = VERSION + 1;
    assert_eq!(
        decode(&forge(&page, 8, &[newer as u8])),
        E::Version {
            found: newer,
            supported: VERSION
        }
    );
    assert_eq!(decode(&forge(&page, 40, &[4])), E::Features { unknown: 4 });
    assert_eq!(decode(&sample().encode(3)), E::Misplaced { found: 3, copy: 0 });
    assert!(matches!(
        decode(&forge(&page, 112, &[1])),
        E::Geometry { cause: Some(_), .. }
    ));
    assert_eq!(
        decode(&forge(&page, 192, &[1])),
        E::Geometry {
            what: "data_at",
            cause: None
        }
    );
    assert_eq!(
        decode(&forge(&page, 80, &[99])),
        E::Geometry {
            what: "healed_epoch",
            cause: None
        }
    );
    let huge = forge(&page, 120, &u64::MAX.to_le_bytes());
    assert_eq!(
        decode(&huge),
        E::Geometry {
            what: "geometry",
            cause: Some(LayoutError::Overflow)
        }
    );
}

#[test]
fn unknown_compatible_features_are_readable() {
    let page = forge(&forge(&sample().encode(0), 24, &[1]), 32, &[2]);
    let superblock = Superblock::decode(page.as_ref(), 0).unwrap();
    assert_eq!(superblock.unknown_ro_compat(), 2);
}

#[test]
fn a_sequence_with_one_copy_is_not_believed() {
    let old = sample();
    let mut pages = copies(&old);
    pages[0] = old.successor().unwrap().encode(0);
    let chosen = choose_pages(&pages).unwrap();
    assert_eq!((chosen.current, chosen.heal), (old, vec![0]));
}

#[test]
fn between_the_pairs_the_new_one_is_current() {
    let (old, new) = (sample(), sample().successor().unwrap());
    let pages = [new.encode(0), new.encode(1), old.encode(2), old.encode(3)];
    let chosen = choose_pages(&pages).unwrap();
    assert_eq!((chosen.current, chosen.heal), (new, vec![2, 3]));
}

#[test]
fn contradictions_and_losses_are_told_apart() {
    let (a, b) = (
        sample(),
        Superblock {
            alloc_hint: 4,
            ..sample()
        },
    );
    let pages = [a.encode(0), a.encode(1), b.encode(2), b.encode(3)];
    assert_eq!(
        choose_pages(&pages),
        Err(SuperblockError::Conflict { sequence: a.sequence })
    );
    let pages = [a.encode(0), Page::zeroed(), b.encode(2), Page::zeroed()];
    let sequences = [Some(a.sequence), None, Some(a.sequence), None];
    assert_eq!(choose_pages(&pages), Err(SuperblockError::NoPair { sequences }));
    let errno = Errno::EIO;
    assert_eq!(
        choose([PageRead::Unread(errno); 4]),
        Err(SuperblockError::Unread { errno })
    );
    assert_eq!(
        choose([PageRead::Read(&[]); 4]),
        Err(SuperblockError::Short { bytes: 0 })
    );
    assert_eq!(
        choose_pages(&std::array::from_fn(|_| Page::zeroed())),
        Err(SuperblockError::NotVolume)
    );
}

#[test]
fn an_older_program_does_not_heal_over_a_newer_volume() {
    let mut pages = copies(&sample());
    let newer = VERSION as u8 + 1;
    pages[0] = forge(&pages[0], 8, &[newer]);
    assert!(choose_pages(&pages).is_ok(), "one such page may be rot");
    pages[1] = forge(&pages[1], 8, &[newer]);
    assert_eq!(
        choose_pages(&pages),
        Err(SuperblockError::Version {
            found: VERSION + 1,
            supported: VERSION
        })
    );
}

#[test]
fn damaged_pages_are_no_newer_version() {
    let mut pages = copies(&sample());
    for page in &mut pages[..2] {
        page.bytes_mut()[8] = 9;
    }
    assert_eq!(choose_pages(&pages).unwrap().heal, [0, 1]);
    // One of them whole is still one; and two that differ do not agree.
    let newer = [9, 9].map(|version| forge(&sample().encode(0), 8, &[version]));
    pages[0] = newer[0].clone();
    assert_eq!(choose_pages(&pages).unwrap().heal, [0, 1]);
    pages[1] = forge(&forge(&sample().encode(1), 8, &[9]), 200, &[1]);
    assert_eq!(choose_pages(&pages).unwrap().heal, [0, 1]);
}

/// All that a crash leaves is of one moment; what a copy of a volume in use can leave beside that is seen to be mixed, and stays
/// so while the update that ends it is torn anywhere.
#[test]
fn copies_of_mixed_ages_are_seen_until_they_are_gone() {
    let ages: Vec<Superblock> = std::iter::successors(Some(sample()), |s| s.successor().ok())
        .take(4)
        .collect();
    let pages = |front: usize, rear: usize| {
        [(0, front), (1, front), (2, rear), (3, rear)].map(|(copy, age)| ages[age].encode(copy))
    };
    for (front, rear) in [(0, 0), (1, 0), (3, 2)] {
        assert_eq!(choose_pages(&pages(front, rear)).unwrap().mixed, None, "{front} {rear}");
    }
    for (front, rear) in [(0, 1), (0, 3), (2, 0), (3, 0)] {
        for lost in [None, Some(0), Some(1), Some(2), Some(3)] {
            let mut pages = pages(front, rear);
            if let Some(lost) = lost {
                pages[lost] = Page::zeroed();
            }
            let chosen = choose_pages(&pages).unwrap();
            let mixed = chosen.mixed.as_ref();
            let order = mixed.unwrap_or_else(|| panic!("{front} {rear} {lost:?}")).order;
            let next = chosen.next_epoch().unwrap();
            assert_eq!((next.healed_epoch, next.is_clean()), (0, false));
            for copy in order {
                let new = next.encode(copy);
                let torn = torn(&pages[usize::from(copy)], &new, 100);
                for page in [torn, Page::zeroed(), new] {
                    pages[usize::from(copy)] = page;
                    let seen = choose_pages(&pages);
                    let seen = seen.unwrap_or_else(|error| panic!("{front} {rear} {lost:?}, copy {copy}: {error}"));
                    assert!(
                        seen.current.sequence >= chosen.current.sequence,
                        "{front} {rear} {lost:?}, copy {copy}"
                    );
                    let is_doubted = seen.mixed.is_some() || seen.current == next;
                    assert!(is_doubted, "{front} {rear} {lost:?}, copy {copy}");
                }
            }
            assert_eq!(
                choose_pages(&pages).map(|chosen| (chosen.current, chosen.mixed)),
                Ok((next, None))
            );
        }
    }
}

#[test]
fn a_scan_recognises_copies_where_they_claim_to_stand() {
    let superblock = sample();
    let at = superblock.layout().superblocks_at();
    for copy in 0..4u8 {
        let page = superblock.encode(copy);
        let here = at[usize::from(copy)];
        assert_eq!(
            recognise(PageRead::Read(page.as_ref()), here),
            Some((copy, superblock.clone()))
        );
        assert_eq!(
            recognise(PageRead::Read(page.as_ref()), here + SUPERBLOCK_STEP * 7),
            None
        );
        assert_eq!(recognise(PageRead::Read(page.as_ref()), here + 4096), None);
    }
    let (zero, one) = (superblock.encode(0), superblock.encode(1));
    assert_eq!(
        rear_copies_at([zero.as_ref(), one.as_ref()].map(PageRead::Read)),
        [[at[2], at[3]]]
    );
    assert_eq!(
        rear_copies_at([one.as_ref(), zero.as_ref()].map(PageRead::Read)),
        [[0u64; 2]; 0]
    );
}

#[test]
fn a_smaller_device_is_refused() {
    let superblock = sample();
    let end = superblock.layout().end();
    assert_eq!(superblock.check_device(end), Ok(()));
    assert!(matches!(
        superblock.check_device(end - 1),
        Err(SuperblockError::Truncated { .. })
    ));
}

proptest! {
    /// Any one page torn, missing, rotten or stale: the current superblock stays, and exactly that copy is healed.
    #[test]
    fn any_single_bad_copy_is_healed(
        victim in 0usize..4, kind in 0..4, cut in 1usize..PAGE_BYTES, bit in 0..PAGE_BYTES * 8,
    ) {
        let old = sample();
        let new = old.successor().unwrap();
        let mut pages = copies(&new);
        pages[victim] = match kind {
            0 => torn(&old.encode(victim as u8), &pages[victim], cut),
            1 => Page::zeroed(),
            2 => {
                let mut page = pages[victim].clone();
                page.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
                page
            }
            _ => old.encode(victim as u8),
        };
        // The tail is equal in both, so a late cut may leave a whole page.
        let whole = pages[victim] == new.encode(victim as u8);
        let heal = if whole { vec![] } else { vec![victim as u8] };
        // One stale copy is no sign of mixed ages.
        prop_assert_eq!(choose_pages(&pages), Ok(Chosen { current: new, heal, mixed: None }));
    }

    /// A crash at any point of an update leaves the old or the new superblock current; after the first flush, the new.
    #[test]
    fn a_crash_in_an_update_leaves_the_old_or_the_new(
        states in proptest::array::uniform4(0..3), cut in 24usize..100, first_pair_flushed: bool,
    ) {
        let old = sample();
        let new = old.successor().unwrap();
        let pages: [Page; 4] = std::array::from_fn(|copy| {
            let (before, after) = (old.encode(copy as u8), new.encode(copy as u8));
            match (first_pair_flushed, copy, states[copy]) {
                (true, 0 | 1, _) | (_, _, 2) if first_pair_flushed || copy < 2 => after,
                (_, _, 1) if first_pair_flushed || copy < 2 => torn(&before, &after, cut),
                _ => before,
            }
        });
        let chosen = choose_pages(&pages).unwrap();
        prop_assert!(chosen.current == new || (chosen.current == old && !first_pair_flushed));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(at in 0usize..272, bytes in proptest::collection::vec(any::<u8>(), 1..24)) {
        let forged = forge(&sample().encode(0), at, &bytes);
        if let Ok(superblock) = Superblock::decode(forged.as_ref(), 0) {
            prop_assert_eq!(Layout::of(superblock.geometry()), Ok(*superblock.layout()));
        }
    }
}
