//! The promise: when the last handle on a plain file is closed the cache forgets it, after what was changed is safe: no descriptor, no
//! space and no page is left, and whoever opens it later sees the file as it is then.

use std::path::Path;

use baio_engine::sim::{Disk, Fault, Faults, Trigger};
use baio_engine::{File, Open, Wait};
use baio_storage::{Access, Core, Handle, Mode};

use crate::harness::through_cache::{B, begin_read, cache_of, end, get, open_cached, put, sync};
use crate::harness::{self, BLOCK, simulated_disk};
use crate::rig;
use crate::rig::hand::{hand, is_sync, write_at};

fn core() -> Core {
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&cache_of(64)).unwrap();
    core
}

fn open(core: &mut Core, path: &Path) -> Handle {
    core.open_file(path, &Open::write()).unwrap()
}

/// Descriptors of this process on files of this directory.
fn descriptors(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(dir)).count()
}

fn settle(core: &mut Core) {
    for _ in 0..1_000 {
        if core.in_flight() == 0 && !core.has_news() {
            return;
        }
        core.turn(Wait::one()).unwrap();
    }
    panic!("it never ends");
}

#[test]
fn nothing_is_left_of_files_that_were_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = core();
    for nth in 0..20 {
        let path = dir.path().join(format!("{nth}"));
        std::fs::write(&path, vec![1; 16 * BLOCK]).unwrap();
        let handle = open(&mut core, &path);
        let reader = core.open_file(&path, &Open::read()).unwrap();
        assert_eq!(get(&mut core, reader, 3, 1, Mode::Cached), [1; BLOCK]);
        put(&mut core, handle, 3, &[2; BLOCK], Mode::Cached);
        core.close_handle(handle);
        assert_eq!(get(&mut core, reader, 3, 1, Mode::Cached), [2; BLOCK]);
        // Requests that are under way end.
        let last = begin_read(&mut core, reader, 9, 2, Mode::Cached);
        core.close_handle(reader);
        end(&mut core, last).result.unwrap();
        settle(&mut core);
        assert_eq!(std::fs::read(&path).unwrap()[3 * BLOCK..4 * BLOCK], [2; BLOCK]);
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(descriptors(dir.path()), 0);
    let stats = core.cache_stats().unwrap();
    assert_eq!(stats.frames_free, stats.frames, "{stats:?}");
    core.close().unwrap();
}

/// The kernel may know the file by a place in the engine's table, which would keep it open, and locked.
#[test]
fn a_file_that_was_closed_is_locked_by_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, [1; BLOCK]).unwrap();
    for mut core in [core(), Core::new(&harness::config()).unwrap()] {
        let file = File::open(&path, &Open::write()).unwrap();
        file.try_lock(true).unwrap();
        let handle = core.add_file(file, Access::Write);
        assert_eq!(get(&mut core, handle, 0, 1, Mode::Direct), [1; BLOCK]);
        core.close_handle(handle);
        let other = File::open(&path, &Open::write()).unwrap();
        // Some kernels let go of a place a little later.
        let is_free = (0..500).any(|_| {
            core.turn(Wait::No).unwrap();
            other.try_lock(true).is_ok() || {
                std::thread::sleep(std::time::Duration::from_millis(2));
                false
            }
        });
        assert!(is_free);
        core.close().unwrap();
    }
}

#[test]
fn who_opens_a_file_again_sees_what_others_made_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut core = core();
    for (round, blocks) in [(1_u8, 4_usize), (2, 4), (3, 9), (4, 2)] {
        std::fs::write(&path, vec![round; blocks * BLOCK]).unwrap();
        let handle = open(&mut core, &path);
        assert_eq!(get(&mut core, handle, 0, 16, Mode::Cached), vec![round; blocks * BLOCK]);
        core.close_handle(handle);
        settle(&mut core);
    }
    core.close().unwrap();
}

