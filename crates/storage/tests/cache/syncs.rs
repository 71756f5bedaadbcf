//! Syncs and failures: what is promised, and what is not after a write or a flush that failed.
//! One small story each; every I/O is ended by hand, in the order the story wants.

use baio_engine::{Durability, Errno, Memory};
use baio_storage::cache::{CacheError, CacheOp, GateId, Io, ObjectId, RequestId};

use crate::rig::hand::{Hand, P, hand, is_sync, write_at};
use crate::rig::{PAGE, buffer, bytes};

#[test]
fn a_page_is_not_evicted_before_a_flush_covered_it() {
    let mut h = hand(4); // Two may be dirty.
    h.write(0, 1);
    h.cache.next_done();
    h.write(1, 1);
    h.cache.next_done();
    let sync = h.sync();
    let writes: Vec<Io> = std::iter::from_fn(|| h.cache.next_io()).collect();
    for io in writes {
        assert!(!write_at(&io).2);
        h.end(io, 0);
    }
    // Written, and the flush runs: reads of other pages must do with the other two frames.
    let flush = h.io();
    for page in 10..20 {
        h.cached(page, 1, 9);
    }
    assert!(h.is_cached(0) && h.is_cached(1));
    assert_eq!(h.cache.stats().frames_unflushed, 2);
    h.end(flush, 0);
    h.good(sync);
    assert_eq!(h.cache.stats().frames_unflushed, 0);
    for page in 20..30 {
        h.cached(page, 1, 9);
    }
    assert!(!h.is_cached(0));
}

#[test]
fn syncs_share_a_flush_that_begins_after_their_writes() {
    let mut h = hand(16);
    let first = h.sync();
    let flush = h.io();
    assert!(is_sync(&flush));
    let write = h.write(0, 1);
    h.good(write);
    let (second, third) = (h.sync(), h.sync());
    let page = h.io();
    h.end(page, 0);
    h.quiet(); // The flush on its way began before that write ended.
    h.end(flush, 0);
    h.good(first);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.good(second);
    h.good(third);
    h.quiet();
    assert_eq!(h.cache.stats().flushes, 2);
}

#[test]
fn a_sync_passes_over_what_became_dirty_later() {
    let mut h = hand(64);
    for page in [0, 10, 20, 30] {
        let write = h.write(page, 1);
        h.good(write);
    }
    let sync = h.sync();
    let mut ahead = 100;
    loop {
        let io = h.io();
        if is_sync(&io) {
            h.end(io, 0);
            break;
        }
        assert!(write_at(&io).0 <= 30, "{io:?}");
        h.end(io, 0);
        for page in [ahead, 0, 10] {
            h.write(page, 2); // Pages on their way to the device make it wait.
        }
        ahead += 1;
        assert!(ahead < 200, "writers keep the sync from ending");
    }
    let ended: Vec<RequestId> = std::iter::from_fn(|| h.cache.next_done()).map(|done| done.id).collect();
    assert!(ended.contains(&sync));
    h.quiet();
}

#[test]
fn a_failed_write_is_told_kept_and_written_again() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    for _ in 0..3 {
        let sync = h.sync();
        let io = h.io();
        assert_eq!(bytes(&io.memory), vec![1; PAGE]);
        h.fail(io);
        h.told(sync);
        h.quiet();
        assert_eq!(h.cache.stats().frames_failed, 1);
    }
    let sync = h.sync();
    let io = h.io();
    h.end(io, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
    assert_eq!((h.cache.stats().frames_failed, h.cache.stats().frames_clean), (0, 1));
}

#[test]
fn a_failed_durable_write_is_told_to_all_who_rely_on_it() {
    let mut h = hand(16);
    let first = h.durable(0, 1);
    let io = h.io();
    let second = h.durable(0, 2);
    h.fail(io);
    h.told(first);
    // The second had not copied: it has a write of its own.
    let io = h.io();
    assert_eq!(bytes(&io.memory), vec![2; PAGE]);
    h.end(io, 0);
    h.good(second);
}

