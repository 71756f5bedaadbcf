//! The promises of the buffer pool, at the cache itself: what is pinned stays, what the log has not reached is written by nobody,
//! and nobody is kept waiting for ever by that.

use baio_engine::{Durability, Memory};
use baio_storage::cache::window::Pattern;
use baio_storage::cache::{CacheError, CacheOp, GateId, PagePin};

use crate::rig::hand::{Hand, P, hand, is_sync, read_at, write_at};
use crate::rig::{PAGE, bytes};

#[test]
fn a_pin_keeps_its_page_and_lets_it_go() {
    let mut h = hand(4);
    h.cached(0, 1, 7);
    let (one, two) = (h.hit(0), h.hit(0));
    for page in 1..20 {
        h.cached(page, 1, 1);
    }
    assert_eq!(h.cache.page(&one).unwrap(), [7; PAGE]);
    h.cache.unpin(one);
    for page in 20..40 {
        h.cached(page, 1, 1);
    }
    assert_eq!(h.cache.page(&two).unwrap(), [7; PAGE], "the second pin still holds it");
    h.cache.unpin(two);
    for page in 40..60 {
        h.cached(page, 1, 1);
    }
    assert!(h.cache.pin_hit(h.object, 0).is_none(), "nothing holds it any more");
}

#[test]
fn a_missing_page_is_read_once_for_all_who_pin_it() {
    let mut h = hand(8);
    let (one, two) = (h.pool(CacheOp::Pin { page: 3 }), h.pool(CacheOp::Pin { page: 3 }));
    let io = h.io();
    assert_eq!(read_at(&io), (3, 1));
    h.quiet();
    h.end(io, 9);
    let one = h.good(one).pin.unwrap();
    let two = h.good(two).pin.unwrap();
    h.quiet();
    assert_eq!(h.cache.page(&one).unwrap(), [9; PAGE]);
    h.cache.unpin(one);
    h.cache.unpin(two);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn a_pin_that_cannot_be_read_is_told_and_holds_nothing() {
    let mut h = hand(4);
    let pin = h.pool(CacheOp::Pin { page: 3 });
    let io = h.io();
    h.fail(io);
    h.told(pin);
    let past = h.pool(CacheOp::Pin { page: 1000 });
    assert_eq!(h.done(past).result, Err(CacheError::PastEnd));
    assert_eq!(h.cache.stats().frames_free, 4);
}

#[test]
fn who_finds_every_frame_pinned_is_told() {
    let mut h = hand(4);
    h.cached(0, 4, 0);
    let pins: Vec<PagePin> = (0..4).map(|page| h.hit(page)).collect();
    let read = h.read(10, 1);
    assert_eq!(h.done(read).result, Err(CacheError::NoFrame));
    let mut pins = pins.into_iter();
    h.cache.unpin(pins.next().unwrap());
    h.cached(10, 1, 3);
    pins.for_each(|pin| _ = h.cache.unpin(pin));
}

#[test]
fn an_unpinned_frame_goes_to_who_waits_for_one() {
    let mut h = hand(4);
    h.cached(0, 4, 0);
    let pins: Vec<PagePin> = (0..4).map(|page| h.hit(page)).collect();
    h.change(&pins[0], 0, 1);
    let sync = h.sync();
    let write = h.io(); // Something is under way, so the read waits.
    let read = h.read(10, 1);
    h.quiet();
    let mut pins = pins.into_iter().rev();
    assert!(h.cache.unpin(pins.next().unwrap()), "somebody goes on by that");
    let fill = h.io();
    assert_eq!(read_at(&fill), (10, 1));
    h.end(fill, 0);
    h.good(read);
    h.end(write, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
    pins.for_each(|pin| _ = h.cache.unpin(pin));
}

#[test]
fn a_page_under_write_back_is_not_changed() {
    let mut h = hand(8);
    h.cached(0, 1, 0);
    let pin = h.hit(0);
    h.change(&pin, 0, 1);
    let sync = h.sync();
    let write = h.io();
    assert_eq!(h.cache.change(&pin, 0), Err(CacheError::BeingWritten));
    let change = h.pool(CacheOp::Change { page: 0, lsn: 0 });
    h.quiet();
    assert_eq!(h.cache.page(&pin).unwrap(), [1; PAGE], "it can be read meanwhile");
    assert_eq!(bytes(&write.memory), [1; PAGE]);
    h.end(write, 0);
    h.good(change);
    h.change(&pin, 0, 2);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.good(sync);
    h.cache.unpin(pin);
    assert_eq!(h.cache.stats().frames_dirty, 1, "the second change is not safe");
}

#[test]
fn nobody_writes_a_page_before_its_log() {
    // Sync, durable write, direct write, direct read, the cleaner by age and by pressure: none of them.
    let mut h = hand(8);
    h.logged(0, 5, 1);
    let sync = h.sync();
    let durable = h.write_with(0, 100, 2, Durability::Data);
    let (start, end) = (0, P);
    let out = h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
    h.cache.tick(baio_engine::Time(60_000_000_000));
    for page in 10..40 {
        h.cached(page, 1, 0);
    }
    let reserve = h.reserve(0, 1);
    h.quiet();
    assert_eq!(h.cache.lsn_wanted(GateId::default()), Some(5));
    h.cache.set_durable_lsn(GateId::default(), 4);
    h.quiet();
    h.cache.set_durable_lsn(GateId::default(), 5);
    assert_eq!(h.cache.lsn_wanted(GateId::default()), None);
    let mut ends = Vec::new();
    loop {
        let io = h.cache.next_io();
        while let Some(done) = h.cache.next_done() {
            assert!(done.result.is_ok(), "{done:?}");
            ends.push(done.id);
        }
        let Some(io) = io else { break };
        assert!(is_sync(&io) || write_at(&io).0 == 0);
        h.end(io, 0);
    }
    for id in [sync, durable, out, reserve] {
        assert!(ends.contains(&id), "{id:?} has not ended");
    }
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn pressure_does_not_write_a_gated_page_and_goes_on_with_the_log() {
    let mut h = hand(4); // Two may be dirty.
    h.logged(0, 5, 1);
    h.logged(1, 6, 1);
    let write = h.write(2, 1);
    h.quiet();
    assert_eq!(
        h.cache.lsn_wanted(GateId::default()),
        Some(6),
        "who waits for room waits for the log"
    );
    let pin = h.cache.pin_hit(h.object, 0).unwrap();
    h.cache.unpin(pin);
    h.cached(3, 1, 0);
    let pin = h.hit(3);
    assert_eq!(h.cache.change(&pin, 7), Err(CacheError::NoRoom));
    h.cache.unpin(pin);
    h.cache.set_durable_lsn(GateId::default(), 5);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, false));
    h.end(io, 0);
    let io = h.io();
    assert!(is_sync(&io));
    h.end(io, 0);
    h.good(write);
}

/// Its page is there, is to be made zero, and can come back: until there is room it is anybody's.
#[test]
fn who_waits_for_room_to_zero_a_page_keeps_its_frame_from_nobody() {
    let mut h = hand(4); // Two may be dirty.
    h.logged(0, 5, 1);
    h.logged(1, 6, 1);
    h.cached(2, 2, 3);
    let pin = h.hit(3);
    let new = h.pool(CacheOp::PinNew { page: 2, lsn: 0 });
    h.quiet();
    let read = h.read(10, 1);
    let fill = h.io();
    assert_eq!(read_at(&fill), (10, 1));
    h.end(fill, 0);
    h.good(read);
    h.cache.set_durable_lsn(GateId::default(), 6);
    h.end_all(0);
    let new = h.good(new).pin.unwrap();
    assert_eq!(h.cache.page(&new).unwrap(), [0; PAGE]);
    h.cache.unpin(new);
    h.cache.unpin(pin);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn a_sync_is_not_kept_waiting_by_a_page_that_changes_on_and_on() {
    let mut h = hand(8);
    h.logged(0, 5, 1);
    let pin = h.hit(0);
    h.change(&pin, 6, 2);
    let sync = h.sync();
    assert_eq!(h.cache.change(&pin, 7), Err(CacheError::LogFirst(6)));
    let change = h.pool(CacheOp::Change { page: 0, lsn: 7 });
    h.quiet();
    h.cache.set_durable_lsn(GateId::default(), 6);
    let write = h.io();
    assert_eq!(bytes(&write.memory), [2; PAGE]);
    assert_eq!(h.cache.change(&pin, 8), Err(CacheError::BeingWritten));
    h.end(write, 0);
    h.good(change);
    h.change(&pin, 8, 3);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
    h.change(&pin, 9, 4); // Nobody waits any more.
    h.cache.unpin(pin);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn a_page_that_is_gated_under_a_running_sync_is_written_by_it() {
    let mut h = hand(16);
    for page in [0, 2, 4] {
        h.logged(page, 1, 1);
    }
    h.cache.set_durable_lsn(GateId::default(), 1);
    let sync = h.sync();
    let (first, second) = (h.io(), h.io());
    h.quiet(); // Two writes at once; page 4 has not been begun.
    let pin = h.hit(4);
    h.change(&pin, 2, 9);
    assert_eq!(h.cache.change(&pin, 3), Err(CacheError::LogFirst(2)));
    h.end(first, 0);
    h.end(second, 0);
    h.quiet();
    h.cache.set_durable_lsn(GateId::default(), 2);
    let third = h.io();
    assert_eq!((write_at(&third), bytes(&third.memory)), ((4, 1, false), vec![9; PAGE]));
    h.end(third, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
    h.cache.unpin(pin);
}

#[test]
fn what_grew_old_behind_the_gate_is_written_after_it() {
    let mut h = hand(16);
    let old = |h: &mut Hand, seconds: u64| h.cache.tick(baio_engine::Time(seconds * 1_000_000_000));
    h.logged(0, 5, 1);
    h.logged(3, 0, 1);
    old(&mut h, 10);
    let io = h.io();
    assert_eq!(
        write_at(&io),
        (3, 1, false),
        "what is not logged does not wait for the log"
    );
    h.end(io, 0);
    let io = h.io();
    assert!(is_sync(&io), "the cleaner does not wait for the log either");
    h.end(io, 0);
    h.quiet();
    h.cache.set_durable_lsn(GateId::default(), 5);
    old(&mut h, 20);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, false));
    h.end(io, 0);
    let io = h.io();
    h.end(io, 0);
    h.quiet();
    assert_eq!(h.cache.stats().frames_dirty, 0);
}

#[test]
fn the_cleaners_walk_does_not_wait_for_a_page_that_is_gated_meanwhile() {
    let mut h = hand(32);
    for page in [0, 2, 4] {
        h.logged(page, 1, 1);
    }
    h.cache.set_durable_lsn(GateId::default(), 1);
    h.cache.tick(baio_engine::Time(10_000_000_000));
    let (first, second) = (h.io(), h.io());
    h.quiet(); // Two writes at once; page 4 has not been begun.
    let pin = h.hit(4);
    h.change(&pin, 2, 9);
    h.cache.unpin(pin);
    h.end(first, 0);
    h.quiet();
    h.end(second, 0);
    let flush = h.io();
    assert!(is_sync(&flush), "what it could write is made safe");
    h.end(flush, 0);
    h.quiet();
}

#[test]
fn the_cleaners_walk_takes_up_a_page_that_the_log_lets_go_meanwhile() {
    let mut h = hand(32);
    h.logged(4, 5, 1);
    h.logged(0, 0, 1);
    h.cache.tick(baio_engine::Time(10_000_000_000));
    let first = h.io();
    h.quiet();
    h.cache.set_durable_lsn(GateId::default(), 5);
    let second = h.io();
    assert_eq!((write_at(&first).0, write_at(&second).0), (0, 4));
    h.end(second, 0);
    h.quiet(); // The flush is for both.
    h.end(first, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.quiet();
    assert_eq!(h.cache.stats().frames_unflushed, 0);
}

#[test]
fn the_oldest_recovery_lsn_is_kept_until_its_page_is_safe() {
    let mut h = hand(16);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), None);
    h.logged(1, 10, 1);
    h.logged(3, 20, 1);
    let pin = h.hit(1);
    h.change(&pin, 30, 2); // A later change of the page leaves its recovery LSN.
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(10));
    h.cache.set_durable_lsn(GateId::default(), 30);
    let flush = h.pool(CacheOp::FlushTo { lsn: 15 });
    let io = h.io();
    assert_eq!(write_at(&io), (1, 1, false));
    h.end(io, 0);
    let io = h.io();
    assert!(is_sync(&io), "page 3 is not of those");
    assert_eq!(
        h.cache.oldest_recovery_lsn(GateId::default()),
        Some(10),
        "written is not safe"
    );
    h.change(&pin, 31, 2); // Its recovery LSN is still the old one: the flush may fail.
    h.fail(io);
    h.told(flush);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(10));
    h.cache.unpin(pin);
    h.cache.set_durable_lsn(GateId::default(), 31);
    let flush = h.pool(CacheOp::FlushTo { lsn: 15 });
    h.end_all(0);
    h.good(flush);
    assert!(
        h.cache
            .oldest_recovery_lsn(GateId::default())
            .is_none_or(|lsn| lsn > 15)
    );
}

