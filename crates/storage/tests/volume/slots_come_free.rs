//! The promise: a table does not get slower with every segment that ever was. A slot that is given up is free again unless
//! that would hide another name; whatever the order of creates, deletes and renames, no free slot lies on the way to an
//! inode, and when all is deleted a miss reads about one bucket.

use std::collections::BTreeSet;

use baio_engine::sim::Disk;
use baio_storage::segment::bucket::{BucketId, Pair, Slots};
use baio_storage::segment::inode::InodeState;
use baio_storage::segment::layout::{BUCKET_BYTES, Place, SLOTS_PER_BUCKET};
use baio_storage::segment::name::{Key, SegmentName};
use baio_storage::segment::page::PageRead;
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Access, Core, CreateOptions, FormatOptions};
use proptest::prelude::*;

use crate::harness::{self, BLOCK, ME, open_moody, open_simulated, simulated_disk};

/// The table as it lies on the disk.
fn table(disk: &Disk) -> (Superblock, Vec<Slots>) {
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    let superblock = Superblock::decode(&page, 0).unwrap();
    let buckets = (0..superblock.layout().buckets())
        .map(|bucket| {
            let mut bytes = vec![0; BUCKET_BYTES as usize];
            disk.read(superblock.layout().bucket_at(bucket, Place::Table).unwrap(), &mut bytes);
            let id = BucketId {
                uuid: superblock.uuid,
                bucket,
            };
            let pair = Pair::read(PageRead::Read(&bytes[..BLOCK]), PageRead::Read(&bytes[BLOCK..]), id);
            pair.newest().unwrap().slots(superblock.geometry())
        })
        .collect();
    (superblock, buckets)
}

fn assert_no_name_is_hidden(disk: &Disk) {
    let (superblock, table) = table(disk);
    let buckets = table.len() as u64;
    let state = |at: u64, wanted| {
        let is = |slot: &&Result<baio_storage::segment::inode::Inode, _>| {
            slot.as_ref().is_ok_and(|inode| inode.state == wanted)
        };
        table[at as usize].iter().filter(is).count()
    };
    for (stored, slots) in table.iter().enumerate() {
        for inode in slots.iter().flatten() {
            let Some(key) = inode.key() else { continue };
            let home = key.hash(&superblock.hash_seed) % buckets;
            let steps = (stored as u64 + buckets - home) % buckets;
            for step in 0..steps {
                let on_the_way = (home + step) % buckets;
                assert_eq!(
                    state(on_the_way, InodeState::Free),
                    0,
                    "bucket {on_the_way} hides {:?} in bucket {stored}",
                    inode.name
                );
            }
        }
    }
}

fn tombstones(disk: &Disk) -> usize {
    let is = |inode: &&baio_storage::segment::inode::Inode| inode.state == InodeState::Tombstone;
    table(disk).1.iter().flatten().flatten().filter(is).count()
}

#[derive(Clone, Debug)]
enum Action {
    Create(u8),
    Delete(u8),
    Rename(u8, u8),
    Reopen,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        10 => (0..120_u8).prop_map(Action::Create),
        6 => (0..120_u8).prop_map(Action::Delete),
        4 => (0..120_u8, 0..120_u8).prop_map(|(from, to)| Action::Rename(from, to)),
        1 => Just(Action::Reopen),
    ]
}

fn name(number: u8) -> String {
    format!("n{number}")
}

fn exists(core: &mut Core, number: u8) -> bool {
    match core.open_segment(ME, ME.uid, &name(number), Access::Read) {
        Ok((handle, _)) => {
            core.close_handle(handle);
            true
        }
        Err(error) => {
            assert_eq!(error.code(), "ENOENT");
            false
        }
    }
}

