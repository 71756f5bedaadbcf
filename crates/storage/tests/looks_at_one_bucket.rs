//! The promise: looking at one segment of a volume that nobody serves reads the bucket of its name, not the table; looking at
//! the volume itself reads its snapshot. After a crash a bucket in doubt is judged as an open would judge it.

mod harness;

use std::os::unix::fs::FileExt;
use std::path::Path;

use baio_storage::Core;
use baio_storage::segment::layout::{BUCKET_BYTES, Layout, Place};
use baio_storage::segment::name::{Key, SegmentName};
use baio_storage::segment::superblock::Superblock;
use harness::{BLOCK, ME, STRANGER, create, format, open};

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