#[test]
fn a_failed_write_keeps_the_recovery_lsn() {
    let mut h = hand(16);
    h.logged(1, 10, 1);
    h.cache.set_durable_lsn(GateId::default(), 10);
    let flush = h.pool(CacheOp::FlushTo { lsn: 10 });
    let io = h.io();
    h.fail(io);
    h.told(flush);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(10));
    let flush = h.pool(CacheOp::FlushTo { lsn: 10 });
    let io = h.io();
    h.end(io, 0);
    let io = h.io();
    h.end(io, 0);
    h.good(flush);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), None);
}

#[test]
fn a_new_page_is_zero_and_reads_nothing() {
    let mut h = hand(4);
    let new = h.pool(CacheOp::PinNew { page: 5, lsn: 3 });
    let pin = h.good(new).pin.unwrap();
    h.quiet();
    assert_eq!(h.cache.page(&pin).unwrap(), [0; PAGE]);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(3));
    h.change(&pin, 4, 8);
    // Once more, over what is there.
    let again = h.pool(CacheOp::PinNew { page: 5, lsn: 6 });
    let second = h.good(again).pin.unwrap();
    assert_eq!(h.cache.page(&pin).unwrap(), [0; PAGE]);
    h.cache.unpin(pin);
    h.cache.unpin(second);
}

