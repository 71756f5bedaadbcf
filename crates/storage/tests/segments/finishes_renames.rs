//! The promise: a rename that a crash cut is finished by the next open, before anything is served. The new inode names the
//! old one, by slot and generation, and has its uuid and its run; then only the new name is left. Whatever differs, it was
//! no rename, and the rule for two that claim one block decides.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File, Wait};
use baio_storage::segment::inode::{Inode, InodeState, MoveTo, RenameFrom};
use baio_storage::segment::layout::GENERATION_MAX;
use baio_storage::segment::name::SegmentName;
use baio_storage::segment::probe::SlotAddress;
use baio_storage::{Access, FormatOptions, check_on};

use crate::harness::images::{find, forget_clean_close, home, put, state_of, superblock, tamper};
use crate::harness::{BLOCK, ME, config, create, open_simulated, open_write, read, simulated_disk, write};

/// A volume on which "old" was being renamed to "new" when the power failed, changed by `change`.
fn cut_rename(change: impl Fn(&mut Inode)) -> (Disk, SlotAddress) {
    let disk = simulated_disk(&FormatOptions::of_size(2 << 20));
    let mut core = open_simulated(&disk);
    create(&mut core, "old", 8 * BLOCK as u64);
    let handle = open_write(&mut core, "old");
    write(&mut core, handle, 0, &[0x0d; 8 * BLOCK]).unwrap();
    core.close().unwrap();
    let (at, inode) = find(&disk, "old");
    let mut renamed = inode.clone();
    renamed.name = Some(SegmentName::new("new").unwrap());
    renamed.alloc_seq.counter += 1;
    renamed.generation = 1;
    renamed.rename_from = Some(RenameFrom {
        bucket: at.bucket,
        slot: at.slot as u32,
        generation: inode.generation,
    });
    change(&mut renamed);
    put(&disk, home(&disk, ME.uid, "new"), &renamed);
    forget_clean_close(&disk);
    (disk, at)
}

#[test]
fn a_rename_that_a_crash_cut_is_finished_by_the_open() {
    let (disk, old) = cut_rename(|_| {});
    let core = open_simulated(&disk);
    assert_eq!(state_of(&disk, old), InodeState::Tombstone, "before anything is served");
    assert_eq!(core.warnings(), [] as [String; 0]);
    drop(core);
    let mut core = open_simulated(&disk);
    let infos = core.list(ME).unwrap();
    assert_eq!(infos.len(), 1);
    assert_eq!((infos[0].name.as_str(), infos[0].state), ("new", "live"));
    let volume = core.volume_info().unwrap();
    assert_eq!(
        (volume.segments, volume.size_bytes - volume.free_bytes),
        (1, 8 * BLOCK as u64)
    );
    assert_eq!(
        core.open_segment(ME, ME.uid, "old", Access::Read).unwrap_err().code(),
        "ENOENT"
    );
    let handle = open_write(&mut core, "new");
    assert!(read(&mut core, handle, 0, 8 * BLOCK).unwrap() == [0x0d; 8 * BLOCK]);
    core.close().unwrap();
}

/// Of a move, too, the new name alone is left: nobody goes on with the old one's, and the close notes what is free.
#[test]
fn a_rename_that_was_cut_on_a_segment_half_moved_leaves_one_move() {
    let begin_move = |inode: &mut Inode| {
        inode.state = InodeState::Moving;
        inode.move_to = Some(MoveTo {
            start: 100,
            blocks: 8,
            done: 0,
        });
    };
    let (disk, _) = cut_rename(begin_move);
    tamper(&disk, "old", begin_move);
    let mut core = open_simulated(&disk);
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    let infos = core.list(ME).unwrap();
    assert_eq!(infos.len(), 1);
    let moved = (infos[0].name.as_str(), infos[0].state, infos[0].start_block);
    assert_eq!(moved, ("new", "live", 100));
    core.close().unwrap();
    assert!(
        superblock(&disk).snapshot.is_some(),
        "the next open reads the whole table"
    );
}

#[test]
fn what_only_looks_like_a_rename_is_none() {
    let with_slot = |inode: &mut Inode, change: &dyn Fn(&mut RenameFrom)| {
        let mut from = inode.rename_from.unwrap();
        change(&mut from);
        inode.rename_from = Some(from);
    };
    let changes: [&dyn Fn(&mut Inode); 4] = [
        &|inode| inode.uuid = [9; 16],
        &|inode| inode.reserve_blocks += 1,
        &|inode| with_slot(inode, &|from| from.generation += 1),
        &|inode| with_slot(inode, &|from| from.slot = (from.slot + 1) % 4),
    ];
    for (number, change) in changes.iter().enumerate() {
        let (disk, old) = cut_rename(|inode| change(inode));
        let mut core = open_simulated(&disk);
        assert_eq!(state_of(&disk, old), InodeState::Quarantined, "change {number}");
        assert_eq!(core.list(ME).unwrap().len(), 2, "change {number}");
        core.close().unwrap();
    }
}

/// A repair that has to change the new inode, in its generation or in its name, finishes the rename all the same.
#[test]
fn a_repair_of_the_new_inode_finishes_the_rename() {
    type Change = dyn Fn(&mut Inode);
    let changes: [(&str, &Change); 2] = [
        ("inode-generation", &|inode| inode.generation = GENERATION_MAX),
        ("name-twice", &|inode| {
            inode.name = Some(SegmentName::new("old").unwrap())
        }),
    ];
    for (kind, change) in changes {
        let (disk, old) = cut_rename(change);
        let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
        let report = check_on(&mut engine, &File::simulated(&disk, "disk"), true).unwrap();
        let problems = report.problems;
        assert!(problems.iter().any(|one| one.kind == kind), "{problems:?}");
        assert_eq!(state_of(&disk, old), InodeState::Tombstone, "{kind}");
        let mut core = open_simulated(&disk);
        let infos = core.list(ME).unwrap();
        assert!(infos.len() == 1 && infos[0].state == "live", "{kind}: {infos:?}");
        let handle = open_write(&mut core, &infos[0].name);
        let bytes = read(&mut core, handle, 0, 8 * BLOCK).unwrap();
        assert!(bytes == [0x0d; 8 * BLOCK], "{kind}");
        core.close().unwrap();
    }
}

/// A repair that had only an older superblock leaves inodes of epochs that are still to come. The new inode of a rename is later even so.
#[test]
fn a_rename_of_an_inode_of_a_later_epoch_is_finished_too() {
    let disk = simulated_disk(&FormatOptions::of_size(2 << 20));
    let mut core = open_simulated(&disk);
    create(&mut core, "old", 8 * BLOCK as u64);
    core.close().unwrap();
    tamper(&disk, "old", |inode| inode.alloc_seq.epoch += 1000);
    forget_clean_close(&disk);
    let (at, inode) = find(&disk, "old");
    let lives_elsewhere = |name: &String| home(&disk, ME.uid, name).bucket != at.bucket;
    let name = (0..).map(|number| format!("n{number}")).find(lives_elsewhere).unwrap();
    let mut core = open_simulated(&disk);
    core.rename(ME, ME.uid, "old", &name).unwrap();
    core.close().unwrap();
    // As a crash before the second half would have left it.
    put(&disk, at, &inode);
    forget_clean_close(&disk);
    let mut core = open_simulated(&disk);
    let infos = core.list(ME).unwrap();
    assert_eq!(infos.len(), 1, "{infos:?}");
    assert_eq!((&infos[0].name, infos[0].state), (&name, "live"));
    core.close().unwrap();
}
