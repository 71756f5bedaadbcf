//! Reads: hits, gaps, readahead, the object's end, fills that fail.
//! One small story each; every I/O is ended by hand, in the order the story wants.

use baio_engine::{Durability, Errno, Memory, Region};
use baio_storage::cache::{CacheError, CacheOp, Io, IoKind};

use crate::rig::hand::{Hand, P, hand, read_at, write_at};
use crate::rig::{PAGE, buffer, bytes};

#[test]
fn a_hit_ends_in_start() {
    let mut h = hand(16);
    h.cached(3, 2, 7);
    let read = h.read(3, 2);
    let done = h.good(read);
    assert_eq!((done.iterations, bytes(&done.memory)), (1, vec![7; 2 * PAGE]));
    h.quiet();
}

#[test]
fn a_read_starts_every_gap_at_once_and_copies_in_any_order() {
    let mut h = hand(64);
    h.cached(1, 1, 1);
    h.cached(3, 1, 3);
    let read = h.read(0, 6);
    let gaps: Vec<Io> = std::iter::from_fn(|| h.cache.next_io()).collect();
    assert_eq!(gaps.iter().map(read_at).collect::<Vec<_>>(), [(0, 1), (2, 1), (4, 2)]);
    // One page needs no list.
    let is_list = |io: &Io| matches!(io.memory, Memory::Many(_));
    assert_eq!(gaps.iter().map(is_list).collect::<Vec<_>>(), [false, false, true]);
    for io in gaps.into_iter().rev() {
        assert!(h.cache.next_done().is_none());
        h.end(io, 9);
    }
    let done = h.good(read);
    // The last gaps came first, so one wake-up was enough.
    assert_eq!(done.iterations, 2);
    let firsts: Vec<u8> = bytes(&done.memory).chunks(PAGE).map(|page| page[0]).collect();
    assert_eq!(firsts, [9, 1, 9, 3, 9, 9]);
}

#[test]
fn a_read_ends_at_the_objects_end() {
    let mut h = hand(16);
    let small = h.cache.add(P + 512, 0);
    let memory = buffer(&h.memory, 4 * PAGE).into();
    let read = h.ask(small, CacheOp::Read { offset: 100 }, memory);
    let io = h.io();
    assert_eq!(
        io.kind,
        IoKind::Read {
            offset: 0,
            len: 4096 + 512
        }
    );
    h.end(io, 1);
    assert_eq!(h.done(read).result, Ok(4096 + 512 - 100));
    let memory = buffer(&h.memory, 10).into();
    let behind = h.ask(small, CacheOp::Read { offset: 1 << 40 }, memory);
    assert_eq!(h.done(behind).result, Ok(0));
    let memory = buffer(&h.memory, 513).into();
    let durability = Durability::None;
    let past = h.ask(small, CacheOp::Write { offset: P, durability }, memory);
    assert_eq!(h.done(past).result, Err(CacheError::PastEnd));
    // The last page is written as far as it belongs to the object.
    let memory = buffer(&h.memory, 512).into();
    let durability = Durability::Data;
    let last = h.ask(small, CacheOp::Write { offset: P, durability }, memory);
    let io = h.io();
    assert_eq!((io.memory.len(), write_at(&io)), (512, (1, 0, true)));
    h.end(io, 0);
    h.good(last);
}

#[test]
fn a_failed_fill_is_told_to_who_waits_and_forgotten() {
    let mut h = hand(16);
    let (one, two) = (h.read(0, 1), h.read(0, 1));
    let io = h.io();
    h.fail(io);
    h.told(one);
    h.told(two);
    assert_eq!(h.cache.stats().frames_free, 16);
    h.cached(0, 1, 4);
}

#[test]
fn a_short_fill_is_good_as_far_as_it_came() {
    let mut h = hand(16);
    let read = h.read(0, 3);
    let io = h.io();
    h.cache.io_ended(io.id, Ok(4096 + 4095), io.memory);
    let (good, short) = (h.io(), h.io());
    assert_eq!((read_at(&good), read_at(&short)), ((2, 1), (1, 1)));
    h.end(good, 1);
    h.cache.io_ended(short.id, Ok(4095), short.memory);
    let done = h.done(read);
    assert_eq!(
        (done.result, done.bytes_done),
        (Err(CacheError::System(Errno::EIO)), 4096)
    );
    assert!(h.is_cached(0) && !h.is_cached(1) && h.is_cached(2));
}