#[test]
fn a_direct_write_does_not_wait_for_a_pin_and_a_pin_waits_for_a_direct_write() {
    let mut h = hand(8);
    h.cached(0, 2, 1);
    let pin = h.hit(0);
    let refused = h.reserve(0, 2);
    assert_eq!(h.done(refused).result, Err(CacheError::Pinned));
    h.cache.unpin(pin);
    let reserve = h.reserve(0, 2);
    h.good(reserve);
    assert!(h.cache.pin_hit(h.object, 0).is_none());
    let pin = h.pool(CacheOp::Pin { page: 0 });
    h.quiet();
    h.cache.release(h.object, reserve);
    let io = h.io();
    h.end(io, 2);
    let pin = h.good(pin).pin.unwrap();
    assert_eq!(h.cache.page(&pin).unwrap(), [2; PAGE]);
    h.cache.unpin(pin);
}

#[test]
fn a_direct_write_that_comes_behind_a_pin_under_way_is_refused_at_its_end() {
    let mut h = hand(8);
    let pin = h.pool(CacheOp::Pin { page: 0 });
    let fill = h.io();
    let reserve = h.reserve(0, 1);
    h.quiet();
    h.end(fill, 1);
    let pin = h.good(pin).pin.unwrap();
    assert_eq!(h.done(reserve).result, Err(CacheError::Pinned));
    h.cache.unpin(pin);
    let reserve = h.reserve(0, 1);
    h.good(reserve);
}

