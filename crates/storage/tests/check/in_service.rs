//! The promise: a volume is checked while it serves. What is wrong on the device is named, what is merely under way is not, and nobody who
//! reads or writes segments waits.

use std::path::Path;

use baio_engine::{Durability, Wait};
use baio_storage::segment::layout::{Layout, Parity, Place};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{
    Answer, CheckReport, Core, CreateOptions, Error, FormatOptions, OperationId, Progress, SegmentRequest,
};

use crate::harness::{self, BLOCK, ME, ROOT, create, open_write, read, simulated_disk, write};

const VOLUME: u64 = 16 << 20;

fn ended(core: &mut Core, id: &OperationId) -> Result<CheckReport, Error> {
    loop {
        match core.take_answer(id) {
            Some(Ok(Answer::Checked(report))) => return Ok(*report),
            Some(Err(error)) => return Err(error),
            Some(other) => panic!("{other:?}"),
            None => drop(core.turn(Wait::one()).unwrap()),
        }
    }
}

fn checked(core: &mut Core) -> CheckReport {
    let id = core.begin_check(ROOT).unwrap();
    ended(core, &id).unwrap()
}

fn real(path: &Path) -> Core {
    harness::format(path, VOLUME);
    let mut core = harness::open(path);
    for nth in 0..10 {
        create(&mut core, &format!("s{nth}"), 8 * BLOCK as u64);
    }
    core
}

#[test]
fn a_sound_volume_is_sound_while_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = real(&dir.path().join("volume.img"));
    let handle = open_write(&mut core, "s3");
    let id = core.begin_check(ROOT).unwrap();
    // Whoever changes the table waits; whoever writes does not.
    let new = core
        .begin_create(ME, ME.uid, "new", &CreateOptions::of_size(BLOCK as u64))
        .unwrap();
    for byte in 0..20 {
        write(&mut core, handle, 0, &[byte; BLOCK]).unwrap();
    }
    if let Some(Progress::Check(progress)) = core.operation_progress(&id) {
        assert!(progress.buckets_done <= progress.buckets);
    }
    let report = ended(&mut core, &id).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!((report.segments, report.in_doubt, report.clean), (10, 0, false));
    while core.take_answer(&new).map(|answer| answer.unwrap()).is_none() {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(checked(&mut core).segments, 11);
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [19; BLOCK]);
    core.close().unwrap();
}

/// A mirror that lost its last write is no crash's trace while the volume serves: its owner has written it.
#[test]
fn what_is_wrong_is_named() {
    let disk = simulated_disk(&FormatOptions::of_size(VOLUME));
    let mut core = harness::open_simulated(&disk);
    for nth in 0..10 {
        create(&mut core, &format!("s{nth}"), 8 * BLOCK as u64);
    }
    let before = disk.copy();
    create(&mut core, "last", BLOCK as u64);
    assert_eq!(checked(&mut core).problems, []);
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    let layout: Layout = *Superblock::decode(&page, 0).unwrap().layout();
    let mut lost = 0;
    for bucket in 0..layout.buckets() {
        for parity in Parity::BOTH {
            let at = layout.image_at(bucket, parity, Place::Mirror).unwrap();
            let (mut now, mut then) = ([0; BLOCK], [0; BLOCK]);
            disk.read(at, &mut now);
            before.read(at, &mut then);
            if now != then {
                disk.poke(at, &then);
                lost += 1;
            }
        }
    }
    assert!(lost >= 1);
    let report = checked(&mut core);
    let kinds: Vec<&str> = report.problems.iter().map(|problem| problem.kind).collect();
    assert!(matches!(kinds[..], ["image-stale" | "image-erased"]), "{report:?}");
    assert_eq!(report.in_doubt, 0);
    // The check has changed nothing, and the volume goes on.
    create(&mut core, "more", BLOCK as u64);
}

#[test]
fn only_who_sees_the_whole_volume_may() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = real(&dir.path().join("volume.img"));
    let stranger = baio_storage::Identity::new(4_000_000, 4_000_000);
    let id = core.begin_check(stranger).unwrap();
    assert_eq!(ended(&mut core, &id).unwrap_err().code(), "EACCES");
    create(&mut core, "more", BLOCK as u64);
    core.close().unwrap();
}

/// Given up, or the volume closed: nobody waits for the thread.
#[test]
fn it_can_be_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = real(&dir.path().join("volume.img"));
    let id = core.begin_check(ROOT).unwrap();
    core.abandon_operation(id);
    create(&mut core, "more", BLOCK as u64);
    let _id = core.begin_check(ROOT).unwrap();
    core.close().unwrap();
}

/// The name may lead to another file by now.
#[test]
fn another_file_of_the_name_is_not_taken_for_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let mut core = real(&path);
    std::fs::rename(&path, dir.path().join("elsewhere.img")).unwrap();
    std::fs::write(&path, vec![0; VOLUME as usize]).unwrap();
    let id = core.begin_check(ROOT).unwrap();
    let error = ended(&mut core, &id).unwrap_err();
    assert!(error.to_string().contains("another file"), "{error}");
    core.close().unwrap();
}

/// A check that is frozen changes nothing either; a frozen volume can be checked.
#[test]
fn a_frozen_volume_can_be_checked() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = real(&dir.path().join("volume.img"));
    let id = core.begin_freeze(ROOT).unwrap();
    let frozen = loop {
        match core.take_answer(&id) {
            Some(Ok(Answer::Frozen { freeze: frozen })) => break frozen,
            Some(other) => panic!("{other:?}"),
            None => drop(core.turn(Wait::one()).unwrap()),
        }
    };
    assert_eq!(checked(&mut core).problems, []);
    core.thaw(frozen);
    let handle = open_write(&mut core, "s1");
    let request = SegmentRequest {
        durability: Durability::Data,
        ..harness::write_request(&core, handle, 0, &[1; BLOCK])
    };
    harness::run(&mut core, request).result.unwrap();
    core.close().unwrap();
}
