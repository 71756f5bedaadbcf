//! The promise: what an earlier build wrote is read. The images in `tests/images` were written once and are kept; when the
//! format gets a new version, those of the old one stay, and this test says what becomes of them.
//!
//! They are made by `cargo test -p baio-storage --test volume reads_old_images:: -- --ignored`, which makes those that are missing.

use std::path::PathBuf;

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File, Wait};
use baio_storage::segment::inode::{Inode, InodeState, MoveTo};
use baio_storage::segment::layout::{Parity, Place};
use baio_storage::segment::name::Key;
use baio_storage::segment::probe::SlotAddress;
use baio_storage::segment::superblock::VERSION;
use baio_storage::{CreateOptions, FormatOptions, SegmentInfo, check_on};

use crate::harness::image_text::{from_text, to_text};
use crate::harness::images::{find, forget_clean_close, put, segments, state_of, superblock, tamper};
use crate::harness::{
    self, BLOCK, ME, ROOT, STRANGER, create, open_simulated, open_write, read, simulated_disk, write,
};

const SIZE: u64 = 1 << 20;
const NAMES: [&str; 4] = ["closed", "quarantined", "killed", "moving"];

fn path_of(name: &str) -> PathBuf {
    let file = format!("version-{VERSION}-{name}.hex");
    [env!("CARGO_MANIFEST_DIR"), "tests", "images", &file].iter().collect()
}

/// What a segment holds: zeroes, but for one line that says whose it is.
fn contents_of(name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 2 * BLOCK];
    bytes[BLOCK..BLOCK + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// Segments of two owners, one with a limit, one deleted, one with a reserve; closed.
fn closed() -> Disk {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(SIZE),
        ..FormatOptions::default()
    });
    let quota = Inode {
        state: InodeState::Quota,
        owner_uid: STRANGER.uid,
        generation: 1,
        quota_blocks: 7,
        quota_segments: u64::MAX,
        ..Inode::free()
    };
    let key = Key {
        owner_uid: STRANGER.uid,
        name: None,
    };
    let superblock = superblock(&disk);
    let bucket = key.hash(&superblock.hash_seed) % superblock.layout().buckets();
    put(&disk, SlotAddress { bucket, slot: 0 }, &quota);
    forget_clean_close(&disk);
    let mut core = open_simulated(&disk);
    for name in ["wal", "heap", "gone"] {
        create(&mut core, name, 2 * BLOCK as u64);
        let handle = open_write(&mut core, name);
        write(&mut core, handle, 0, &contents_of(name)).unwrap();
    }
    core.delete(ME, ME.uid, "gone").unwrap();
    let options = CreateOptions {
        reserve_bytes: 5 * BLOCK as u64,
        mode: 0o640,
        ..CreateOptions::of_size(2 * BLOCK as u64)
    };
    core.create(STRANGER, STRANGER.uid, "théirs", &options).unwrap();
    core.close().unwrap();
    disk
}

/// The same with a segment whose blocks a later one took.
fn quarantined() -> Disk {
    let disk = closed();
    let (_, wal) = find(&disk, "wal");
    tamper(&disk, "heap", |heap| heap.start_block = wal.start_block + 1);
    forget_clean_close(&disk);
    open_simulated(&disk).close().unwrap();
    disk
}

/// The same, killed in the middle of a delete: the table has it, the mirror does not.
fn killed() -> Disk {
    let disk = closed();
    drop(open_simulated(&disk));
    let (at, heap) = find(&disk, "heap");
    let layout = *superblock(&disk).layout();
    let mirror_at = layout.bucket_at(at.bucket, Place::Mirror).unwrap();
    let mut mirror = [0; 2 * BLOCK];
    disk.read(mirror_at, &mut mirror);
    put(&disk, at, &heap.tombstone([0; 16]));
    disk.poke(mirror_at, &mirror);
    disk
}