#[test]
fn a_page_does_not_make_way_for_what_is_read_ahead_of_it() {
    let mut h = hand(4);
    let object = h.cache.add(1000 * P, 16 * PAGE);
    h.cache.hint(object, Pattern::Random).unwrap();
    let read = h.ask(
        object,
        CacheOp::Read { offset: 0 },
        h.memory.buffer(PAGE).unwrap().into(),
    );
    let io = h.io();
    h.end(io, 5);
    h.good(read);
    h.cached(0, 3, 3);
    let others: Vec<PagePin> = (0..3).map(|page| h.hit(page)).collect();
    // Its frame is the only one that could be had for the next page.
    h.cache.hint(object, Pattern::Sequential).unwrap();
    let first = h.ask(object, CacheOp::Pin { page: 0 }, Memory::None);
    let first = h.good(first).pin.unwrap();
    assert_eq!(h.cache.page(&first).unwrap(), [5; PAGE]);
    h.quiet();
    h.cache.unpin(first);
    others.into_iter().for_each(|pin| _ = h.cache.unpin(pin));
}

#[test]
fn a_direct_write_waits_for_the_log_of_what_it_replaces() {
    let mut h = hand(8);
    h.logged(0, 5, 1);
    let reserve = h.reserve(0, 1);
    h.quiet();
    assert_eq!(h.cache.lsn_wanted(GateId::default()), Some(5));
    h.cache.set_durable_lsn(GateId::default(), 5);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, true));
    h.end(io, 0);
    h.good(reserve);
}

