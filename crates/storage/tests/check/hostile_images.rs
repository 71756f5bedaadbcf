//! The promise: pages that somebody made with right checksums, to be as hard as possible on whoever reads them, lock nobody out of a
//! volume that the other pages hold, and a repair ends: what it called sound takes updates again.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use baio_storage::segment::layout::{GENERATION_MAX, Parity, Place};
use baio_storage::segment::page;
use baio_storage::{Access, CheckReport, Core, Error, FormatOptions, check_on};

use crate::harness::images::{find, forget_clean_close, put, superblock, tamper_superblock};
use crate::harness::{BLOCK, ME, config, create, open_simulated, simulated_disk};

fn volume() -> Disk {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(2 << 20),
        ..FormatOptions::default()
    });
    let mut core = open_simulated(&disk);
    for name in ["a", "b", "c"] {
        create(&mut core, name, 4 * BLOCK as u64);
    }
    core.close().unwrap();
    disk
}

fn check(disk: &Disk, repair: bool) -> Result<CheckReport, Error> {
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
    check_on(&mut engine, &File::simulated(disk, "disk"), repair)
}

fn try_open(disk: &Disk) -> Result<Core, Error> {
    let engine = Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap();
    Core::open_on(engine, &File::simulated(disk, "disk"), &config())
}

/// A single page that claims to be further than any update can come.
#[test]
fn a_single_copy_of_the_superblock_uses_up_no_counter() {
    for copy in 0..4 {
        for (sequence, epoch) in [
            (u64::MAX, None),
            (u64::MAX - 1, None),
            (1 << 63, None),
            (1, Some(u64::MAX)),
        ] {
            let disk = volume();
            let mut page = superblock(&disk);
            page.sequence = sequence;
            page.epoch = epoch.unwrap_or(page.epoch);
            page.healed_epoch = 0;
            page.clean_epoch = 0;
            let at = page.layout().superblocks_at()[usize::from(copy)];
            disk.poke(at, page.encode(copy).bytes());
            let what = format!("copy {copy}, sequence {sequence}, epoch {epoch:?}");
            let mut core = try_open(&disk.copy()).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(core.list(ME).unwrap().len(), 3, "{what}");
            core.close().unwrap();
            check(&disk, true).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(check(&disk, false).unwrap().problems, [], "{what}");
            // A second time there is nothing to do.
            assert_eq!(check(&disk, true).unwrap().problems, [], "{what}");
            let mut core = try_open(&disk).unwrap();
            assert_eq!(core.list(ME).unwrap().len(), 3, "{what}");
        }
    }
}

/// Gives the newest image of a bucket this generation, in table and mirror.
fn put_generation(disk: &Disk, bucket: u64, generation: u64, epoch: Option<u64>) {
    let layout = *superblock(disk).layout();
    let at = |place, parity| layout.image_at(bucket, parity, place).unwrap();
    let number = |bytes: &[u8; BLOCK]| u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let read = |parity| {
        let mut bytes = [0; BLOCK];
        disk.read(at(Place::Table, parity), &mut bytes);
        bytes
    };
    let newest = Parity::BOTH.map(read).into_iter().max_by_key(number).unwrap();
    let put = |mut bytes: [u8; BLOCK], generation: u64| {
        bytes[40..48].copy_from_slice(&generation.to_le_bytes());
        if let Some(epoch) = epoch {
            bytes[32..40].copy_from_slice(&epoch.to_le_bytes());
        }
        let sum = page::checksum(&bytes, 4);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        for place in [Place::Table, Place::Mirror] {
            disk.poke(at(place, Parity::of(generation)), &bytes);
        }
    };
    put(newest, generation - 1);
    put(newest, generation);
}

/// What is served must be able to change; and if it is not, a check names it and a repair mends it, once for all.
#[test]
fn a_bucket_whose_generations_are_used_up_is_named_and_repaired() {
    for generation in [GENERATION_MAX, GENERATION_MAX - 1] {
        for epoch in [None, Some(1000), Some(u64::MAX)] {
            let what = format!("generation {generation}, epoch {epoch:?}");
            let disk = volume();
            let (at, _) = find(&disk, "b");
            put_generation(&disk, at.bucket, generation, epoch);
            forget_clean_close(&disk);
            let found = check(&disk, false).unwrap().problems;
            assert!(!found.is_empty(), "{what}");
            check(&disk, true).unwrap();
            assert_eq!(check(&disk, false).unwrap().problems, [], "{what}");
            assert_eq!(check(&disk, true).unwrap().problems, [], "{what}");
            let mut core = try_open(&disk).unwrap();
            assert_eq!(core.list(ME).unwrap().len(), 3, "{what}");
            core.delete(ME, ME.uid, "b").unwrap();
            drop(core);
            let mut core = try_open(&disk).unwrap();
            assert_eq!(core.list(ME).unwrap().len(), 2, "{what}");
            core.close().unwrap();
            assert_eq!(check(&disk, false).unwrap().problems, [], "{what}");
        }
    }
}

