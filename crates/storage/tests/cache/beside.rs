//! Beside the cache: direct I/O on the same bytes, and memory that the device keeps.
//! One small story each; every I/O is ended by hand, in the order the story wants.

use baio_engine::{Errno, Memory};
use baio_storage::cache::{CacheError, CacheOp};

use crate::rig::hand::{P, hand, read_at, write_at};
use crate::rig::{PAGE, bytes};

#[test]
fn a_reservation_makes_pages_safe_drops_them_and_keeps_others_out() {
    let mut h = hand(64);
    h.cached(0, 4, 1);
    let write = h.write(1, 2);
    h.good(write);
    let reserve = h.reserve(0, 3);
    let io = h.io();
    assert_eq!(write_at(&io), (1, 1, true));
    let (late_read, late_write) = (h.read(2, 1), h.write(0, 3));
    // What is cached can be read until it is dropped; nothing can be written.
    h.good(late_read);
    h.quiet();
    h.end(io, 0);
    h.good(reserve);
    let read = h.read(2, 2);
    h.quiet();
    let beside = h.read(3, 1);
    h.good(beside);
    h.cache.release(h.object, reserve);
    h.good(late_write);
    let io = h.io();
    assert_eq!(read_at(&io), (2, 1));
    h.end(io, 7);
    h.good(read);
    h.cache.release(h.object, reserve); // A second time does nothing.
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn reservations_of_one_page_follow_one_another() {
    let mut h = hand(16);
    let (one, two, beside) = (h.reserve(0, 2), h.reserve(1, 2), h.reserve(5, 1));
    h.good(one);
    h.good(beside);
    h.quiet();
    h.cache.release(h.object, one);
    h.good(two);
    assert_eq!(h.cache.remove(h.object), Err(CacheError::Busy));
    h.cache.release(h.object, two);
    h.cache.release(h.object, beside);
    assert_eq!(h.cache.remove(h.object), Ok(0));
}

/// Two direct writes of one page were under way when it was first cached, and the second is the first to end.
#[test]
fn a_reservation_that_waits_can_be_released_too() {
    let mut h = hand(16);
    let (long, short) = (h.reserve(0, 8), h.reserve(4, 1));
    h.good(long);
    let read = h.read(4, 1);
    h.cache.release(h.object, short);
    assert_eq!(h.done(short).result, Err(CacheError::Cancelled));
    h.quiet();
    h.cache.release(h.object, long);
    let io = h.io();
    h.end(io, 7);
    h.good(read);
    let again = h.reserve(4, 1);
    h.good(again);
    h.cache.release(h.object, again);
    assert_eq!(h.cache.remove(h.object), Ok(0));
}

#[test]
fn a_reservation_that_is_cancelled_lets_the_others_in() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let reserve = h.reserve(0, 1);
    let io = h.io();
    let late = h.write(0, 2);
    h.cache.cancel(reserve);
    assert_eq!(h.done(reserve).result, Err(CacheError::Cancelled));
    h.end(io, 0);
    h.good(late);
}

#[test]
fn before_a_direct_read_dirty_pages_are_written_out_and_stay() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let (start, end) = (0, P);
    let out = h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, false));
    h.end(io, 0);
    h.good(out);
    h.quiet();
    assert!(h.is_cached(0));
}

#[test]
fn memory_that_does_not_come_back_is_missed_and_then_taken_back() {
    let mut h = hand(16);
    let read = h.read(0, 2);
    let fill = h.io();
    h.cache.io_ended(fill.id, Err(Errno::ETIMEDOUT), Memory::None);
    assert_eq!(h.done(read).result, Err(CacheError::System(Errno::ETIMEDOUT)));
    assert_eq!((h.cache.stats().frames_lost, h.cache.stats().frames_free), (2, 14));

    let durable = h.durable(5, 1);
    let write = h.io();
    h.cache.io_ended(write.id, Err(Errno::ETIMEDOUT), Memory::None);
    assert_eq!(h.done(durable).result, Err(CacheError::System(Errno::ETIMEDOUT)));
    let read = h.read(5, 1); // Its bytes are shared with the device.
    assert_eq!(bytes(&h.good(read).memory), vec![1; PAGE]);
    let again = h.write(5, 2);
    assert_eq!(h.done(again).result, Err(CacheError::Stuck));
    let sync = h.sync();
    assert_eq!(h.done(sync).result, Err(CacheError::Stuck));
    assert_eq!(h.cache.remove(h.object), Err(CacheError::Busy));

    h.cache.io_released(write.id, write.memory);
    h.cache.io_released(fill.id, fill.memory);
    assert_eq!((h.cache.stats().frames_lost, h.cache.stats().frames_failed), (0, 1));
    let sync = h.sync();
    let io = h.io();
    assert_eq!(bytes(&io.memory), vec![1; PAGE]);
    h.end(io, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn with_every_frame_lost_a_read_fails_and_does_not_hang() {
    let mut h = hand(4);
    let mut lost = Vec::new();
    for page in 0..4 {
        let read = h.read(page, 1);
        let io = h.io();
        h.cache.io_ended(io.id, Err(Errno::ETIMEDOUT), Memory::None);
        h.done(read);
        lost.push(io);
    }
    let read = h.read(9, 1);
    assert_eq!(h.done(read).result, Err(CacheError::NoFrame));
    for io in lost {
        h.cache.io_released(io.id, io.memory);
    }
    h.cached(9, 1, 1);
}

#[test]
fn who_came_before_a_reservation_goes_before_it() {
    let mut h = hand(16);
    let one = h.reserve(0, 1);
    h.good(one);
    let read = h.read(0, 1);
    let two = h.reserve(0, 1);
    h.quiet();
    h.cache.release(h.object, one);
    let fill = h.io();
    h.quiet();
    h.end(fill, 1);
    h.good(read);
    h.good(two);
}
