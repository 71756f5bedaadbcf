//! Writes: copies, durable writes, the dirty limit, the cleaner.
//! One small story each; every I/O is ended by hand, in the order the story wants.

use baio_engine::{Durability, Memory, Time};
use baio_storage::cache::CacheError;
use baio_storage::cache::CacheOp;
use baio_storage::cache::GateId;

use crate::rig::hand::{Hand, P, hand, is_sync, read_at, write_at};
use crate::rig::{PAGE, bytes};

#[test]
fn whole_pages_are_written_without_a_read_and_parts_after_one() {
    let mut h = hand(16);
    let whole = h.write(0, 1);
    assert_eq!(h.good(whole).iterations, 1);
    h.quiet();
    let part = h.write_with(P + 100, 8, 2, Durability::None);
    let io = h.io();
    assert_eq!(read_at(&io), (1, 1));
    h.end(io, 5);
    assert_eq!(h.good(part).iterations, 2);
    let read = h.read(1, 1);
    let seen = bytes(&h.good(read).memory);
    assert_eq!((seen[99], seen[100], seen[107], seen[108]), (5, 2, 2, 5));
}

#[test]
fn a_page_under_write_back_is_read_and_not_changed() {
    let mut h = hand(16);
    let durable = h.durable(0, 1);
    let io = h.io();
    let plain = h.write(0, 2);
    h.quiet();
    let read = h.read(0, 1);
    assert_eq!(bytes(&h.good(read).memory)[0], 1);
    assert_eq!(bytes(&io.memory), vec![1; PAGE]);
    h.end(io, 0);
    h.good(durable);
    assert_eq!(h.good(plain).iterations, 2);
    let read = h.read(0, 1);
    assert_eq!(bytes(&h.good(read).memory)[0], 2);
}

#[test]
fn durable_writes_that_were_woken_together_share_one_write() {
    let mut h = hand(16);
    let first = h.durable(0, 1);
    let io = h.io();
    let others = [
        h.durable(0, 2),
        h.write_with(8, 8, 3, Durability::Data),
        h.durable(0, 4),
    ];
    h.quiet();
    h.end(io, 0);
    h.good(first);
    let io = h.io();
    assert_eq!(bytes(&io.memory), vec![4; PAGE]);
    h.quiet();
    h.end(io, 0);
    let writes: u32 = others.map(|id| h.good(id).writes).iter().sum();
    assert_eq!((writes, h.cache.stats().durable_writes), (1, 2));
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn a_durable_write_is_one_device_write_over_all_its_pages() {
    let mut h = hand(64);
    let durable = h.write_with(100, 3 * PAGE, 1, Durability::Data);
    let (head, tail) = (h.io(), h.io());
    assert_eq!((read_at(&head), read_at(&tail)), ((0, 1), (3, 1)));
    h.end(head, 0);
    h.end(tail, 0);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 4, true));
    h.quiet();
    h.end(io, 0);
    assert_eq!(h.good(durable).writes, 1);
    assert_eq!(h.cache.stats().frames_clean, 4);
}

#[test]
fn while_a_durable_write_waits_its_pages_are_written_durably() {
    let mut h = hand(64);
    let durable = h.write_with(0, 2 * PAGE + 100, 1, Durability::Data);
    let fill = h.io();
    // A sync takes the two pages that are copied, and then the third.
    let first = h.sync();
    let two = h.io();
    assert_eq!(write_at(&two), (0, 2, false));
    h.end(fill, 0);
    h.quiet();
    let second = h.sync();
    let third = h.io();
    assert_eq!(write_at(&third), (2, 1, true));
    h.end(third, 0);
    h.end(two, 0);
    let flush = h.io();
    let rest = h.io();
    assert_eq!((is_sync(&flush), write_at(&rest)), (true, (0, 2, true)));
    h.end(rest, 0);
    assert_eq!(h.good(durable).writes, 1);
    h.end(flush, 0);
    h.end_all(0);
    h.good(first);
    h.good(second);
}