#[test]
fn a_reader_in_order_is_read_ahead_of_and_a_random_one_is_not() {
    let mut h = hand(256);
    let object = h.cache.add(1000 * P, 16 * PAGE);
    h.object = object;
    let mut asked = 0;
    for page in 0..40 {
        let read = h.read(page, 1);
        while let Some(io) = h.cache.next_io() {
            asked += 1;
            h.end(io, 1);
        }
        h.good(read);
    }
    let stats = h.cache.stats();
    assert!(asked <= 12, "{asked} reads for forty pages in order");
    assert!(stats.ahead_hit > 20, "{stats:?}");
    let before = stats.pages_filled;
    for nth in 0..40 {
        h.cached(200 + nth * 397 % 800, 1, 1);
    }
    assert_eq!(h.cache.stats().pages_filled - before, 40);
}

#[test]
fn a_readahead_that_fails_is_told_to_nobody() {
    let mut h = hand(256);
    h.object = h.cache.add(1000 * P, 16 * PAGE);
    for page in 0..20 {
        let read = h.read(page, 1);
        while let Some(io) = h.cache.next_io() {
            let (first, pages) = read_at(&io);
            if first > page {
                h.fail(io); // Only what nobody asked for.
            } else if pages > 1 {
                h.cache.io_ended(io.id, Ok(4096), io.memory);
            } else {
                h.end(io, 1);
            }
        }
        h.good(read);
    }
    assert!(h.cache.stats().failed_fills > 0);
}

#[test]
fn a_cancelled_request_gives_its_memory_back_and_its_pages_come_all_the_same() {
    let mut h = hand(16);
    let (one, two) = (h.read(0, 2), h.read(0, 2));
    let io = h.io();
    h.cache.cancel(one);
    let done = h.done(one);
    assert_eq!((done.result, done.memory.len()), (Err(CacheError::Cancelled), 2 * PAGE));
    h.end(io, 1);
    h.good(two);
    assert_eq!(h.cache.stats().frames_clean, 2);
}

#[test]
fn a_long_read_does_not_overtake_who_waits_for_a_frame() {
    let mut h = hand(8); // A window is two pages.
    h.cached(20, 6, 1);
    let pins = [20, 21, 22, 23, 24, 25].map(|page| h.hit(page));
    let long = h.read(0, 4);
    let fills = [h.io(), h.io()];
    let others = [h.read(50, 1), h.read(60, 1)];
    h.quiet();
    // It lets go of its first page and would have another one ready behind its second; then it needs that.
    let asked = fills.map(|io| {
        h.end(io, 2);
        let asked = h.io();
        h.quiet();
        asked
    });
    assert_eq!(asked.each_ref().map(read_at), [(50, 1), (60, 1)]);
    for (io, other) in asked.into_iter().zip(others) {
        h.end(io, 3);
        h.good(other);
    }
    h.end_all(2);
    assert_eq!(bytes(&h.good(long).memory), vec![2; 4 * PAGE]);
    for pin in pins {
        h.cache.unpin(pin);
    }
}

#[test]
fn a_peers_memory_is_read_once_and_written_once() {
    let mut h = hand(16);
    let region = Region::create(4 * PAGE).unwrap();
    region.span(0, 8192).unwrap().copy_in(&[5; 8192]);
    let durability = Durability::None;
    let span = region.span(100, 4096).unwrap();
    let write = h.ask(h.object, CacheOp::Write { offset: 50, durability }, Memory::Span(span));
    // The first page waits for its fill, and was not copied yet; when it is, that is what is written.
    region.span(0, 8192).unwrap().copy_in(&[6; 8192]);
    h.end_all(1);
    h.good(write);
    region.span(0, 8192).unwrap().copy_in(&[7; 8192]); // Too late to matter.
    let span = region.span(8192, 4096).unwrap();
    let read = h.ask(h.object, CacheOp::Read { offset: 50 }, Memory::Span(span));
    h.good(read);
    let mut seen = [0; 4097];
    region.span(8192, 4097).unwrap().copy_out(&mut seen);
    assert!(seen[..4096] == [6; 4096] && seen[4096] == 0);
}

