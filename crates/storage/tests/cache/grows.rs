//! Objects that grow by themselves: with each page of a write past their end, beside I/O that began before that.
//! One small story each; every I/O is ended by hand, in the order the story wants.

use baio_engine::{Durability, Errno, Memory};
use baio_storage::cache::{CacheError, CacheOp, IoKind, ObjectId};

use crate::rig::hand::{Hand, P, hand, read_at, write_at};
use crate::rig::{PAGE, buffer, bytes};

/// An object of 5000 bytes that grows, of which nothing is cached.
fn growing(frames: usize) -> Hand {
    let mut h = hand(frames);
    h.object = h.cache.add(5000, 0);
    h.cache.let_grow(h.object);
    h
}

fn read(h: &mut Hand, offset: u64, len: usize) -> Vec<u8> {
    let memory = buffer(&h.memory, len).into();
    let id = h.ask(h.object, CacheOp::Read { offset }, memory);
    let done = h.good(id);
    bytes(&done.memory)[..done.bytes_done as usize].to_vec()
}

/// What was asked of the device had the length that the object had then, and what lies behind is zero.
#[test]
fn it_grows_while_its_last_page_is_read() {
    let mut h = growing(16);
    let first = h.ask(h.object, CacheOp::Read { offset: 4096 }, buffer(&h.memory, 904).into());
    let io = h.io();
    assert_eq!(io.kind, IoKind::Read { offset: P, len: 904 });
    // Behind that page: nothing is read first.
    let write = h.write_with(3 * P + 10, 20, 7, Durability::None);
    h.good(write);
    h.quiet();
    assert_eq!(h.cache.size(h.object), 3 * P + 30);
    h.end(io, 1);
    assert_eq!(h.good(first).bytes_done, 904);
    assert_eq!(read(&mut h, P, PAGE), [vec![1; 904], vec![0; PAGE - 904]].concat());
    assert_eq!(read(&mut h, 3 * P, PAGE), [vec![0; 10], vec![7; 20]].concat());
}

#[test]
fn it_grows_while_its_last_page_is_written() {
    let mut h = growing(16);
    let durable = h.write_with(P, 904, 1, Durability::Data);
    let io = h.io();
    assert_eq!((io.memory.len(), write_at(&io)), (904, (1, 0, true)));
    let write = h.write_with(2 * P, 100, 2, Durability::None);
    h.good(write);
    // All that was asked of the device is there, though the page has more bytes now.
    h.end(io, 0);
    h.good(durable);
    assert_eq!(h.cache.stats().frames_clean, 1);
    assert_eq!(
        read(&mut h, P, 2 * PAGE),
        [vec![1; 904], vec![0; PAGE - 904], vec![2; 100]].concat()
    );
}

#[test]
fn a_write_grows_it_page_by_page_and_a_reader_sees_what_is_copied() {
    let mut h = growing(16);
    // Half of the frames may be changed: the rest of the write waits.
    let write = h.write_with(2 * P, 12 * PAGE, 3, Durability::None);
    assert_eq!(h.cache.size(h.object), 10 * P);
    assert_eq!(read(&mut h, 9 * P, 2 * PAGE), vec![3; PAGE]);
    for _ in 0..20 {
        match h.cache.next_io() {
            Some(io) => h.end(io, 0),
            None => break,
        }
    }
    h.good(write);
    assert_eq!(h.cache.size(h.object), 14 * P);
}

/// What nobody had written in between is a hole: the device reads it as zeros, or ends before it.
#[test]
fn a_hole_is_read_and_not_guessed() {
    let mut h = growing(16);
    let write = h.write_with(6 * P, PAGE, 3, Durability::None);
    h.good(write);
    let hole = h.ask(
        h.object,
        CacheOp::Read { offset: 4 * P },
        buffer(&h.memory, PAGE).into(),
    );
    let io = h.io();
    assert_eq!(read_at(&io), (4, 1));
    h.end(io, 0);
    assert_eq!(bytes(&h.good(hole).memory), vec![0; PAGE]);
}

#[test]
fn it_shrinks_under_what_waits_and_grows_again() {
    let mut h = growing(16);
    let reserve = h.reserve(1, 99);
    h.good(reserve);
    let write = h.write_with(3 * P, 10, 5, Durability::None);
    let memory = buffer(&h.memory, PAGE).into();
    let read_behind = h.ask(h.object, CacheOp::Read { offset: P }, memory);
    h.quiet();
    h.cache.shrink(h.object, P + 4).unwrap();
    h.cache.release(h.object, reserve);
    h.good(write);
    assert_eq!(h.cache.size(h.object), 3 * P + 10, "a write makes it longer again");
    let io = h.io();
    h.end(io, 1);
    let done = h.good(read_behind);
    assert_eq!(done.bytes_done, 4);
}

#[test]
fn nothing_lies_beyond_the_largest_offset() {
    let mut h = growing(16);
    for offset in [i64::MAX as u64 - 5, u64::MAX - 5] {
        let write = h.write_with(offset, 10, 1, Durability::None);
        assert_eq!(h.done(write).result, Err(CacheError::System(Errno::EFBIG)));
    }
    let pin = h.ask(h.object, CacheOp::PinNew { page: 9, lsn: 0 }, Memory::None);
    assert_eq!(
        h.done(pin).result,
        Err(CacheError::PastEnd),
        "pages of the pool do not make it longer"
    );
    let fixed: ObjectId = h.cache.add(P, 0);
    let durability = Durability::None;
    let memory = buffer(&h.memory, 10).into();
    let past = h.ask(fixed, CacheOp::Write { offset: P, durability }, memory);
    assert_eq!(h.done(past).result, Err(CacheError::PastEnd));
}