fn play(actions: &[Action]) {
    let format = FormatOptions::of_size(4 << 20);
    let disk = simulated_disk(&format);
    let mut core = open_simulated(&disk);
    let segments_max = harness::open_to_tenants(core.volume_info().unwrap().segments_max) as usize;
    let mut model = BTreeSet::new();
    for action in actions {
        match *action {
            Action::Create(number) => {
                let made = core.create(ME, ME.uid, &name(number), &CreateOptions::of_size(BLOCK as u64));
                let expected = !model.contains(&number) && model.len() < segments_max;
                assert_eq!(made.is_ok(), expected);
                if expected {
                    model.insert(number);
                }
            }
            Action::Delete(number) => {
                assert_eq!(core.delete(ME, ME.uid, &name(number)).is_ok(), model.remove(&number));
            }
            Action::Rename(from, to) => {
                let renamed = core.rename(ME, ME.uid, &name(from), &name(to));
                let expected = model.contains(&from) && !model.contains(&to);
                assert_eq!(renamed.is_ok(), expected);
                if expected {
                    model.remove(&from);
                    model.insert(to);
                }
            }
            Action::Reopen => {
                core.close().unwrap();
                core = open_simulated(&disk);
            }
        }
        assert_no_name_is_hidden(&disk);
    }
    for number in 0..120 {
        assert_eq!(exists(&mut core, number), model.contains(&number));
    }
    for number in model {
        core.delete(ME, ME.uid, &name(number)).unwrap();
        assert_no_name_is_hidden(&disk);
    }
    core.close().unwrap();
    let (mut core, whims) = open_moody(&disk, &harness::config());
    let seen = whims.borrow().seen;
    for number in 0..120 {
        assert!(!exists(&mut core, number));
    }
    let read = whims.borrow().seen - seen;
    assert!(
        read <= 180,
        "120 misses read {read} of {} buckets",
        table(&disk).1.len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_used_table_is_as_fast_as_a_new_one(actions in prop::collection::vec(action(), 1..150)) {
        play(&actions);
    }
}

/// One segment after the other in a table with room leaves no tombstone at all.
#[test]
fn many_short_lives_leave_no_tombstone() {
    let format = FormatOptions::of_size(4 << 20);
    let disk = simulated_disk(&format);
    let mut core = open_simulated(&disk);
    for round in 0..300 {
        let name = format!("n{round}");
        core.create(ME, ME.uid, &name, &CreateOptions::of_size(BLOCK as u64))
            .unwrap();
        core.delete(ME, ME.uid, &name).unwrap();
    }
    assert_eq!(tombstones(&disk), 0);
    let slots = table(&disk).1.len() * SLOTS_PER_BUCKET;
    assert!(slots < 300, "every slot was used");
}

/// A rename that a crash cuts in two leaves two inodes of one segment. However often it went back and forth through slots
/// that begin again at generation 1, exactly one of them names the other.
#[test]
fn of_the_two_inodes_of_half_a_rename_one_names_the_other() {
    let format = FormatOptions::of_size(4 << 20);
    for rounds in 0..6 {
        let disk = simulated_disk(&format);
        let (superblock, buckets) = table(&disk);
        let home = |name: &str| {
            let key = Key::segment(ME.uid, SegmentName::new(name).unwrap());
            key.hash(&superblock.hash_seed) % buckets.len() as u64
        };
        let other = (0..)
            .map(|n| format!("o{n}"))
            .find(|name| home(name) != home("a"))
            .unwrap();
        let mut names = ["a", other.as_str()];
        let (mut core, whims) = open_moody(&disk, &harness::config());
        core.create(ME, ME.uid, "a", &CreateOptions::of_size(BLOCK as u64))
            .unwrap();
        for _ in 0..rounds {
            core.rename(ME, ME.uid, names[0], names[1]).unwrap();
            names.swap(0, 1);
        }
        // Two look-ups, a record of three requests; the look-up before the second half fails,
        // and so does the mirror's page.
        let seen = whims.borrow().seen;
        whims.borrow_mut().fail_from = Some(seen + 5);
        whims.borrow_mut().fail_count = 2;
        core.rename(ME, ME.uid, names[0], names[1]).unwrap_err();
        let (_, buckets) = table(&disk);
        let live: Vec<_> = (0_u64..)
            .zip(&buckets)
            .flat_map(|(bucket, slots)| (0_u32..).zip(slots).map(move |(slot, inode)| (bucket, slot, inode)))
            .filter_map(|(bucket, slot, inode)| Some((bucket, slot, inode.as_ref().ok()?)))
            .filter(|(_, _, inode)| inode.state == InodeState::Live)
            .collect();
        assert_eq!(live.len(), 2, "{rounds}");
        let names_it = |by: usize, what: usize| {
            let (bucket, slot, inode) = live[what];
            let from = live[by].2.rename_from;
            from.is_some_and(|from| (from.bucket, from.slot, from.generation) == (bucket, slot, inode.generation))
        };
        assert_eq!(live[0].2.uuid, live[1].2.uuid);
        assert!(names_it(0, 1) != names_it(1, 0), "after {rounds} renames: {live:?}");
        let newer = if names_it(0, 1) { 0 } else { 1 };
        assert_eq!(live[newer].2.name.as_ref().unwrap().as_str(), names[1]);
        // And nothing more is changed until an open has decided.
        let refused = core.delete(ME, ME.uid, names[0]).unwrap_err();
        assert_eq!(refused.code(), "EPOISONED");
    }
}