#[test]
fn a_direct_write_asks_at_once_for_the_log_of_all_that_it_replaces() {
    let mut h = hand(16);
    for (page, lsn) in [(0, 5), (2, 9), (4, 7)] {
        h.logged(page, lsn, 1);
    }
    let reserve = h.reserve(0, 5);
    h.quiet();
    assert_eq!(h.cache.lsn_wanted(GateId::default()), Some(9));
    h.cache.set_durable_lsn(GateId::default(), 9);
    h.end_all(0);
    h.good(reserve);
}

#[test]
fn a_pin_does_not_push_in_before_a_direct_write_that_waits() {
    let mut h = hand(8);
    h.cached(0, 1, 1);
    let read = h.read(1, 1);
    let fill = h.io();
    let reserve = h.reserve(0, 2);
    h.quiet();
    assert!(h.cache.pin_hit(h.object, 0).is_none());
    let pin = h.pool(CacheOp::Pin { page: 0 });
    h.end(fill, 1);
    h.good(read);
    h.good(reserve);
    h.quiet();
    h.cache.release(h.object, reserve);
    let io = h.io();
    h.end(io, 2);
    let pin = h.good(pin).pin.unwrap();
    h.cache.unpin(pin);
}

#[test]
fn a_pin_of_what_is_gone_is_stale_and_harms_nobody() {
    let mut h = hand(4);
    h.cached(0, 1, 7);
    let (one, two, three) = (h.hit(0), h.hit(0), h.hit(0));
    h.change(&one, 9, 1);
    assert_eq!(h.cache.remove(h.object), Ok(1), "one changed page was lost");
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), None);
    h.object = h.cache.add(1000 * P, 0);
    h.cached(0, 4, 3);
    assert_eq!(h.cache.page(&one), Err(CacheError::StalePin));
    assert_eq!(h.cache.change(&one, 1), Err(CacheError::StalePin));
    let held: Vec<PagePin> = (0..4).map(|page| h.hit(page)).collect();
    for stale in [one, two, three] {
        assert!(!h.cache.unpin(stale));
    }
    let read = h.read(10, 1);
    assert_eq!(h.done(read).result, Err(CacheError::NoFrame), "the new pins still hold");
    held.into_iter().for_each(|pin| _ = h.cache.unpin(pin));
    h.cache.set_durable_lsn(GateId::default(), 100);
    // Every frame is the cache's again.
    (20..24).for_each(|page| h.cached(page, 1, 0));
    let all: Vec<PagePin> = (20..24).map(|page| h.hit(page)).collect();
    all.into_iter().for_each(|pin| _ = h.cache.unpin(pin));
    // A pin of another cache is a stranger.
    let mut other = hand(64);
    other.cached(0, 1, 0);
    let strange = other.hit(0);
    assert_eq!(h.cache.page(&strange), Err(CacheError::StalePin));
    h.cache.unpin(strange);
}

#[test]
fn a_change_of_what_nobody_holds_is_refused() {
    let mut h = hand(4);
    h.cached(0, 1, 7);
    let change = h.pool(CacheOp::Change { page: 0, lsn: 1 });
    assert_eq!(h.done(change).result, Err(CacheError::StalePin));
}