/// Where both copies of its other image are damaged, that may have been the last: a check says so, and a repair mends the bucket.
#[test]
fn a_used_up_bucket_of_which_an_image_is_lost_is_told_as_unknown() {
    let disk = volume();
    let (at, _) = find(&disk, "b");
    put_generation(&disk, at.bucket, GENERATION_MAX, None);
    let layout = *superblock(&disk).layout();
    for place in [Place::Table, Place::Mirror] {
        let other = Parity::of(GENERATION_MAX).other();
        let image_at = layout.image_at(at.bucket, other, place).unwrap();
        disk.poke(image_at + 1000, &[0x5a; 100]);
    }
    forget_clean_close(&disk);
    for repair in [false, true] {
        let found = check(&disk, repair).unwrap().problems;
        let kinds: Vec<&str> = found.iter().map(|one| one.kind).collect();
        assert!(
            kinds.contains(&"image-generation") && kinds.contains(&"image-unknown"),
            "repair: {repair}, {kinds:?}"
        );
    }
    assert_eq!(check(&disk, false).unwrap().problems, []);
    let mut core = try_open(&disk).unwrap();
    assert_eq!(core.list(ME).unwrap().len(), 3);
    core.delete(ME, ME.uid, "b").unwrap();
    drop(core);
    assert_eq!(try_open(&disk).unwrap().list(ME).unwrap().len(), 2);
}

/// Before it is repaired it is served, and what would be a generation too many is refused: acknowledged, it would be gone.
#[test]
fn a_bucket_at_its_last_generation_refuses_changes() {
    let disk = volume();
    let (at, _) = find(&disk, "b");
    put_generation(&disk, at.bucket, GENERATION_MAX, None);
    forget_clean_close(&disk);
    let mut core = try_open(&disk).unwrap();
    assert!(core.delete(ME, ME.uid, "b").is_err());
    drop(core);
    assert_eq!(try_open(&disk).unwrap().list(ME).unwrap().len(), 3);
}

/// The same for a slot, whether it is used or was.
#[test]
fn a_slot_that_cannot_change_any_more_is_named_and_repaired() {
    for was_deleted in [false, true] {
        let disk = volume();
        let (at, mut inode) = find(&disk, "b");
        inode.generation = GENERATION_MAX - 1;
        put(&disk, at, &if was_deleted { inode.tombstone([0; 16]) } else { inode });
        forget_clean_close(&disk);
        let found = check(&disk, false).unwrap().problems;
        assert!(found.iter().any(|one| one.kind == "inode-generation"), "{found:?}");
        check(&disk, true).unwrap();
        assert_eq!(check(&disk, false).unwrap().problems, []);
        let mut core = try_open(&disk).unwrap();
        for _ in 0..3 {
            if core.list(ME).unwrap().len() == 3 {
                core.delete(ME, ME.uid, "b").unwrap();
            }
            create(&mut core, "b", BLOCK as u64);
        }
        core.rename(ME, ME.uid, "b", "d").unwrap();
    }
}

/// A pair that claims an epoch of which no later one can be written.
#[test]
fn a_superblock_whose_counters_are_used_up_is_refused_without_harm() {
    for left in 0..8 {
        let disk = volume();
        tamper_superblock(&disk, |superblock| superblock.sequence = u64::MAX - left);
        let before = disk.fingerprint();
        assert!(try_open(&disk).is_err(), "what is opened can be closed: {left}");
        assert!(check(&disk, true).is_err(), "{left}");
        assert_eq!(disk.fingerprint(), before, "{left}");
    }
}

/// A volume whose superblock pairs are of different ages, and of which the table is older than the mirror: as a copy made while
/// the volume was in use, begun before anything was written to the table.
fn copied_while_in_use(path: &std::path::Path) {
    let disk = volume();
    let layout = *superblock(&disk).layout();
    let mut bytes = vec![0; 2 << 20];
    disk.read(0, &mut bytes);
    let [_, _, second, third] = layout.superblocks_at();
    let mut later = superblock(&disk);
    later.sequence += 3;
    for (copy, place) in [(2, second), (3, third)] {
        bytes[place as usize..][..BLOCK].copy_from_slice(later.encode(copy).bytes());
    }
    bytes[layout.table_at() as usize..layout.mirror_at() as usize].fill(0);
    // What is zero becomes a hole, as programs that copy make it.
    let file = std::fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (number, page) in bytes.chunks(BLOCK).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            std::os::unix::fs::FileExt::write_all_at(&file, page, (number * BLOCK) as u64).unwrap();
        }
    }
}

/// Of mixed ages no bucket is known to be whole: whoever opens asks all four images, also where the table is a hole; who opens to
/// read sees what who opens to write would make of it, and says what the owner should know.
#[test]
fn a_copy_of_mixed_ages_is_read_as_it_would_be_healed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.img");
    copied_while_in_use(&path);
    let mut reader = Core::open_to_read(&path, &config()).unwrap();
    assert!(reader.warnings().iter().any(|one| one.contains("different ages")));
    assert!(!reader.volume_info().unwrap().clean);
    assert_eq!(reader.list(ME).unwrap().len(), 3);
    for name in ["a", "b", "c"] {
        reader.open_segment(ME, ME.uid, name, Access::Read).unwrap();
    }
    let free = reader.volume_info().unwrap().free_bytes;
    reader.close().unwrap();
    let mut writer = Core::open(&path, &config()).unwrap();
    assert_eq!(writer.list(ME).unwrap().len(), 3);
    assert_eq!(writer.volume_info().unwrap().free_bytes, free);
    for name in ["a", "b", "c"] {
        writer.open_segment(ME, ME.uid, name, Access::Read).unwrap();
    }
    writer.close().unwrap();
    let report = baio_storage::check(&path, false, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
}
