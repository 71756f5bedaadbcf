//! The promise: a table does not get slower with every segment that ever was. A slot that is given up is free again unless
//! that would hide another name; whatever the order of creates, deletes and renames, no free slot lies on the way to an
//! inode, and when all is deleted a miss reads about one bucket.

mod harness;

use std::collections::BTreeSet;

use baio_engine::sim::Disk;
use baio_storage::segment::bucket::{BucketId, Pair, Slots};
use baio_storage::segment::inode::InodeState;
use baio_storage::segment::layout::{BUCKET_BYTES, Place, SLOTS_PER_BUCKET};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Access, Core, CreateOptions, Format};
use harness::{BLOCK, ME, open_moody, open_simulated, simulated_disk};
use proptest::prelude::*;

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
            let pair = Pair::read(&bytes[..BLOCK], &bytes[BLOCK..], id);
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
    let format = Format {
        size_bytes: Some(4 << 20),
        ..Format::default()
    };
    let disk = simulated_disk(&format);
    let mut core = open_simulated(&disk);
    let segments_max = core.volume_info().unwrap().segments_max as usize;
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
    let format = Format {
        size_bytes: Some(4 << 20),
        ..Format::default()
    };
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