/// Who is quicker than the device finds what was changed in the cache.
#[test]
fn who_opens_it_before_that_goes_on_with_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![1; 8 * BLOCK]).unwrap();
    let mut core = core();
    let handle = open(&mut core, &path);
    put(&mut core, handle, 3, &[2; BLOCK], Mode::Cached);
    core.close_handle(handle);
    let handle = open(&mut core, &path);
    assert_eq!(get(&mut core, handle, 3, 1, Mode::Cached), [2; BLOCK]);
    settle(&mut core);
    let hits = core.cache_stats().unwrap().pages_hit;
    assert_eq!(get(&mut core, handle, 3, 1, Mode::Cached), [2; BLOCK]);
    assert_eq!(
        core.cache_stats().unwrap().pages_hit,
        hits + 1,
        "it is open, and was forgotten"
    );
    core.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[3 * BLOCK..4 * BLOCK], [2; BLOCK]);
}

#[test]
fn what_cannot_be_written_and_what_is_pinned_stays() {
    let volume = simulated_disk(&baio_storage::FormatOptions::of_size(1 << 20));
    let disk = Disk::new(16 * B);
    let mut core = open_cached(&volume, 32);
    let handle = core.add_file(File::simulated(&disk, "file"), Access::Write);
    put(&mut core, handle, 3, &[2; BLOCK], Mode::Cached);
    let pin = core.pin_now(handle, 7).unwrap();
    disk.set_faults(Faults::none().when(Trigger::always(Fault::WriteError)));
    core.close_handle(handle);
    settle(&mut core);
    let stats = core.cache_stats().unwrap();
    assert_eq!((stats.frames_failed, stats.frames_clean), (1, 1), "{stats:?}");
    disk.set_faults(Faults::none());
    let handle = core.add_file(File::simulated(&disk, "file"), Access::Write);
    assert_eq!(get(&mut core, handle, 3, 1, Mode::Cached), [2; BLOCK]);
    sync(&mut core, handle).unwrap();
    core.close_handle(handle);
    assert_eq!(core.page(&pin).unwrap(), [0; BLOCK]);
    core.unpin(pin);
    core.turn(Wait::No).unwrap();
    let stats = core.cache_stats().unwrap();
    assert_eq!(stats.frames_free, stats.frames, "{stats:?}");
    core.close().unwrap();
}

/// What was changed is written by the close, and is not found old again for ever.
#[test]
fn nothing_wakes_a_core_for_a_changed_file_that_it_has_forgotten() {
    let mut h = hand(16);
    let write = h.write(3, 1);
    h.good(write);
    assert!(h.cache.next_tick().is_some());
    h.cache.write_soon(h.object);
    assert_eq!(h.cache.next_tick(), None);
    h.end_all(0);
    h.cache.forget(h.object).unwrap();
    assert_eq!(h.cache.next_tick(), None);
}

/// The flush of a sync before the close fails, and with it all that was begun: what has not been written is tried again by its age.
#[test]
fn what_a_failed_flush_keeps_from_the_device_grows_old_again() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let sync = h.sync();
    let io = h.io();
    h.end(io, 0);
    let flush = h.io();
    // It is changed again, and another file has all of the depth when it is closed.
    let write = h.write(0, 2);
    h.good(write);
    let (this, other) = (h.object, h.cache.add(100 * rig::hand::P, 0));
    h.object = other;
    for page in [3, 6] {
        let write = h.write(page, 1);
        h.good(write);
    }
    h.cache.write_soon(other);
    let writes = [h.io(), h.io()];
    h.cache.write_soon(this);
    h.fail(flush);
    h.told(sync);
    assert!(h.cache.next_tick().is_some(), "{:?}", h.cache.stats());
    writes.into_iter().for_each(|io| h.end(io, 0));
    let old = h.cache.next_tick().unwrap();
    h.cache.tick(old);
    h.end_all(0);
    h.cache.forget(this).unwrap();
}

/// Closed, opened and closed again while the device is at work: what was changed in between is left to its age.
#[test]
fn a_file_that_is_closed_again_and_again_is_written_by_one_pass_at_a_time() {
    let mut h = hand(16);
    let write = h.write(3, 1);
    h.good(write);
    h.cache.write_soon(h.object);
    let io = h.io();
    let write = h.write(6, 1);
    h.good(write);
    for _ in 0..3 {
        h.cache.write_soon(h.object);
        h.quiet(); // Though two could be on their way.
    }
    assert_eq!(write_at(&io).0, 3);
    h.end(io, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.quiet();
    assert!(h.cache.next_tick().is_some());
    h.cache.write_soon(h.object);
    let io = h.io();
    assert_eq!(write_at(&io).0, 6);
    h.end(io, 0);
}
