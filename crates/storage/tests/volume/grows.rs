//! The promise: a volume grows in place up to the size that it was formatted for, while it is in use, without moving
//! anything; what it cannot do is refused with the figures. A device that has grown is noticed when it is asked for.

use baio_engine::Wait;
use baio_storage::{Access, Core, CreateOptions, FormatOptions, Identity, ResizeOptions};

use crate::harness::images::{self, superblock};
use crate::harness::through_cache::cache_of;
use crate::harness::{
    self, BLOCK, ME, ROOT, config, create, open, open_moody, open_write, read, read_request, simulated_disk, start,
    write,
};

const MIB: u64 = 1 << 20;

fn format(path: &std::path::Path, size_bytes: u64, max_size_bytes: u64) {
    let options = FormatOptions {
        max_size_bytes: Some(max_size_bytes),
        ..FormatOptions::of_size(size_bytes)
    };
    Core::format(path, &options).unwrap();
}

#[test]
fn a_file_grows_to_its_maximum_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    for (size, max) in [(2 * MIB, 5 * MIB), (40 * MIB, 100 * MIB), (2 * MIB, 63 * MIB)] {
        let _ = std::fs::remove_file(&path);
        format(&path, size, max);
        let mut core = open(&path);
        create(&mut core, "before", BLOCK as u64);
        let handle = open_write(&mut core, "before");
        write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
        let before = core.volume_info().unwrap();
        let over = core
            .create(ME, ME.uid, "big", &CreateOptions::of_size(before.free_bytes + 1))
            .unwrap_err();
        assert_eq!(over.code(), "ENOSPC");
        // A read is under way meanwhile, and is answered as if nothing had happened.
        let request = read_request(&core, handle, 0, BLOCK);
        let ticket = start(&mut core, request);
        let middle = core.resize_volume(ROOT, size + MIB).unwrap();
        assert_eq!(middle.size_bytes, before.size_bytes + MIB);
        let after = core.resize_volume(ROOT, max).unwrap();
        let outcome = core.wait(ticket).unwrap().unwrap();
        assert_eq!(outcome.result.unwrap(), BLOCK as u32);
        let grown = after.size_bytes - before.size_bytes;
        assert!(
            grown > max - size - 2 * MIB && after.free_bytes == before.free_bytes + grown,
            "{after:?}"
        );
        assert_eq!(std::fs::metadata(&path).unwrap().len(), max);
        create(&mut core, "big", after.free_bytes);
        assert_eq!(
            core.resize_volume(ROOT, max).unwrap().size_bytes,
            after.size_bytes,
            "again is nothing"
        );
        drop(core); // As a crash would.
        let mut core = open(&path);
        let info = core.volume_info().unwrap();
        assert_eq!(
            (info.size_bytes, info.free_bytes, info.segments),
            (after.size_bytes, 0, 2)
        );
        let handle = open_write(&mut core, "before");
        assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [7; BLOCK]);
        core.close().unwrap();
        let core = open(&path);
        assert_eq!(core.volume_info().unwrap().size_bytes, after.size_bytes);
        core.close().unwrap();
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_figures() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 * MIB, 4 * MIB);
    let mut core = open(&path);
    let before = core.volume_info().unwrap();
    let shrunk = core.resize_volume(ROOT, MIB).unwrap_err();
    assert!(
        shrunk.code() == "EINVAL" && shrunk.to_string().contains("asked for 1048576"),
        "{shrunk}"
    );
    let beyond = core.resize_volume(ROOT, 5 * MIB).unwrap_err().to_string();
    assert!(
        beyond.contains("asked for 5242880") && beyond.contains("at most"),
        "{beyond}"
    );
    let stranger = Identity::new(Identity::effective().uid.wrapping_add(1).max(1), 0);
    assert_eq!(core.resize_volume(stranger, 3 * MIB).unwrap_err().code(), "EACCES");
    assert_eq!(core.volume_info().unwrap(), before);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * MIB);
    core.resize_volume(Identity::effective(), 3 * MIB).unwrap();
    core.close().unwrap();
}

/// A shrink waits for the log of the very caller: to wait for that would be to wait for ever.
#[test]
fn a_volume_grows_beside_a_change_that_waits_for_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 * MIB, 4 * MIB);
    let mut core = open(&path);
    core.use_cache(&cache_of(16)).unwrap();
    create(&mut core, "data", 4 * BLOCK as u64);
    let handle = open_write(&mut core, "data");
    let pin = core.pin_now(handle, 3).unwrap();
    core.change_now(&pin, 5).unwrap()[0] = 1;
    core.unpin(pin);
    let shrink = core
        .begin_resize(ME, ME.uid, "data", &ResizeOptions::to_size(BLOCK as u64))
        .unwrap();
    let grown = core.resize_volume(ROOT, 3 * MIB).unwrap();
    assert_eq!(grown.device_bytes, 3 * MIB);
    assert!(core.take_answer(&shrink).is_none(), "it waits for the log");
    core.set_durable_lsn(5).unwrap();
    let answer = loop {
        match core.take_answer(&shrink) {
            Some(answer) => break answer,
            None => core.turn(Wait::one()).unwrap(),
        };
    };
    answer.unwrap();
    core.close().unwrap();
}