#[test]
fn who_was_woken_does_not_overtake_who_waits_for_room() {
    let mut h = hand(8); // Four may be dirty.
    for page in [10, 20, 30] {
        let write = h.write(page, 1);
        h.good(write);
    }
    let durable = h.durable(0, 1);
    let io = std::iter::from_fn(|| h.cache.next_io())
        .find(|io| write_at(io).0 == 0)
        .unwrap();
    let before = h.write(50, 2);
    let after = h.write(0, 3);
    h.end(io, 0); // Page 0 is clean: room for one, and page 0 may be changed.
    h.good(durable);
    h.good(before);
    assert!(h.cache.next_done().is_none());
    h.cache.cancel(after);
}

#[test]
fn writers_above_the_dirty_limit_go_on_in_the_order_of_asking() {
    let mut h = hand(8); // Four may be dirty.
    for page in 0..4 {
        let write = h.write(page * 10, 1);
        h.good(write);
    }
    let waiting = [100, 50, 75].map(|page| h.write(page, 2));
    assert!(h.cache.next_done().is_none());
    // Whoever changes a page that is dirty already needs no room.
    let mut ended = Vec::new();
    while let Some(io) = h.cache.next_io() {
        h.end(io, 0);
        while let Some(done) = h.cache.next_done() {
            assert!(done.result.is_ok() && done.parked == 1, "{done:?}");
            ended.push(done.id);
        }
        let stats = h.cache.stats();
        assert!(stats.frames_dirty + stats.frames_write_back <= 4, "{stats:?}");
        assert!(
            stats.frames_dirty + stats.frames_write_back + stats.frames_unflushed <= 7,
            "{stats:?}"
        );
    }
    assert_eq!(ended, waiting);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

/// What is written and waits for a flush is no burden, so a flush for each page would be none's good.
#[test]
fn who_waits_at_the_dirty_limit_waits_for_a_write_and_for_no_flush() {
    let mut h = hand(64); // 32 may be dirty, and eight wait for a flush.
    for page in 0..32 {
        let write = h.write(page * 2, 1);
        h.good(write);
    }
    for waiting in [100, 110, 120, 130].map(|page| h.write(page, 2)) {
        let io = h.io();
        assert!(!is_sync(&io));
        h.end(io, 0);
        h.good(waiting);
    }
    assert_eq!((h.cache.stats().frames_unflushed, h.cache.stats().flushes), (4, 0));
}

#[test]
fn who_waits_at_the_dirty_limit_for_the_log_has_nothing_flushed() {
    let mut h = hand(16); // Eight may be dirty, and two wait for a flush.
    let write = h.write(0, 1);
    h.good(write);
    let (start, end) = (0, P);
    let out = h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
    let io = h.io();
    h.end(io, 0);
    h.good(out);
    for page in 1..9 {
        h.logged(page, 5, 1);
    }
    let waits = h.write(20, 2);
    h.quiet(); // A flush makes no room.
    h.cache.set_durable_lsn(GateId::default(), 5);
    h.end_all(0);
    h.good(waits);
}

/// All but an eighth of the frames are changed, or written and not flushed: only a flush makes room, and that of the sync is far.
#[test]
fn who_waits_for_room_is_flushed_for_though_a_sync_is_under_way() {
    let mut h = hand(16); // Eight may be dirty, fourteen not be clean.
    for page in 0..8 {
        let write = h.write(page * 2, 1);
        h.good(write);
    }
    let sync = h.sync();
    let slow = h.io();
    for page in 100..106 {
        let io = h.io();
        assert!(!is_sync(&io));
        h.end(io, 0);
        let write = h.write(page, 2);
        h.good(write);
    }
    let last = h.io();
    h.end(last, 0);
    let waits = h.write(200, 2);
    let flush = std::iter::from_fn(|| h.cache.next_io()).find(is_sync).expect("a flush");
    h.end(flush, 0);
    h.good(waits);
    h.end(slow, 0);
    h.end_all(0);
    h.good(sync);
}

#[test]
fn the_cleaner_merges_neighbours_and_goes_on_where_it_left() {
    let mut h = hand(64); // 32 may be dirty; above 21 the cleaner writes, 8 pages at once.
    let mut written = Vec::new();
    for page in (0..26).rev() {
        let write = h.write(page, 1);
        h.good(write);
        while let Some(io) = h.cache.next_io() {
            written.push((write_at(&io).0, write_at(&io).1));
            h.end(io, 0);
        }
    }
    // From the first dirty page on, then from behind that; never one page at a time.
    assert_eq!(written, [(4, 8)]);
    for page in 100..120 {
        h.write(page, 1);
        while let Some(io) = h.cache.next_io() {
            if !is_sync(&io) {
                written.push((write_at(&io).0, write_at(&io).1));
            }
            h.end(io, 0);
        }
    }
    assert_eq!(written[1], (12, 8), "{written:?}");
    assert_eq!(h.cache.stats().cleaner_writes, written.len() as u64);
}

#[test]
fn what_has_grown_old_is_written_and_flushed() {
    let mut h = hand(16);
    h.cache.tick(Time(1_000));
    assert_eq!(h.cache.next_tick(), None);
    let write = h.write(0, 1);
    h.good(write);
    let due = h.cache.next_tick().unwrap();
    h.cache.tick(Time(due.0 - 1));
    h.quiet();
    h.cache.tick(due);
    let io = h.io();
    h.fail(io); // Tried again when it has grown old again.
    h.quiet();
    let due = h.cache.next_tick().unwrap();
    h.cache.tick(due);
    let io = h.io();
    h.end(io, 0);
    let flush = h.io();
    h.end(flush, 0);
    assert_eq!((h.cache.stats().frames_clean, h.cache.next_tick()), (1, None));
}

#[test]
fn durable_writes_of_neighbours_that_were_asked_together_share_one_write() {
    let mut h = hand(64);
    let asked = [3, 1, 2, 0, 9, 4].map(|page| h.durable(page, page as u8));
    let (io, apart) = (h.io(), h.io());
    assert_eq!((write_at(&io), write_at(&apart)), ((0, 5, true), (9, 1, true)));
    h.quiet();
    h.end(apart, 0);
    h.good(asked[4]);
    h.end(io, 0);
    let writes: u32 = [0, 1, 2, 3, 5]
        .map(|nth| h.cache.next_done().map_or(nth, |done| done.writes))
        .iter()
        .sum();
    assert_eq!(writes, 1);
}

#[test]
fn what_neighbours_share_is_no_longer_than_a_merged_write() {
    for (pages, expected) in [
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [(0, 8, true), (8, 2, true)]),
        ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], [(2, 8, true), (0, 2, true)]),
    ] {
        let mut h = hand(64); // Eight pages are merged.
        let asked = pages.map(|page| h.durable(page, 1));
        let writes: Vec<_> = std::iter::from_fn(|| h.cache.next_io()).collect();
        assert_eq!(writes.iter().map(write_at).collect::<Vec<_>>(), expected);
        for io in writes {
            h.end(io, 0);
        }
        assert_eq!(std::iter::from_fn(|| h.cache.next_done()).count(), asked.len());
    }
}

