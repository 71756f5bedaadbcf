//! The promise: one bad block costs itself only. Its neighbours, changed with it, reach the device, also at a close; and those
//! who read beside it, or ahead of whom it was read, get what they asked for.

use baio_engine::Memory;
use baio_engine::sim::{Disk, Fault, Faults, Trigger};
use baio_storage::cache::{CacheError, CacheOp, GateId};
use baio_storage::{Core, Handle, Mode};

use crate::harness::through_cache::{self, B, begin_read, code, end, get, got, open_cached, put, slow_disk, sync};
use crate::harness::{BLOCK, ME, create, open_write};
use crate::rig::hand::{Hand, P, hand, is_sync, read_at, write_at};
use crate::rig::{PAGE, buffer};

const BLOCKS: u64 = 48;
const BAD: u64 = 20;

/// A segment, and where it lies on its disk.
fn opened() -> (Disk, Core, Handle, u64) {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 128);
    create(&mut core, "data", BLOCKS * B);
    let handle = open_write(&mut core, "data");
    let start = core.list(ME).unwrap()[0].start_block;
    let at = core.volume_info().unwrap().data_at_bytes + start * B;
    (disk, core, handle, at)
}

fn bad(disk: &Disk, fault: Fault, at: u64) {
    let block = at + BAD * B..at + (BAD + 1) * B;
    disk.set_faults(Faults::none().when(Trigger::always(fault).within(block)));
}

fn on_disk(disk: &Disk, at: u64) -> Vec<u64> {
    let mut bytes = vec![0; BLOCKS as usize * BLOCK];
    disk.power_cut(1).read(at, &mut bytes);
    let written = |block: &u64| bytes[*block as usize * BLOCK..][..BLOCK].iter().all(|byte| *byte == 5);
    (0..BLOCKS).filter(written).collect()
}

fn all_but_the_bad_one() -> Vec<u64> {
    (0..BLOCKS).filter(|block| *block != BAD).collect()
}

#[test]
fn its_changed_neighbours_are_safe_after_one_sync_that_fails() {
    let (disk, mut core, handle, at) = opened();
    put(&mut core, handle, 0, &[5; BLOCKS as usize * BLOCK], Mode::Cached);
    bad(&disk, Fault::WriteError, at);
    sync(&mut core, handle).unwrap_err();
    through_cache::quiet(&mut core);
    assert_eq!(on_disk(&disk, at), all_but_the_bad_one());
    // Only what is not safe is tried again.
    let before = core.cache_stats().unwrap().pages_written;
    sync(&mut core, handle).unwrap_err();
    assert_eq!(core.cache_stats().unwrap().pages_written, before + 1);
    disk.set_faults(Faults::none());
    sync(&mut core, handle).unwrap();
    assert_eq!(on_disk(&disk, at), (0..BLOCKS).collect::<Vec<_>>());
    core.close().unwrap();
}

#[test]
fn its_changed_neighbours_are_safe_after_a_close_that_fails() {
    let (disk, mut core, handle, at) = opened();
    put(&mut core, handle, 0, &[5; BLOCKS as usize * BLOCK], Mode::Cached);
    bad(&disk, Fault::WriteError, at);
    core.close().unwrap_err();
    assert_eq!(on_disk(&disk, at), all_but_the_bad_one());
}