#[test]
fn a_device_must_have_grown_before() {
    let disk = simulated_disk(&FormatOptions {
        max_size_bytes: Some(8 * MIB),
        ..FormatOptions::of_size(2 * MIB)
    });
    let mut core = harness::open_simulated(&disk);
    let error = core.resize_volume(ROOT, 3 * MIB).unwrap_err().to_string();
    assert!(error.contains("3145728 bytes on a device of 2097152"), "{error}");
    core.close().unwrap();
    // The same volume on a larger device.
    let larger = baio_engine::sim::Disk::new(6 * MIB);
    let mut bytes = vec![0; 2 * MIB as usize];
    disk.read(0, &mut bytes);
    larger.poke(0, &bytes);
    let mut core = harness::open_simulated(&larger);
    assert_eq!(core.volume_info().unwrap().device_bytes, 6 * MIB);
    let info = core.resize_volume(ROOT, 6 * MIB).unwrap();
    assert!(
        info.size_bytes > 5 * MIB && info.size_bytes < info.size_bytes_max,
        "{info:?}"
    );
    core.close().unwrap();
}

/// The update of the superblock fails on the way: which size the volume has is not known, so nothing is changed any more.
#[test]
fn a_failed_growth_latches() {
    let small = simulated_disk(&FormatOptions {
        max_size_bytes: Some(8 * MIB),
        ..FormatOptions::of_size(2 * MIB)
    });
    let disk = baio_engine::sim::Disk::new(4 * MIB);
    let mut bytes = vec![0; 2 * MIB as usize];
    small.read(0, &mut bytes);
    disk.poke(0, &bytes);
    // The four copies as they are, which may fail one by one, and the flush; then copies 0 to 3.
    for fails in 5..9 {
        let disk = disk.copy();
        let (mut core, whims) = open_moody(&disk, &config());
        let seen = whims.borrow().seen;
        whims.borrow_mut().fail_from = Some(seen + fails);
        whims.borrow_mut().fail_count = 1;
        core.resize_volume(ROOT, 4 * MIB).unwrap_err();
        let refused = core.create(ME, ME.uid, "a", &CreateOptions::of_size(1)).unwrap_err();
        assert!(
            refused.to_string().contains("earlier metadata write failed"),
            "{refused}"
        );
        drop(core);
        let mut core = harness::open_simulated(&disk);
        let blocks = superblock(&disk).geometry().data_blocks;
        assert_eq!(core.volume_info().unwrap().size_bytes, blocks * BLOCK as u64);
        let free_bytes = core.volume_info().unwrap().free_bytes;
        create(&mut core, "a", free_bytes);
        core.open_segment(ME, ME.uid, "a", Access::Read).unwrap();
        core.close().unwrap();
    }
}

/// A move that nobody waits for waits for memory as long as it must; growing the volume does not wait for that.
#[test]
fn a_volume_grows_beside_a_move_that_waits() {
    use baio_storage::segment::inode::{InodeState, MoveTo};
    let disk = simulated_disk(&FormatOptions::of_size(8 * MIB));
    let mut core = open_moody(&disk, &config()).0;
    create(&mut core, "data", 300 * BLOCK as u64);
    core.close().unwrap();
    images::tamper(&disk, "data", |inode| {
        inode.state = InodeState::Moving;
        inode.move_to = Some(MoveTo {
            start: 1000,
            blocks: 300,
            done: 0,
        });
    });
    images::forget_clean_close(&disk);
    let mut core = open_moody(&disk, &config()).0;
    let some = core.buffer(4 * BLOCK).unwrap(); // Less than the move needs, enough for the superblock.
    let mut all = Vec::new();
    let mut size = 1 << 20;
    while size >= BLOCK {
        match core.buffer(size) {
            Ok(buffer) => all.push(buffer),
            Err(_) => size /= 2,
        }
    }
    drop(some);
    for _ in 0..10 {
        core.turn(baio_engine::Wait::one()).unwrap();
    }
    let under_way = core.list(ROOT).unwrap();
    assert_eq!(under_way[0].state, "moving");
    let size = core.volume_info().unwrap().device_bytes;
    core.resize_volume(ROOT, size).unwrap();
    drop(all);
    while core.in_flight() > 0 {
        core.turn(baio_engine::Wait::one()).unwrap();
    }
    assert_eq!(core.list(ROOT).unwrap()[0].state, "live");
    core.close().unwrap();
}