#[test]
fn stale_names_do_nothing() {
    let mut h = hand(16);
    let read = h.read(0, 1);
    let io = h.io();
    let id = io.id;
    h.end(io, 1);
    h.good(read);
    h.cache.cancel(read);
    h.cache.io_ended(id, Ok(4096), Memory::None);
    h.cache.io_released(id, Memory::None);
    h.cache.release(h.object, read);
    // Another I/O may have its place by now; and one is ended once, and brings back only what it kept.
    let read = h.read(1, 1);
    let io = h.io();
    h.cache.io_ended(id, Err(Errno::EIO), Memory::None);
    h.cache.io_released(io.id, Memory::None);
    h.quiet();
    h.end(io, 1);
    h.good(read);
    let read = h.read(2, 1);
    let io = h.io();
    h.cache.io_ended(io.id, Err(Errno::ETIMEDOUT), Memory::None);
    h.done(read).result.unwrap_err();
    h.cache.io_ended(io.id, Ok(4096), Memory::None);
    assert_eq!(h.cache.stats().frames_lost, 1);
    h.cache.io_released(io.id, io.memory);
    assert_eq!(h.cache.stats().frames_lost, 0);
    assert_eq!(h.cache.remove(h.object), Ok(0));
    assert_eq!(h.cache.remove(h.object), Err(CacheError::NoObject));
    let read = h.read(0, 1);
    assert_eq!(h.done(read).result, Err(CacheError::NoObject));
    h.object = h.cache.add(P, 0);
    let read = h.read(0, 1);
    let io = h.io(); // Nothing of the old object is found.
    h.end(io, 1);
    h.good(read);
}

#[test]
fn a_shrink_needs_what_is_cut_off_to_be_gone() {
    let mut h = hand(16);
    for page in 0..2 {
        let write = h.write(page, 1);
        h.good(write);
    }
    assert_eq!(h.cache.shrink(h.object, P), Err(CacheError::Busy));
    let cut = h.reserve(1, 999);
    h.end_all(0);
    h.good(cut);
    assert_eq!(h.cache.shrink(h.object, P), Ok(()));
    h.cache.release(h.object, cut);
    assert_eq!(h.cache.stats().frames_free, 15);
    let write = h.write(1, 1);
    assert_eq!(h.done(write).result, Err(CacheError::PastEnd));
}

/// Changed, waiting for the log, refused by the device, written and not flushed: in any mix.
#[test]
fn nothing_that_is_not_safe_is_dropped_unasked() {
    for kinds in 1..16_u32 {
        let mut h = hand(16);
        let is_of = |kind: u32| kinds >> kind & 1 == 1;
        for kind in [1, 0].into_iter().filter(|kind| is_of(*kind)) {
            let page = u64::from(kind);
            let write = h.write(page, 1);
            h.good(write);
            let (start, end) = (page * P, (page + 1) * P);
            h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
            let io = h.io();
            match kind {
                0 => h.end(io, 0),
                _ => h.fail(io),
            }
            h.cache.next_done().unwrap();
        }
        if is_of(2) {
            h.logged(2, 5, 1);
        }
        if is_of(3) {
            let write = h.write(3, 1);
            h.good(write);
        }
        let stats = h.cache.stats();
        let counts = [
            stats.frames_unflushed,
            stats.frames_failed,
            stats.frames_gated,
            stats.frames_dirty,
        ];
        assert_eq!(counts, [0, 1, 2, 3].map(|kind| u32::from(is_of(kind))));
        assert_eq!(h.cache.forget(h.object), Err(CacheError::Busy), "{counts:?}");
        assert_eq!(h.cache.remove(h.object), Ok(counts.iter().sum::<u32>().into()));
    }
}

#[test]
fn what_grows_does_not_shrink_and_the_other_way_round() {
    let mut h = hand(16);
    let (size, more) = (1000 * P, 1001 * P);
    let fits = |h: &mut Hand, page: u64| {
        let write = h.write(page, 1);
        h.done(write).result.is_ok()
    };
    h.cache.shrink(h.object, more).unwrap();
    assert!(!fits(&mut h, 1000));
    h.cache.grow(h.object, more).unwrap();
    assert!(fits(&mut h, 1000));
    h.cache.grow(h.object, size).unwrap();
    assert!(fits(&mut h, 1000));
}