#[test]
fn a_durable_write_is_cancelled_before_its_write_begins() {
    let mut h = hand(64);
    let durable = h.durable(0, 1);
    h.cache.cancel(durable);
    assert_eq!(h.done(durable).result, Err(CacheError::Cancelled));
    let reads = [h.read(5, 1), h.read(5, 1)]; // The first takes the slot.
    let io = h.io();
    h.quiet();
    h.end(io, 0);
    for read in reads {
        h.good(read);
    }
    h.quiet();
    assert_eq!(h.cache.stats().frames_dirty, 1);
}

#[test]
fn a_slow_device_gets_one_pass_of_the_cleaner_after_the_other() {
    let mut h = hand(64);
    let mut now = 0;
    let mut first = None;
    for page in 0..6 {
        let write = h.write(page * 2, 1);
        h.good(write);
        now = h.cache.next_tick().unwrap().0;
        h.cache.tick(Time(now));
        // It never asks for the same moment again.
        assert!(h.cache.next_tick().is_none_or(|next| next.0 > now));
        first = first.or_else(|| h.cache.next_io());
    }
    h.quiet();
    h.end(first.unwrap(), 0);
    let flush = h.io();
    h.end(flush, 0);
    assert_eq!((h.cache.stats().frames_clean, h.cache.stats().frames_dirty), (1, 5));
    h.cache.tick(Time(now + 5_000_000_000));
    assert_eq!(write_at(&h.io()).0, 2);
}