/// One that is far behind it too: the sync is told, and its pass goes on.
#[test]
fn a_pass_goes_on_when_its_sync_has_been_told() {
    let mut h = hand(64);
    for page in [0, 10, 20] {
        let write = h.write(page, 1);
        h.good(write);
    }
    let sync = h.sync();
    let (bad, next) = (h.io(), h.io()); // The depth is two.
    assert_eq!((write_at(&bad).0, write_at(&next).0), (0, 10));
    h.fail(bad);
    h.told(sync);
    let last = h.io();
    assert_eq!(write_at(&last).0, 20);
    h.end(next, 0);
    h.end(last, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.quiet();
    let stats = h.cache.stats();
    assert_eq!((stats.frames_clean, stats.frames_failed), (2, 1), "{stats:?}");
}

/// It takes over from the pass of the sync that was told before it: what fails again is not tried once for each of them.
#[test]
fn syncs_that_were_told_leave_one_pass_together() {
    let mut h = hand(64);
    for page in [0, 10, 20, 30, 40] {
        let write = h.write(page, 1);
        h.good(write);
    }
    let first = h.sync();
    let (zero, ten) = (h.io(), h.io());
    h.fail(zero);
    h.told(first);
    let twenty = h.io();
    let second = h.sync();
    h.fail(ten);
    h.told(second);
    h.end(twenty, 0);
    let mut tried = Vec::new();
    while let Some(io) = h.cache.next_io() {
        if is_sync(&io) {
            h.end(io, 0);
        } else {
            tried.push(write_at(&io).0);
            h.fail(io);
        }
    }
    tried.sort_unstable();
    assert_eq!(tried, [0, 10, 30, 40]);
}

/// Of a dead device no more is asked at a time than of a good one.
#[test]
fn what_was_refused_together_is_tried_one_page_after_the_other() {
    let mut h = hand(64);
    for page in 0..30 {
        let write = h.write(page, 1);
        h.good(write);
    }
    let sync = h.sync();
    let mut under_way: Vec<_> = std::iter::from_fn(|| h.cache.next_io()).collect();
    let most = under_way.len();
    while let Some(io) = under_way.pop() {
        h.fail(io);
        under_way.extend(std::iter::from_fn(|| h.cache.next_io()));
        assert!(under_way.len() <= most.max(2), "{} at a time", under_way.len());
    }
    h.told(sync);
    h.quiet();
    let stats = h.cache.stats();
    assert_eq!((stats.frames_failed, stats.frames_write_back), (30, 0), "{stats:?}");
    // An object that goes meanwhile takes all of them with it.
    let sync = h.sync();
    for _ in 0..3 {
        let io = h.io();
        h.fail(io);
    }
    h.told(sync);
    h.cache.discard(h.object);
    while let Some(io) = h.cache.next_io() {
        h.fail(io);
    }
    let stats = h.cache.stats();
    assert_eq!((stats.frames_failed, stats.frames_write_back), (0, 0), "{stats:?}");
}

/// And does not wait for the log that its sync waited for.
#[test]
fn a_pass_that_nobody_waits_for_leaves_out_what_waits_for_the_log() {
    let mut h = hand(64);
    h.logged(5, 9, 1);
    let write = h.write(0, 1);
    h.good(write);
    let sync = h.sync();
    let bad = h.io();
    h.fail(bad);
    h.told(sync);
    h.quiet();
    assert_eq!(h.cache.lsn_wanted(GateId::default()), None);
    h.cache.set_durable_lsn(GateId::default(), 9);
    let sync = h.sync();
    let mut written = Vec::new();
    while let Some(io) = h.cache.next_io() {
        written.extend((!is_sync(&io)).then(|| write_at(&io).0));
        h.end(io, 0);
    }
    h.good(sync);
    written.sort_unstable();
    assert_eq!(written, [0, 5]);
}

fn reserve_over(h: &mut Hand, bad: u64) -> (Vec<u64>, CacheError) {
    let memory = buffer(&h.memory, 8 * PAGE).into();
    let durability = baio_engine::Durability::None;
    let write = h.ask(h.object, CacheOp::Write { offset: 0, durability }, memory);
    h.good(write);
    let (start, end) = (0, 8 * P);
    h.ask(h.object, CacheOp::Reserve { start, end }, Memory::None);
    let mut written = Vec::new();
    while let Some(io) = h.cache.next_io() {
        let (first, pages, _) = write_at(&io);
        if (first..first + pages).contains(&bad) {
            h.fail(io);
        } else {
            written.extend(first..first + pages);
            h.end(io, 0);
        }
    }
    let done = h.cache.next_done().expect("it ends");
    (written, done.result.unwrap_err())
}

/// What makes way for a direct write is written durably, and told for the same reason.
#[test]
fn a_direct_write_is_refused_for_a_bad_block_and_its_neighbours_are_safe() {
    for bad in 0..8 {
        let mut h = hand(64);
        let (mut written, error) = reserve_over(&mut h, bad);
        written.sort_unstable();
        assert_eq!(error, CacheError::System(baio_engine::Errno::EIO), "{bad}");
        assert_eq!(written, (0..8).filter(|page| *page != bad).collect::<Vec<_>>(), "{bad}");
        assert_eq!(h.cache.stats().frames_clean, 7);
    }
}

#[test]
fn readers_in_order_read_up_to_it_and_behind_it() {
    let (disk, mut core, handle, at) = opened();
    bad(&disk, Fault::ReadError, at);
    for block in 0..BLOCKS {
        let read = begin_read(&mut core, handle, block, 1, Mode::Cached);
        match block {
            BAD => assert_eq!(code(&mut core, read), "EIO"),
            _ => assert_eq!(got(end(&mut core, read)), [0; BLOCK], "{block}"),
        }
    }
    disk.set_faults(Faults::none());
    assert_eq!(
        get(&mut core, handle, 0, 48, Mode::Cached),
        [0; BLOCKS as usize * BLOCK]
    );
    core.close().unwrap();
}

/// Those that wait for a page of a read that fails get theirs; what nobody waits for is not read again.
#[test]
fn only_what_is_wanted_is_read_again() {
    let mut h = hand(64);
    assert_eq!(h.cache.prefetch(h.object, std::slice::from_ref(&(0..8))), Ok(8));
    let whole = h.io();
    let (one, bad, pair) = (h.read(1, 1), h.read(3, 1), h.read(5, 2));
    h.fail(whole);
    let mut again = Vec::new();
    while let Some(io) = h.cache.next_io() {
        let (page, pages) = read_at(&io);
        again.extend(page..page + pages);
        if page == 3 {
            h.fail(io);
        } else {
            h.end(io, page as u8);
        }
    }
    again.sort_unstable();
    assert_eq!(again, [1, 3, 5, 6]);
    let mut ends: Vec<_> = std::iter::from_fn(|| h.cache.next_done()).collect();
    ends.sort_by_key(|done| [one, bad, pair].iter().position(|id| *id == done.id));
    let results: Vec<_> = ends.iter().map(|done| done.result).collect();
    let eio = Err(CacheError::System(baio_engine::Errno::EIO));
    assert_eq!(results, [Ok(4096), eio, Ok(8192)]);
    assert_eq!(h.cache.stats().frames_clean, 3);
}

/// A page that was being written when the sync began fails, and is tried again by the pass: that is no other page.
#[test]
fn a_pass_that_tries_a_page_again_waits_for_all_others_too() {
    let mut h = hand(64);
    let durable = h.durable(50, 1);
    let bad = h.io();
    for page in [10, 20, 30, 40] {
        let write = h.write(page, 1);
        h.good(write);
    }
    let sync = h.sync();
    let (ten, twenty) = (h.io(), h.io());
    h.fail(bad);
    let ends: Vec<_> = std::iter::from_fn(|| h.cache.next_done()).map(|done| done.id).collect();
    assert!(ends.contains(&durable) && ends.contains(&sync));
    h.end(ten, 0);
    h.end(twenty, 0);
    let (thirty, fourty) = (h.io(), h.io());
    h.end(thirty, 0);
    let again = h.io();
    assert_eq!((write_at(&fourty).0, write_at(&again).0), (40, 50));
    h.end(again, 0);
    h.quiet();
    h.end(fourty, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.quiet();
    assert_eq!(h.cache.stats().frames_clean, 5, "{:?}", h.cache.stats());
}

/// A flush that is on its way when the pass of a sync that was told has ended covers nothing of it: another follows.
#[test]
fn a_pass_that_nobody_waits_for_is_flushed_though_a_flush_is_on_its_way() {
    let mut h = hand(64);
    let write = h.write(0, 1);
    h.good(write);
    let first = h.sync();
    let io = h.io();
    h.end(io, 0);
    let flush = h.io();
    for page in [10, 20] {
        let write = h.write(page, 1);
        h.good(write);
    }
    let second = h.sync();
    let (bad, good) = (h.io(), h.io());
    h.fail(bad);
    h.told(second);
    h.end(good, 0);
    h.quiet();
    h.end(flush, 0);
    h.good(first);
    let next = h.io();
    assert!(is_sync(&next));
    h.end(next, 0);
    let stats = h.cache.stats();
    assert_eq!((stats.frames_clean, stats.frames_failed), (2, 1), "{stats:?}");
    h.quiet();
}
