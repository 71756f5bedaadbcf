//! The promise: what a repair cannot save it gives up last, when all was read and everything else is written. So a repair that fails before
//! has taken nothing away that the next check could not name; and the error of one that fails afterwards says what is lost.

use std::collections::BTreeSet;

use baio_engine::sim::{Disk, Fault as Sick, Faults, Sim, Trigger};
use baio_engine::{Engine, File};
use baio_storage::segment::layout::{BUCKET_BYTES, Parity, Place};
use baio_storage::{CheckReport, Error, Fault, FormatOptions, Problem, Repair, check_on};

use crate::harness::images::{segments, superblock, tamper_bytes};
use crate::harness::{BLOCK, ME, config, create, open_simulated, simulated_disk};

fn check(disk: &Disk, repair: bool) -> Result<CheckReport, Error> {
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
    check_on(&mut engine, &File::simulated(disk, "disk"), repair)
}

/// What is lost, and where.
fn lost(problems: &[Problem]) -> Vec<(&'static str, String)> {
    let is_lost = |one: &&Problem| one.repair == Repair::Lost;
    let named = |one: &Problem| (one.kind, one.place.object.clone());
    problems.iter().filter(is_lost).map(named).collect()
}

/// A closed volume with segments in several buckets.
fn filled() -> Disk {
    let disk = simulated_disk(&FormatOptions::of_size(2 << 20));
    let mut core = open_simulated(&disk);
    for round in 0..2 {
        for number in 0..12 {
            let name = format!("s{number}");
            if round > 0 {
                core.delete(ME, ME.uid, &name).unwrap();
            }
            create(&mut core, &name, BLOCK as u64);
        }
    }
    core.close().unwrap();
    disk
}

/// One of which a bucket is gone, and of another both copies of an image; and the last of its buckets.
fn damaged() -> (Disk, u64) {
    let disk = filled();
    let used: BTreeSet<u64> = segments(&disk).into_iter().map(|(at, _)| at.bucket).collect();
    let used: Vec<u64> = used.into_iter().collect();
    assert!(used.len() > 2, "{used:?}");
    let layout = *superblock(&disk).layout();
    for place in [Place::Table, Place::Mirror] {
        let bucket_at = layout.bucket_at(used[0], place).unwrap();
        disk.poke(bucket_at, &[0x5a; BUCKET_BYTES as usize]);
        let image_at = layout.image_at(used[1], Parity::Even, place).unwrap();
        disk.poke(image_at + 1000, &[0x5a; 100]);
    }
    (disk, used[used.len() - 1])
}

#[test]
fn a_repair_that_fails_early_has_given_up_nothing() {
    let (disk, last) = damaged();
    let before = lost(&check(&disk, false).unwrap().problems);
    assert!(before.iter().any(|(kind, _)| *kind == "bucket-lost"), "{before:?}");
    assert!(before.iter().any(|(kind, _)| *kind == "image-unknown"), "{before:?}");
    // What can be saved of the last bucket does not reach the device.
    let layout = *superblock(&disk).layout();
    let at = layout.image_at(last, Parity::Odd, Place::Mirror).unwrap();
    disk.poke(at, &[0x5a; BLOCK]);
    disk.set_faults(Faults::none().when(Trigger::always(Sick::LostWrite).within(at..at + BLOCK as u64)));
    let failed = check(&disk, true).unwrap_err();
    assert!(matches!(failed.fault, Fault::LostWrite { .. }), "{failed}");
    disk.set_faults(Faults::none());
    assert_eq!(lost(&check(&disk, false).unwrap().problems), before);
    assert_eq!(lost(&check(&disk, true).unwrap().problems), before);
    assert_eq!(check(&disk, false).unwrap().problems, []);
}

/// Its slot is written behind the buckets that can be saved, though it comes before them.
#[test]
fn an_inode_that_says_nothing_is_given_up_last_too() {
    let disk = filled();
    let used: BTreeSet<_> = segments(&disk).into_iter().map(|(at, _)| at).collect();
    let (first, last) = (*used.first().unwrap(), *used.last().unwrap());
    assert!(first.bucket < last.bucket);
    tamper_bytes(&disk, |at, bytes| {
        if at == first {
            bytes[296..320].fill(0xff); // Nothing says where its blocks are.
        } else if at == last {
            bytes[0] = 77; // Can be saved.
        }
        at == first || at == last
    });
    let before = lost(&check(&disk, false).unwrap().problems);
    assert!(matches!(before[..], [("inode", _)]), "{before:?}");
    let layout = *superblock(&disk).layout();
    let at = layout.bucket_at(last.bucket, Place::Table).unwrap();
    disk.set_faults(Faults::none().when(Trigger::always(Sick::LostWrite).within(at..at + BUCKET_BYTES)));
    let failed = check(&disk, true).unwrap_err();
    assert_eq!(failed.code(), "EIO", "{failed}");
    disk.set_faults(Faults::none());
    assert_eq!(lost(&check(&disk, false).unwrap().problems), before);
    assert_eq!(lost(&check(&disk, true).unwrap().problems), before);
    assert_eq!(check(&disk, false).unwrap().problems, []);
}

#[test]
fn a_repair_that_fails_late_says_what_is_lost() {
    let (disk, _) = damaged();
    let before = lost(&check(&disk, false).unwrap().problems);
    // The first write is the repair's, the second that of the opening at its end.
    disk.set_faults(Faults::none().when(Trigger::nth(Sick::WriteError, 2).within(0..BLOCK as u64)));
    let failed = check(&disk, true).unwrap_err();
    disk.set_faults(Faults::none());
    assert_eq!(failed.code(), "EIO", "{failed}");
    let Fault::RepairCut { lost: told, .. } = &failed.fault else {
        panic!("{failed}");
    };
    assert_eq!(lost(told), before);
    let line = failed.to_string();
    assert!(before.iter().all(|(_, object)| line.contains(object)), "{line}");
    // It was given up: nobody can name it any more.
    assert!(lost(&check(&disk, true).unwrap().problems).is_empty());
    assert_eq!(check(&disk, false).unwrap().problems, []);
}