#[test]
fn a_durable_write_keeps_its_pages_until_they_are_safe() {
    let mut h = hand(16);
    let long = h.write_with(0, 2 * PAGE + 100, 1, Durability::Data);
    let fill = h.io();
    assert_eq!(read_at(&fill), (2, 1));
    let short = h.durable(1, 2);
    let io = h.io();
    assert_eq!(write_at(&io), (1, 1, true));
    h.end(io, 0);
    h.good(short);
    for page in 100..150 {
        h.cached(page, 1, 9); // Drives out whatever may go.
    }
    h.end(fill, 0);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 3, true));
    h.end(io, 0);
    assert_eq!(h.good(long).writes, 1);
}

#[test]
fn a_durable_write_that_waits_in_a_queue_keeps_nothing() {
    let mut h = hand(16); // Eight may be dirty; a window is four pages.
    for page in 0..6 {
        let write = h.write(100 + 2 * page, 1);
        h.good(write);
    }
    let durable = h.write_with(0, 4 * PAGE, 1, Durability::Data);
    // Two of its pages are copied. A direct write of the first of them does not wait for the rest.
    let reserve = h.reserve(0, 1);
    let (direct, others): (Vec<_>, Vec<_>) =
        std::iter::from_fn(|| h.cache.next_io()).partition(|io| write_at(io) == (0, 1, true));
    for io in direct {
        h.end(io, 0);
    }
    let mut ended: Vec<_> = std::iter::from_fn(|| h.cache.next_done()).collect();
    assert!(ended.iter().any(|done| done.id == reserve), "{ended:?}");
    h.cache.release(h.object, reserve);
    for io in others {
        h.end(io, 0);
    }
    h.end_all(0);
    ended.extend(std::iter::from_fn(|| h.cache.next_done()));
    let done = ended.iter().find(|done| done.id == durable).unwrap();
    assert!(done.result.is_ok() && done.parked > 0, "{done:?}");
}

#[test]
fn a_durable_write_waits_for_what_is_written_between_its_pages() {
    let mut h = hand(64);
    let write_out = |h: &mut Hand, page: u64| {
        let (start, end) = (page * P, (page + 1) * P);
        h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
        h.io()
    };
    let durable = h.write_with(0, 2 * PAGE + 100, 1, Durability::Data);
    let fill = h.io();
    let before = write_out(&mut h, 0);
    h.end(fill, 0); // All is copied; page 0 is being written.
    let between = write_out(&mut h, 1);
    assert_eq!(write_at(&between), (1, 1, true));
    h.end(between, 0); // Page 1 is safe, and changed again.
    h.write(1, 2);
    let again = write_out(&mut h, 1);
    h.end(before, 0);
    assert!(h.cache.next_io().is_none());
    h.end(again, 0);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 3, true));
    h.end(io, 0);
    let done = std::iter::from_fn(|| h.cache.next_done())
        .find(|done| done.id == durable)
        .unwrap();
    assert_eq!((done.result, done.writes), (Ok(2 * 4096 + 100), 1));
}
