//! The promise: looking at one segment of a volume that nobody serves reads the bucket of its name, not the table; looking at
//! the volume itself reads its snapshot. After a crash a bucket in doubt is judged as an open would judge it.

use std::os::unix::fs::FileExt;
use std::path::Path;

use baio_storage::segment::layout::{BUCKET_BYTES, Layout, Place};
use baio_storage::segment::name::{Key, SegmentName};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Core, FormatOptions};

use crate::harness::images;
use crate::harness::{BLOCK, ME, STRANGER, create, format, open, open_simulated, simulated_disk};

fn superblock(path: &Path) -> Superblock {
    Superblock::decode(&std::fs::read(path).unwrap()[..BLOCK], 0).unwrap()
}

fn home(superblock: &Superblock, name: &str) -> u64 {
    let key = Key::segment(ME.uid, SegmentName::new(name).unwrap());
    key.hash(&superblock.hash_seed) % superblock.layout().buckets()
}

fn poke(path: &Path, at: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn destroy_all_but(path: &Path, layout: &Layout, bucket: u64) {
    for other in (0..layout.buckets()).filter(|other| *other != bucket) {
        for place in [Place::Table, Place::Mirror] {
            poke(
                path,
                layout.bucket_at(other, place).unwrap(),
                &[0xee; BUCKET_BYTES as usize],
            );
        }
    }
}

#[test]
fn one_segment_costs_one_bucket_and_the_volume_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 16 << 20);
    let mut core = open(&path);
    create(&mut core, "a", 3 * BLOCK as u64);
    core.close().unwrap();
    let (info, _) = Core::inspect(&path, ME).unwrap();
    let superblock = superblock(&path);
    destroy_all_but(&path, superblock.layout(), home(&superblock, "a"));
    let segment = Core::inspect_segment(&path, ME, ME.uid, "a").unwrap();
    assert_eq!((segment.size_bytes, segment.state), (3 * BLOCK as u64, "live"));
    assert_eq!(Core::inspect_volume(&path).unwrap(), info);
    assert!(Core::inspect(&path, ME).is_err(), "the table cannot be read");
    let stranger = Core::inspect_segment(&path, STRANGER, ME.uid, "a").unwrap_err();
    assert_eq!(stranger.code(), "EACCES");
    let missing = Core::inspect_segment(&path, STRANGER, STRANGER.uid, "a");
    assert!(missing.is_err());
}

#[test]
fn what_is_wrong_with_a_volume_is_told_without_its_segments() {
    const SIZE: u64 = 2 << 20;
    let disk = simulated_disk(&FormatOptions::of_size(SIZE));
    let front = &images::superblock(&disk).layout().superblocks_at()[..2];
    let early = front.iter().map(|&at| {
        let mut page = [0; BLOCK];
        disk.read(at, &mut page);
        (at, page)
    });
    let early: Vec<_> = early.collect();
    for name in ["strange", "other"] {
        let mut core = open_simulated(&disk);
        create(&mut core, name, BLOCK as u64);
        core.close().unwrap();
    }
    let (at, _) = images::find(&disk, "strange");
    images::tamper_bytes(&disk, |address, bytes| {
        bytes[0] = 99;
        address == at
    });
    images::forget_clean_close(&disk);
    // As in a copy that was made while the volume was in use.
    for (at, page) in early {
        disk.poke(at, &page);
    }
    let mut bytes = vec![0; SIZE as usize];
    disk.read(0, &mut bytes);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    std::fs::write(&path, bytes).unwrap();
    let warnings = Core::inspect_volume(&path).unwrap().warnings;
    for what in ["unknown inode state 99", "of different ages"] {
        assert!(warnings.iter().any(|told| told.contains(what)), "{what}: {warnings:?}");
    }
    assert_eq!(warnings, Core::inspect(&path, ME).unwrap().0.warnings);
}

#[test]
fn after_a_crash_a_bucket_in_doubt_is_judged_by_all_four_images() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    let mut core = open(&path);
    create(&mut core, "a", BLOCK as u64);
    core.delete(ME, ME.uid, "a").unwrap();
    let before = std::fs::read(&path).unwrap();
    create(&mut core, "a", 3 * BLOCK as u64);
    drop(core);
    let superblock = superblock(&path);
    // The table did not take its last write, the mirror did.
    let at = superblock
        .layout()
        .bucket_at(home(&superblock, "a"), Place::Table)
        .unwrap();
    poke(&path, at, &before[at as usize..][..BUCKET_BYTES as usize]);
    let segment = Core::inspect_segment(&path, ME, ME.uid, "a").unwrap();
    assert_eq!(segment.size_bytes, 3 * BLOCK as u64);
    let hash = std::fs::read(&path).unwrap();
    Core::inspect_segment(&path, ME, ME.uid, "b").unwrap_err();
    assert!(hash == std::fs::read(&path).unwrap(), "nothing is written");
    let mut core = open(&path);
    assert_eq!(core.list(ME).unwrap().len(), 1, "the open judges the same");
    core.close().unwrap();
}
