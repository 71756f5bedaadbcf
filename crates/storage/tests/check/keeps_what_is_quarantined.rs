//! The promise: two live inodes that claim one block never stop a mount; the later allocation wins, and the other is
//! quarantined, on the device before anything is served, reported, and readable by `check`. So what it has and nobody else
//! claims must not be given away, nor what its rival gives back.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use baio_storage::segment::inode::{InodeState, MoveTo};
use baio_storage::{Access, Core, CreateOptions, FormatOptions};

use crate::harness::images::{find, forget_clean_close, state_of, superblock, tamper, tamper_bytes};
use crate::harness::{BLOCK, ME, config, create, open_simulated, open_write, read, simulated_disk, write};

fn small_disk() -> Disk {
    simulated_disk(&FormatOptions::of_size(2 << 20))
}

/// Makes everything that is free somebody's, and with that zero.
fn fill(core: &mut Core, prefix: &str) {
    for number in 0.. {
        let largest = core.volume_info().unwrap().largest_free_bytes;
        if largest == 0 {
            return;
        }
        let options = CreateOptions::of_size(largest);
        core.create(ME, ME.uid, &format!("{prefix}{number}"), &options).unwrap();
    }
}

fn bytes_of(disk: &Disk, start_block: u64, blocks: u64) -> Vec<u8> {
    let (at, len) = superblock(disk).layout().run_at(start_block, blocks).unwrap();
    let mut bytes = vec![0; len as usize];
    disk.read(at, &mut bytes);
    bytes
}

#[test]
fn the_blocks_of_a_quarantined_segment_are_not_given_away() {
    let disk = small_disk();
    let mut core = open_simulated(&disk);
    create(&mut core, "old", 8 * BLOCK as u64);
    create(&mut core, "new", BLOCK as u64);
    let handle = open_write(&mut core, "old");
    write(&mut core, handle, 0, &[0x0d; 8 * BLOCK]).unwrap();
    core.close().unwrap();
    let (old, inode) = find(&disk, "old");
    tamper(&disk, "new", |new| new.start_block = inode.start_block + 3);
    forget_clean_close(&disk);

    let mut core = open_simulated(&disk);
    assert_eq!(
        state_of(&disk, old),
        InodeState::Quarantined,
        "noted before anything is served"
    );
    let states: Vec<_> = core
        .list(ME)
        .unwrap()
        .into_iter()
        .map(|info| (info.name, info.state))
        .collect();
    assert_eq!(states, [("new".into(), "live"), ("old".into(), "quarantined")]);
    let warnings = core.warnings().to_vec();
    assert!(
        warnings.len() == 1 && warnings[0].contains("is quarantined") && !warnings[0].contains("old\""),
        "{warnings:?}"
    );
    let error = core.open_segment(ME, ME.uid, "old", Access::Read).unwrap_err();
    assert_eq!(error.code(), "ECORRUPT", "{error}");
    let handle = open_write(&mut core, "new");
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [0x0d; BLOCK]);
    fill(&mut core, "filler");
    core.delete(ME, ME.uid, "new").unwrap();
    fill(&mut core, "late");
    core.close().unwrap();
    // The same from the device: what is quarantined keeps what its rival gave back.
    let mut core = open_simulated(&disk);
    assert_eq!(
        core.list(ME)
            .unwrap()
            .iter()
            .filter(|info| info.state == "quarantined")
            .count(),
        1
    );
    fill(&mut core, "later");
    core.close().unwrap();
    assert!(
        bytes_of(&disk, inode.start_block, 8) == [0x0d; 8 * BLOCK],
        "some were given away"
    );
    // It can be deleted, and then its blocks are free again, at the latest after the next opening.
    let mut core = open_simulated(&disk);
    core.delete(ME, ME.uid, "old").unwrap();
    core.close().unwrap();
    let core = open_simulated(&disk);
    assert_eq!(core.volume_info().unwrap().free_bytes, 8 * BLOCK as u64);
    core.close().unwrap();
}

