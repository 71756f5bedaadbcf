//! The promise: an open after a clean close reads no table, and is never wrong for that. The snapshot is believed only as a
//! whole, of the right epoch, with sums that add up; whatever is wrong with it costs a reading of the table, nothing else.

use baio_engine::sim::Disk;
use baio_storage::segment::inode::{Inode, InodeState};
use baio_storage::segment::probe::SlotAddress;
use baio_storage::{CreateOptions, FormatOptions, VolumeInfo};

use crate::harness::images::{forget_clean_close, put, superblock, tamper_superblock};
use crate::harness::{self, BLOCK, ME, Random, STRANGER, create, open_simulated, simulated_disk};

/// A volume with segments of two owners, one of them with a quota, on both sides of a bitmap page's end; closed.
fn closed_volume() -> Disk {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(256 << 20),
        ..FormatOptions::default()
    });
    tamper_superblock(&disk, |superblock| superblock.alloc_hint = 32256 - 20);
    let quota = Inode {
        state: InodeState::Quota,
        owner_uid: STRANGER.uid,
        generation: 1,
        quota_blocks: 9,
        quota_segments: u64::MAX,
        ..Inode::free()
    };
    put(&disk, SlotAddress { bucket: 3, slot: 0 }, &quota);
    forget_clean_close(&disk);
    let mut core = open_simulated(&disk);
    for number in 0..10 {
        create(&mut core, &format!("s{number}"), 7 * BLOCK as u64);
    }
    let options = CreateOptions::of_size(5 * BLOCK as u64);
    core.create(STRANGER, STRANGER.uid, "theirs", &options).unwrap();
    core.delete(ME, ME.uid, "s3").unwrap();
    core.close().unwrap();
    disk
}

/// What an open says of the volume, and whether the owner's limit is known.
fn seen(disk: &Disk) -> VolumeInfo {
    let mut core = open_simulated(disk);
    let info = core.volume_info().unwrap();
    let options = CreateOptions::of_size(5 * BLOCK as u64);
    let over = core.create(STRANGER, STRANGER.uid, "more", &options).unwrap_err();
    assert_eq!(over.code(), "EDQUOT", "{over}");
    info
}

/// The pages of the snapshot: of the bitmap, and of the accounts.
fn pages(disk: &Disk) -> Vec<u64> {
    let superblock = superblock(disk);
    let note = superblock.valid_snapshot().unwrap();
    assert_eq!(
        (note.pages, note.accounts, note.used_blocks, note.segments),
        (2, 2, 9 * 7 + 5, 10)
    );
    let [_, _, copy_2_at, _] = superblock.layout().superblocks_at();
    let bitmap_at = superblock.layout().bitmap_at();
    vec![bitmap_at, bitmap_at + BLOCK as u64, copy_2_at + BLOCK as u64]
}

fn page_at(disk: &Disk, at: u64) -> [u8; BLOCK] {
    let mut page = [0; BLOCK];
    disk.read(at, &mut page);
    page
}

/// Makes the table and its mirror unreadable: whoever opens the volume now has not read them.
fn destroy_table(disk: &Disk) {
    let layout = *superblock(disk).layout();
    disk.poke(layout.table_at(), &vec![0xee; 2 * layout.table_bytes() as usize]);
}

fn opens_without_its_table(disk: &Disk) -> bool {
    let disk = disk.copy();
    destroy_table(&disk);
    let (sim, config) = (baio_engine::sim::Sim::new(1).unwrap(), harness::config());
    let engine = baio_engine::Engine::simulated(sim, &config).unwrap();
    let file = baio_engine::File::simulated(&disk, "disk");
    baio_storage::Core::open_on(engine, &file, &config).is_ok()
}

#[test]
fn an_open_after_a_clean_close_reads_no_table() {
    let disk = closed_volume();
    let scanned = {
        let disk = disk.copy();
        forget_clean_close(&disk);
        seen(&disk)
    };
    pages(&disk);
    assert!(opens_without_its_table(&disk));
    assert_eq!(seen(&disk.copy()), scanned, "with and without the table");
    // After a crash the table is read, whatever snapshot is still there.
    let killed = disk.copy();
    drop(open_simulated(&killed));
    assert!(!opens_without_its_table(&killed));
    // A new volume says that it is empty.
    let options = FormatOptions {
        size_bytes: Some(1 << 20),
        ..FormatOptions::default()
    };
    assert!(opens_without_its_table(&simulated_disk(&options)));
}

#[test]
fn whatever_is_wrong_with_it_the_table_is_read() {
    let disk = closed_volume();
    let right = seen(&disk.copy());
    let mut random = Random(5);
    let older = {
        // The same volume one epoch later: its pages are valid, but for the epoch.
        let disk = disk.copy();
        open_simulated(&disk).close().unwrap();
        disk
    };
    let stale: Vec<(u64, [u8; BLOCK])> = pages(&older).into_iter().map(|at| (at, page_at(&disk, at))).collect();
    for (at, page) in stale {
        let other = older.copy();
        assert_ne!(page_at(&other, at), page, "pages of two epochs differ");
        other.poke(at, &page);
        assert!(!opens_without_its_table(&other), "a page of an older epoch at {at}");
        assert_eq!(seen(&other), right);
    }
    for (number, &at) in pages(&disk).iter().enumerate() {
        let page = page_at(&disk, at);
        let mut flipped = page;
        flipped[random.below(BLOCK as u64) as usize] ^= 1 << random.below(8);
        let another = page_at(&disk, pages(&disk)[(number + 1) % 3]);
        let garbage: [u8; BLOCK] = random.bytes(BLOCK).try_into().unwrap();
        for (what, wrong) in [
            ("zeroes", [0; BLOCK]),
            ("a bit", flipped),
            ("another page", another),
            ("garbage", garbage),
        ] {
            let disk = disk.copy();
            disk.poke(at, &wrong);
            assert!(!opens_without_its_table(&disk), "{what} in page {number}");
            assert_eq!(seen(&disk), right, "{what} in page {number}");
        }
    }
    let notes: [&dyn Fn(&mut baio_storage::segment::superblock::SnapshotNote); 7] = [
        &|note| note.epoch -= 1,
        &|note| note.pages -= 1,
        &|note| note.pages = u64::MAX,
        &|note| note.accounts += 1,
        &|note| note.accounts = u64::MAX,
        &|note| note.used_blocks += 1,
        &|note| note.segments -= 1,
    ];
    for (number, change) in notes.iter().enumerate() {
        let disk = disk.copy();
        tamper_superblock(&disk, |superblock| change(superblock.snapshot.as_mut().unwrap()));
        assert!(!opens_without_its_table(&disk), "note {number}");
        assert_eq!(seen(&disk), right, "note {number}");
    }
}
