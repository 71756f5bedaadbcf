//! The promises of the buffer pool when it ends: once its owner says that the log will not go on, everything under way ends, and
//! a sync still says only what is true. And lists of those who waited for the log do not outlive them.

use baio_engine::{Durability, Memory};
use baio_storage::cache::{CacheOp, GateId, Keeper};

use crate::rig::PAGE;
use crate::rig::hand::{Hand, P, hand, is_sync, write_at};

fn pool(h: &mut Hand, op: CacheOp) -> baio_storage::cache::RequestId {
    h.ask(h.object, op, Memory::None)
}

/// Brings a page in and changes it under an LSN.
fn logged(h: &mut Hand, page: u64, lsn: u64) {
    h.cached(page, 1, 0);
    let pin = h.cache.pin_hit(h.object, page).expect("a hit");
    h.cache.change(&pin, lsn).unwrap().fill(1);
    h.cache.unpin(pin);
}

#[test]
fn a_sync_behind_a_shut_gate_waits_for_every_write_it_covers() {
    let mut h = hand(8);
    logged(&mut h, 7, 5);
    h.cache.shut_gates(|_| true);
    let plain = h.write(3, 2);
    h.good(plain);
    let sync = h.sync();
    let write = h.io();
    assert_eq!(write_at(&write), (3, 1, false));
    h.cache.set_durable_lsn(GateId::default(), 5);
    let late = h.io();
    assert_eq!(write_at(&late), (7, 1, false));
    h.end(late, 0);
    h.quiet(); // No flush before the first write has ended.
    h.end(write, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn who_waits_for_room_when_the_gate_is_shut_is_told() {
    let mut h = hand(8);
    for page in 0..7 {
        h.write(page, 1);
    }
    for page in 10..18 {
        let _ = pool(&mut h, CacheOp::PinNew { page, lsn: 100 });
    }
    h.cache.shut_gates(|_| true);
    let _ = h.sync();
    let mut steps = 0;
    while h.cache.requests_under_way() > 0 {
        h.end_all(0);
        while h.cache.next_done().is_some() {}
        steps += 1;
        assert!(steps < 100, "they wait for ever");
    }
}

#[test]
fn a_durable_write_that_waited_for_the_log_leaves_nothing_behind() {
    let mut h = hand(16);
    logged(&mut h, 3, 5);
    let durable = h.write_with(3 * P, 2 * PAGE, 2, Durability::Data);
    h.quiet();
    h.cache.set_durable_lsn(GateId::default(), 5);
    let write = h.io();
    assert_eq!(write_at(&write), (3, 2, true));
    h.end(write, 0);
    h.good(durable);
    // Nobody waits for pages 3 and 4 any more: they are not written beside their neighbour, whoever has that request's place.
    h.read(50, 1);
    let _held = h.io();
    let next = h.durable(5, 3);
    let write = h.io();
    assert_eq!(write_at(&write), (5, 1, true));
    h.end(write, 0);
    h.good(next);
}

#[test]
fn keeping_no_more_of_an_empty_range_changes_nothing() {
    let mut h = hand(64);
    let one = Keeper { id: 1, uid: 7 };
    h.cache.keep(h.object, one, 0..10).unwrap();
    let (start, end) = (10, 5);
    for _ in 0..40 {
        h.cache.keep_no_more(h.object, one, start..end).unwrap();
    }
    // The list would have doubled forty times; and a user can keep a quarter of the frames, of which six are left.
    h.cache.keep(h.object, one, 100..106).unwrap();
    assert!(h.cache.keep(h.object, one, 200..201).is_err());
}