/// An inode that no program of this version writes: its image is whole, so its bytes were meant.
#[test]
fn an_inode_that_cannot_be_decoded_refuses_nothing_and_keeps_its_blocks() {
    let disk = small_disk();
    let mut core = open_simulated(&disk);
    create(&mut core, "strange", 8 * BLOCK as u64);
    create(&mut core, "other", BLOCK as u64);
    let handle = open_write(&mut core, "strange");
    write(&mut core, handle, 0, &[0x0d; 8 * BLOCK]).unwrap();
    core.close().unwrap();
    let (at, inode) = find(&disk, "strange");
    tamper_bytes(&disk, |address, bytes| {
        bytes[0] = 99;
        address == at
    });
    forget_clean_close(&disk);
    let mut before = Vec::new();
    tamper_bytes(&disk, |address, bytes| {
        before.extend((address == at).then_some(*bytes));
        false
    });

    for _ in 0..2 {
        let mut core = open_simulated(&disk);
        let warnings = core.warnings().to_vec();
        assert!(
            warnings.len() == 1 && warnings[0].contains("unknown inode state 99"),
            "{warnings:?}"
        );
        assert!(core.volume_info().unwrap().warnings == warnings);
        assert_eq!(
            core.open_segment(ME, ME.uid, "strange", Access::Read)
                .unwrap_err()
                .code(),
            "ENOENT"
        );
        open_write(&mut core, "other");
        fill(&mut core, "filler");
        core.close().unwrap();
    }
    assert!(
        bytes_of(&disk, inode.start_block, 8) == [0x0d; 8 * BLOCK],
        "some were given away"
    );
    let mut after = Vec::new();
    tamper_bytes(&disk, |address, bytes| {
        after.extend((address == at).then_some(*bytes));
        false
    });
    assert!(before == after, "its slot is untouched");
}

/// Nor is it forgotten where it claims no blocks that could be kept for it.
#[test]
fn an_inode_that_cannot_be_decoded_is_told_by_every_open() {
    let disk = small_disk();
    let mut core = open_simulated(&disk);
    create(&mut core, "strange", BLOCK as u64);
    core.close().unwrap();
    let (at, _) = find(&disk, "strange");
    tamper_bytes(&disk, |address, bytes| {
        bytes[0] = 99;
        bytes[296..320].fill(0xff); // No run in the data area.
        address == at
    });
    forget_clean_close(&disk);
    for open in 0..3 {
        let core = open_simulated(&disk);
        assert_eq!(core.warnings().len(), 1, "open {open}");
        core.close().unwrap();
    }
}

/// Of three in a row each claims a block of the next: the last one has lost to the middle one, and the middle one to the first. An opening
/// that the power cuts between the two records must leave a volume in which the last one still has somebody to lose to.
#[test]
fn a_recovery_that_is_cut_between_two_quarantines_serves_neither() {
    let disk = small_disk();
    let mut core = open_simulated(&disk);
    for name in ["oldest", "middle", "newest"] {
        create(&mut core, name, 4 * BLOCK as u64);
    }
    core.close().unwrap();
    let (_, oldest) = find(&disk, "oldest");
    tamper(&disk, "middle", |middle| middle.start_block = oldest.start_block + 3);
    tamper(&disk, "newest", |newest| newest.start_block = oldest.start_block + 6);
    forget_clean_close(&disk);

    let mut cuts = 0;
    for steps in 0.. {
        let cut = disk.copy();
        cut.cut_power_after(steps, 17 + steps);
        let engine = Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap();
        let opened = Core::open_on(engine, &File::simulated(&cut, "disk"), &config()).map(drop);
        let left = cut.surviving();
        let is_cut = left.is_some();
        if !is_cut {
            opened.unwrap();
        }
        let mut core = open_simulated(&left.unwrap_or_else(|| cut.copy()));
        let listed = core.list(ME).unwrap();
        let state = |name: &str| listed.iter().find(|one| one.name == name).map(|one| one.state);
        assert_eq!(
            ["oldest", "middle", "newest"].map(state),
            [Some("quarantined"), Some("quarantined"), Some("live")],
            "cut after {steps} steps"
        );
        core.close().unwrap();
        if !is_cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 8, "{cuts} cuts");
}

/// Its owner is charged for what is given back when it is deleted, whatever it was being moved to.
#[test]
fn a_quarantined_move_is_charged_by_the_run_that_it_has() {
    let disk = small_disk();
    let mut core = open_simulated(&disk);
    create(&mut core, "old", 8 * BLOCK as u64);
    create(&mut core, "new", BLOCK as u64);
    core.close().unwrap();
    let (_, inode) = find(&disk, "old");
    tamper(&disk, "old", |old| {
        old.state = InodeState::Moving;
        old.move_to = Some(MoveTo {
            start: 100,
            blocks: 30,
            done: 0,
        });
    });
    tamper(&disk, "new", |new| new.start_block = inode.start_block + 3);
    forget_clean_close(&disk);
    let mut core = open_simulated(&disk);
    assert_eq!(core.quota(ME, ME.uid).unwrap().used.blocks, 8 + 1);
    core.delete(ME, ME.uid, "old").unwrap();
    let used = core.quota(ME, ME.uid).unwrap().used;
    assert_eq!((used.blocks, used.segments), (1, 1));
}
