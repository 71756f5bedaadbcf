//! The promise: an image that no owner of a volume would write harms nobody: what cannot be is refused and repaired, and nothing
//! takes for ever, or reads what was never written.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use baio_storage::segment::layout::{Parity, Place};
use baio_storage::segment::page;
use baio_storage::{CheckReport, Core, FormatOptions, check_on};

use crate::harness::images::{find, forget_clean_close, home, put, superblock, tamper};
use crate::harness::{self, BLOCK, ME, create, open, open_simulated, open_write, read, simulated_disk, write};

fn volume() -> Disk {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(2 << 20),
        ..FormatOptions::default()
    });
    let mut core = open_simulated(&disk);
    for (name, byte) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        create(&mut core, name, 4 * BLOCK as u64);
        let handle = open_write(&mut core, name);
        write(&mut core, handle, 0, &[byte; 4 * BLOCK]).unwrap();
    }
    core.close().unwrap();
    disk
}

fn check(disk: &Disk, repair: bool) -> CheckReport {
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &harness::config()).unwrap();
    check_on(&mut engine, &File::simulated(disk, "disk"), repair).unwrap()
}

fn repairs(disk: &Disk) {
    assert!(!check(disk, false).problems.is_empty(), "nothing was found");
    check(disk, true);
    let again = check(disk, false);
    assert!(again.problems.is_empty() && again.clean, "{again:?}");
}

/// The second one of a name is never found by it: a defragmentation by name would move the first one down and up for ever.
#[test]
fn a_defragmentation_ends_where_two_have_one_name() {
    let disk = volume();
    let (_, mut second) = find(&disk, "c");
    let (at, d) = find(&disk, "d");
    put(&disk, at, &d.tombstone([0; 16]));
    (second.start_block, second.uuid) = (d.start_block, d.uuid);
    put(&disk, home(&disk, ME.uid, "c"), &second);
    forget_clean_close(&disk);
    let mut core = open_simulated(&disk);
    core.delete(ME, ME.uid, "a").unwrap();
    let mut steps = 0;
    let report = core.defrag(ME, &mut |_| {
        steps += 1;
        assert!(steps < 100, "it does not end");
    });
    let report = report.unwrap();
    assert!(report.unmoved.is_empty(), "{report:?}");
    let mut starts: Vec<u64> = core.list(ME).unwrap().iter().map(|one| one.start_block).collect();
    starts.sort_unstable();
    assert_eq!(starts, [0, 4, 8], "both were moved");
}

#[test]
fn a_slot_whose_generations_are_used_up_is_refused_and_repaired() {
    for generation in [u64::MAX - 1, u64::MAX - 2, 1 << 63] {
        let disk = volume();
        tamper(&disk, "b", |inode| inode.generation = generation);
        forget_clean_close(&disk);
        let mut core = open_simulated(&disk);
        // Acknowledged, it would be gone.
        assert!(core.rename(ME, ME.uid, "b", "e").is_err(), "{generation}");
        core.close().unwrap();
        repairs(&disk);
        let mut core = open_simulated(&disk);
        let listed = core.list(ME).unwrap();
        assert_eq!(listed.len(), 4, "{listed:?}");
        assert!(listed.iter().any(|one| one.state == "quarantined"), "{listed:?}");
    }
    let disk = volume();
    tamper(&disk, "b", |inode| inode.generation = (1 << 63) - 2);
    let mut core = open_simulated(&disk);
    core.rename(ME, ME.uid, "b", "e").unwrap();
    assert!(
        core.rename(ME, ME.uid, "e", "f").is_err(),
        "the next one would be the last"
    );
    let handle = open_write(&mut core, "e");
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [2; BLOCK]);
}

/// Table and mirror agree on a generation after which none comes: what was there before it holds.
#[test]
fn a_bucket_whose_generations_are_used_up_is_repaired() {
    let disk = volume();
    let (at, _) = find(&disk, "b");
    let superblock = superblock(&disk);
    let layout = superblock.layout();
    let mut odd = vec![0; BLOCK];
    disk.read(layout.image_at(at.bucket, Parity::Odd, Place::Table).unwrap(), &mut odd);
    odd[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
    let checksum = page::checksum(odd.as_slice().try_into().unwrap(), 4);
    odd[4..8].copy_from_slice(&checksum.to_le_bytes());
    for place in [Place::Table, Place::Mirror] {
        disk.poke(layout.image_at(at.bucket, Parity::Odd, place).unwrap(), &odd);
    }
    forget_clean_close(&disk);
    let unrepaired = disk.copy();
    repairs(&disk);
    for disk in [unrepaired, disk] {
        let mut core = open_simulated(&disk);
        for round in 0..40 {
            create(&mut core, &format!("new-{round}"), BLOCK as u64);
            core.delete(ME, ME.uid, &format!("new-{round}")).unwrap();
        }
    }
}

#[test]
fn a_sparse_table_is_read_as_far_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let options = FormatOptions {
        size_bytes: Some(1 << 30),
        segments: Some(1 << 14),
        ..FormatOptions::default()
    };
    Core::format(&path, &options).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    if rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(32 << 20)).is_ok_and(|at| at == 32 << 20) {
        harness::skip("the file system of the temporary directory tells nobody of holes");
        return;
    }
    let mut core = open(&path);
    for number in 0..10 {
        create(&mut core, &format!("segment-{number}"), BLOCK as u64);
    }
    let bytes = |core: &Core| -> u64 {
        let measures = core.engine().measures();
        let reads = measures.iter().filter(|(name, _, _)| *name == "read");
        reads.map(|(_, _, measured)| measured.bytes).sum()
    };
    let before = bytes(&core);
    assert_eq!(core.list(ME).unwrap().len(), 10);
    let read = bytes(&core) - before;
    assert!(read <= 24 << 20, "{read} bytes of a table of 64 MiB");
}