#[test]
fn after_a_failed_flush_no_sync_succeeds_before_the_pages_were_written_again() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let sync = h.sync();
    let io = h.io();
    h.end(io, 0);
    let waiting = h.sync();
    let flush = h.io();
    h.fail(flush);
    h.told(sync);
    h.told(waiting);
    let sync = h.sync();
    let again = h.io();
    assert_eq!(write_at(&again), (0, 1, false));
    h.end(again, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn a_write_that_ran_while_a_flush_failed_is_not_trusted() {
    let mut h = hand(16);
    let first = h.sync();
    let flush = h.io();
    let write = h.write(0, 1);
    h.good(write);
    let (start, end) = (0, P);
    let out = h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
    let io = h.io();
    h.fail(flush);
    h.told(first);
    h.told(out);
    h.end(io, 0);
    assert_eq!(h.cache.stats().frames_failed, 1);
    let sync = h.sync();
    let again = h.io();
    assert_eq!(write_at(&again), (0, 1, false));
    h.end(again, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn a_page_written_again_when_a_flush_fails_counts_for_the_next_sync() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let first = h.sync();
    let io = h.io();
    h.end(io, 0);
    let flush = h.io();
    let reserve = h.reserve(0, 1); // Its page is written again, durably.
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, true));
    h.fail(flush);
    h.told(first);
    let sync = h.sync();
    h.quiet();
    h.end(io, 0);
    h.good(reserve);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn a_broken_object_does_not_take_the_room_of_others() {
    let mut h = hand(16); // Eight may be dirty, four failed of one object.
    let other = h.cache.add(100 * P, 0);
    let mut refused = 0;
    for page in 0..12 {
        h.write(page, 1);
        while let Some(io) = h.cache.next_io() {
            h.fail(io);
        }
        let (start, end, durability) = (0, u64::MAX, Durability::Data);
        h.ask(h.object, CacheOp::Sync { start, end, durability }, Memory::None);
        while let Some(io) = h.cache.next_io() {
            h.fail(io);
        }
        while let Some(done) = h.cache.next_done() {
            refused += u32::from(done.result == Err(CacheError::Unwritable(Errno::EIO)));
        }
    }
    assert_eq!((refused, h.cache.stats().frames_failed), (8, 4));
    for page in 0..4 {
        let memory = buffer(&h.memory, PAGE).into();
        let durability = Durability::None;
        let write = h.ask(
            other,
            CacheOp::Write {
                offset: page * P,
                durability,
            },
            memory,
        );
        h.good(write);
    }
    // The device is repaired: a sync is enough.
    let sync = h.sync();
    h.end_all(0);
    h.good(sync);
    let write = h.write(50, 1);
    h.good(write);
}

#[test]
fn a_device_that_breaks_with_the_limit_reached_does_not_stop_the_others() {
    let mut h = hand(16); // Eight may be dirty.
    for page in 0..8 {
        h.write(page * 2, 1);
    }
    let waits = h.write(100, 1);
    while let Some(io) = h.cache.next_io() {
        h.fail(io);
    }
    let last = std::iter::from_fn(|| h.cache.next_done()).last().unwrap();
    assert_eq!((last.id, last.result), (waits, Err(CacheError::Unwritable(Errno::EIO))));
    assert_eq!(h.cache.stats().frames_failed, 8);
    let other = h.cache.add(100 * P, 0);
    for page in 0..30 {
        let memory = buffer(&h.memory, PAGE).into();
        let durability = Durability::None;
        let write = h.ask(
            other,
            CacheOp::Write {
                offset: page * P,
                durability,
            },
            memory,
        );
        while let Some(io) = h.cache.next_io() {
            assert_eq!(io.object, other);
            h.end(io, 0);
        }
        h.good(write);
    }
}

#[test]
fn a_writer_does_not_wait_for_ever_for_room_that_cannot_come() {
    let mut h = hand(4); // Two may be dirty, three when some of them failed.
    let mut results = Vec::new();
    for _ in 0..4 {
        let object = h.cache.add(100 * P, 0);
        let memory = buffer(&h.memory, PAGE).into();
        let (offset, durability) = (0, Durability::Data);
        h.ask(object, CacheOp::Write { offset, durability }, memory);
        while let Some(io) = h.cache.next_io() {
            h.fail(io);
        }
        results.extend(h.cache.next_done().map(|done| done.result));
    }
    let (told, refused) = (CacheError::System(Errno::EIO), CacheError::Unwritable(Errno::EIO));
    assert_eq!(results, [Err(told), Err(told), Err(told), Err(refused)]);
}

/// Also those of requests that run none, but are ended by whoever finds that what they wait for has come.
#[test]
fn the_iterations_of_all_ends_are_those_of_the_statistics() {
    let mut h = hand(16);
    h.logged(5, 9, 1);
    h.cache.set_durable_lsn(GateId::default(), 9);
    h.cached(0, 2, 1);
    let (start, end) = (0, 2 * P);
    let before = h.cache.stats().iterations;
    h.read(0, 1);
    h.read(8, 1);
    h.write(0, 2);
    h.durable(1, 2);
    h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
    h.pool(CacheOp::FlushTo { lsn: 9 });
    h.sync();
    h.reserve(0, 2);
    h.end_all(0);
    let ends: Vec<_> = std::iter::from_fn(|| h.cache.next_done()).collect();
    let told: u32 = ends.iter().map(|done| done.iterations).sum();
    assert_eq!(ends.len(), 8);
    assert_eq!(u64::from(told), h.cache.stats().iterations - before);
}

/// Objects of which `pages` pages have failed.
fn failed(h: &mut Hand, pages: usize) -> ObjectId {
    let object = h.cache.add(100 * P, 0);
    let memory = buffer(&h.memory, pages * PAGE).into();
    let (offset, durability) = (0, Durability::Data);
    let write = h.ask(object, CacheOp::Write { offset, durability }, memory);
    while let Some(io) = h.cache.next_io() {
        h.fail(io);
    }
    h.told(write);
    object
}

#[test]
fn who_waits_for_room_waits_for_a_durable_write_that_is_about_to_begin() {
    let mut h = hand(4); // Two may be dirty, three when some of them failed.
    let broken = [1, 1, 1].map(|pages| failed(&mut h, pages));
    let memory = buffer(&h.memory, PAGE).into();
    let (offset, durability) = (0, Durability::Data);
    let again = h.ask(broken[0], CacheOp::Write { offset, durability }, memory);
    let waits = h.write(0, 1);
    assert!(h.cache.next_done().is_none());
    let io = h.io();
    h.end(io, 0);
    h.good(again);
    h.good(waits);
}

#[test]
fn who_waits_for_a_broken_device_does_not_keep_back_who_waits_for_another() {
    let mut h = hand(16); // Eight may be dirty.
    let broken = failed(&mut h, 3);
    h.cached(20, 1, 0);
    let pin = h.hit(20);
    for page in 0..5 {
        let write = h.write(page, 1);
        h.good(write);
    }
    let memory = buffer(&h.memory, PAGE).into();
    let (offset, durability) = (9 * P, Durability::None);
    let waits = h.ask(broken, CacheOp::Write { offset, durability }, memory);
    let beside = h.write(9, 1);
    h.good(beside);
    h.change(&pin, 0, 1);
    h.cache.unpin(pin);
    h.cache.cancel(waits);
    assert_eq!(h.done(waits).result, Err(CacheError::Cancelled));
}

#[test]
fn what_is_forgotten_makes_room() {
    let mut h = hand(8); // Four may be dirty.
    let (gone, broken) = (failed(&mut h, 2), failed(&mut h, 1));
    let durable = h.durable(0, 1);
    let io = h.io();
    let memory = buffer(&h.memory, PAGE).into();
    let (offset, durability) = (P, Durability::None);
    let waits = h.ask(broken, CacheOp::Write { offset, durability }, memory);
    h.quiet();
    assert_eq!(h.cache.remove(gone), Ok(2));
    h.good(waits);
    h.end(io, 0);
    h.good(durable);
}