/// The same, killed in the middle of a move: of two blocks the first is in its new place, and is not what it was in the old.
fn moving() -> Disk {
    let disk = closed();
    drop(open_simulated(&disk));
    let to = MoveTo {
        start: 20,
        blocks: 3,
        done: 1,
    };
    let (_, heap) = find(&disk, "heap");
    let place = |start: u64| superblock(&disk).layout().run_at(start, 2).unwrap().0;
    disk.poke(place(to.start), &contents_of("heap")[..BLOCK]);
    disk.poke(place(heap.start_block), &[0x5a; BLOCK]);
    tamper(&disk, "heap", |heap| {
        heap.state = InodeState::Moving;
        heap.move_to = Some(to);
    });
    disk
}

#[test]
#[ignore = "writes those images that are not there yet"]
fn make_the_images() {
    for (name, disk) in NAMES.into_iter().zip([closed(), quarantined(), killed(), moving()]) {
        if !path_of(name).exists() {
            let mut bytes = vec![0; SIZE as usize];
            disk.read(0, &mut bytes);
            std::fs::write(path_of(name), to_text(&bytes)).unwrap();
        }
    }
}

fn summary(infos: &[SegmentInfo]) -> Vec<(u32, &str, u64, u64, &str)> {
    let blocks = |bytes: u64| bytes / BLOCK as u64;
    infos
        .iter()
        .map(|info| {
            let (size, reserve) = (blocks(info.size_bytes), blocks(info.reserve_bytes));
            (info.owner_uid, info.name.as_str(), size, reserve, info.state)
        })
        .collect()
}

#[test]
fn what_was_written_once_is_read() {
    let theirs = (STRANGER.uid, "théirs", 2, 5, "live");
    let (wal, heap) = ((ME.uid, "wal", 2, 2, "live"), (ME.uid, "heap", 2, 2, "live"));
    let lost = (ME.uid, "wal", 2, 2, "quarantined");
    let half_way = (ME.uid, "heap", 2, 2, "moving");
    let expected = [
        vec![heap, wal, theirs],
        vec![heap, lost, theirs],
        vec![wal, theirs],
        vec![half_way, wal, theirs],
    ];
    for (name, expected) in NAMES.into_iter().zip(expected) {
        let bytes = from_text(&std::fs::read_to_string(path_of(name)).unwrap());
        let disk = Disk::new(bytes.len() as u64);
        disk.poke(0, &bytes);
        assert_eq!(superblock(&disk).is_clean(), matches!(name, "closed" | "quarantined"));
        assert_eq!(superblock(&disk).valid_snapshot().is_some(), name == "closed", "{name}");
        let mut engine = Engine::simulated(Sim::new(3).unwrap(), &harness::config()).unwrap();
        let report = check_on(&mut engine, &File::simulated(&disk, "disk"), false).unwrap();
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
        let told = (report.in_doubt, report.quarantined, report.unfinished_moves);
        let is = |image: &str| u64::from(name == image);
        assert_eq!(told, (is("killed"), is("quarantined"), is("moving")));

        let mut core = open_simulated(&disk);
        assert_eq!(summary(&core.list(ROOT).unwrap()), expected, "{name}");
        for &(owner_uid, segment, _, _, state) in &expected {
            // In one image "heap" has a block of "wal" instead of its own first one.
            if owner_uid == ME.uid && state != "quarantined" && !(name == "quarantined" && segment == "heap") {
                let handle = open_write(&mut core, segment);
                assert!(
                    read(&mut core, handle, 0, 2 * BLOCK).unwrap() == contents_of(segment),
                    "{name}: {segment}"
                );
            }
        }
        let options = CreateOptions::of_size(3 * BLOCK as u64);
        let over = core.create(STRANGER, STRANGER.uid, "more", &options).unwrap_err();
        assert_eq!(over.code(), "EDQUOT", "{name}: {over}");
        create(&mut core, "new", BLOCK as u64);
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
        core.close().unwrap();
        assert!(
            segments(&disk)
                .iter()
                .all(|(_, inode)| inode.state != InodeState::Moving)
        );
        let (at, _) = find(&disk, "new");
        assert_eq!(state_of(&disk, at), InodeState::Live);
        assert!(
            superblock(&disk)
                .layout()
                .image_at(at.bucket, Parity::Even, Place::Table)
                .is_some()
        );
    }
}
