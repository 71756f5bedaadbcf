//! The promises of the write gate over what comes between a write and its flush, and when those go away who waited: recovery LSNs
//! move as far as what is safe, and no change is left waiting for nobody.

use baio_engine::{Durability, Memory};
use baio_storage::cache::{CacheError, CacheOp, GateId};

use crate::rig::PAGE;
use crate::rig::hand::{P, hand, is_sync, write_at};

#[test]
fn a_change_goes_on_when_nobody_waits_for_its_page_any_more() {
    // Whoever wants the page is cancelled: nothing else would end the wait, for the log is not asked to go on.
    for who in 0..4 {
        let mut h = hand(16);
        h.logged(0, 5, 1);
        let pin = h.hit(0);
        let wants = match who {
            0 => h.sync(),
            1 => h.ask(h.object, CacheOp::WriteOut { start: 0, end: P }, Memory::None),
            2 => h.pool(CacheOp::FlushTo { lsn: 5 }),
            _ => h.write_with(0, 100, 2, Durability::Data),
        };
        let one = h.pool(CacheOp::Change { page: 0, lsn: 9 });
        let two = h.pool(CacheOp::Change { page: 0, lsn: 10 });
        h.quiet();
        h.cache.cancel(wants);
        assert_eq!(h.done(wants).result, Err(CacheError::Cancelled), "{who}");
        h.good(one);
        h.good(two);
        h.quiet();
        h.change(&pin, 10, 3);
        h.cache.unpin(pin);
        assert_eq!(h.cache.stats().spurious_wakeups, 0);
    }
}

#[test]
fn a_new_page_goes_on_when_the_direct_write_that_wants_its_place_is_given_up() {
    let mut h = hand(16);
    h.logged(0, 5, 1);
    let reserve = h.reserve(0, 1);
    let new = h.pool(CacheOp::PinNew { page: 0, lsn: 9 });
    h.quiet();
    h.cache.cancel(reserve);
    assert_eq!(h.done(reserve).result, Err(CacheError::Cancelled));
    let pin = h.good(new).pin.unwrap();
    assert_eq!(h.cache.page(&pin).unwrap(), [0; PAGE]);
    h.cache.unpin(pin);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn a_change_waits_as_long_as_anybody_waits_for_its_page() {
    let mut h = hand(16);
    h.logged(0, 5, 1);
    let pin = h.hit(0);
    let (one, two) = (h.sync(), h.sync());
    let change = h.pool(CacheOp::Change { page: 0, lsn: 9 });
    h.cache.cancel(one);
    h.done(one);
    h.quiet();
    h.cache.cancel(two);
    h.done(two);
    h.good(change);
    h.cache.unpin(pin);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn a_change_goes_on_when_the_sync_that_wants_its_page_fails_by_another() {
    // By another page's write, and by a flush.
    for by_flush in [false, true] {
        let mut h = hand(16);
        h.logged(3, 0, 1);
        let before = by_flush.then(|| h.sync());
        let io = before.map(|_| {
            let write = h.io();
            h.end(write, 0);
            h.io()
        });
        h.logged(0, 5, 1);
        let pin = h.hit(0);
        let sync = h.sync();
        let change = h.pool(CacheOp::Change { page: 0, lsn: 9 });
        let io = io.unwrap_or_else(|| h.io());
        assert_eq!(is_sync(&io), by_flush);
        h.quiet();
        h.fail(io);
        if let Some(before) = before {
            h.told(before);
        }
        h.told(sync);
        h.good(change);
        h.cache.unpin(pin);
        assert_eq!(h.cache.stats().spurious_wakeups, 0);
    }
}

#[test]
fn a_recovery_lsn_moves_on_with_a_flush_of_what_is_changed_again() {
    // After its write the page is changed under 20: before the flush begins or while it runs; and is dirty at its end, behind
    // the gate, or written again.
    for (before, durable, again) in [
        (false, 20, false),
        (true, 20, false),
        (false, 5, false),
        (false, 20, true),
    ] {
        let mut h = hand(16);
        h.logged(1, 5, 1);
        h.logged(3, 5, 1);
        h.cache.set_durable_lsn(GateId::default(), durable);
        let flush = h.pool(CacheOp::FlushTo { lsn: 5 });
        let (write, other) = (h.io(), h.io());
        let pin = h.hit(1);
        h.end(write, 0);
        if before {
            h.change(&pin, 20, 2);
        }
        h.end(other, 0);
        let first = h.io();
        assert!(is_sync(&first));
        if !before {
            h.change(&pin, 20, 2);
        }
        let out = again.then(|| {
            let out = h.ask(h.object, CacheOp::WriteOut { start: 0, end: 10 * P }, Memory::None);
            let write = h.io();
            h.end(write, 0);
            h.good(out);
            // And changed again: that is left behind by the flush after this one.
            h.change(&pin, 30, 3);
        });
        assert_eq!(
            h.cache.oldest_recovery_lsn(GateId::default()),
            Some(5),
            "the flush may fail"
        );
        h.end(first, 0);
        h.good(flush);
        assert_eq!(
            h.cache.oldest_recovery_lsn(GateId::default()),
            Some(20),
            "{before} {durable} {out:?}"
        );
        h.cache.set_durable_lsn(GateId::default(), 30);
        let sync = h.sync();
        let write = h.io();
        h.end(write, 0);
        let flush = h.io();
        h.change(&pin, 40, 4);
        assert_eq!(
            h.cache.oldest_recovery_lsn(GateId::default()),
            Some(20),
            "written is not safe"
        );
        h.end(flush, 0);
        h.good(sync);
        assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(40));
        h.cache.unpin(pin);
    }
}

#[test]
fn a_flush_moves_the_recovery_lsn_past_what_it_covers_and_no_further() {
    let mut h = hand(16);
    h.logged(1, 5, 1);
    h.cache.set_durable_lsn(GateId::default(), 100);
    let pin = h.hit(1);
    let one = h.sync();
    let write = h.io();
    h.end(write, 0);
    let flush = h.io();
    // Written and changed a second time while the flush runs: only the first write is covered by it.
    h.change(&pin, 20, 2);
    let two = h.sync();
    let write = h.io();
    h.end(write, 0);
    h.change(&pin, 30, 3);
    h.end(flush, 0);
    h.good(one);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(20));
    let flush = h.io();
    assert!(is_sync(&flush));
    h.change(&pin, 0, 4);
    h.end(flush, 0);
    h.good(two);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(30));
    // A page that is changed under no LSN behind its last write owes nothing to the log.
    let three = h.sync();
    let write = h.io();
    h.end(write, 0);
    h.change(&pin, 0, 5);
    let flush = h.io();
    h.end(flush, 0);
    h.good(three);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), None);
    // A flush that fails covers nothing, nor does a later one of what went before it.
    h.change(&pin, 50, 6);
    let four = h.sync();
    let write = h.io();
    h.end(write, 0);
    let flush = h.io();
    h.change(&pin, 60, 7);
    h.fail(flush);
    h.told(four);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(50));
    h.logged(3, 70, 1);
    let five = h.ask(
        h.object,
        CacheOp::Sync {
            start: 3 * P,
            end: 4 * P,
            durability: Durability::Data,
        },
        Memory::None,
    );
    let write = h.io();
    assert_eq!(write_at(&write).0, 3);
    h.end(write, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(five);
    assert_eq!(h.cache.oldest_recovery_lsn(GateId::default()), Some(50));
    h.cache.unpin(pin);
}

/// The log moves on in small steps: each looks at the pages that it lets go, and not at all that wait.
#[test]
fn a_log_that_moves_on_looks_at_the_pages_that_it_lets_go() {
    let mut h = hand(512);
    for page in 0..200 {
        h.logged(page, 2 * page + 1, 1);
    }
    let before = h.cache.stats();
    assert_eq!(before.frames_gated, 200);
    let pin = h.hit(199);
    for lsn in 1..=400 {
        h.change(&pin, 400 + lsn, 2); // And one is changed on and on.
        h.cache.set_durable_lsn(GateId::default(), lsn);
    }
    h.cache.unpin(pin);
    let stats = h.cache.stats();
    let gone_over = stats.pages_gone_over - before.pages_gone_over;
    assert!((199..=210).contains(&gone_over), "{gone_over} pages");
    assert_eq!(stats.frames_gated, 1);
    assert_eq!(h.cache.lsn_wanted(GateId::default()), None);
    h.cache.set_durable_lsn(GateId::default(), 800);
    assert_eq!(h.cache.stats().frames_gated, 0);
}

/// A page that was waiting for a later LSN has left its frame: who comes there next waits for its own.
#[test]
fn a_page_does_not_wait_for_the_log_of_the_one_before_it_in_its_frame() {
    // From its first change on, or since the log has come as far as that.
    for first in [100, 5] {
        let mut h = hand(16);
        h.logged(0, first, 1);
        h.logged(0, 100, 1);
        h.cache.set_durable_lsn(GateId::default(), 10);
        let other = h.cache.add(10 * P, 0);
        h.cache.discard(h.object);
        h.object = other;
        // Another's change of an earlier LSN comes later; it takes the frame that has become free.
        h.logged(0, 60, 2);
        assert_eq!(h.cache.stats().frames_gated, 1);
        assert_eq!(h.cache.lsn_wanted(GateId::default()), None);
        h.cache.set_durable_lsn(GateId::default(), 70);
        assert_eq!(h.cache.stats().frames_gated, 0, "{first}");
        let sync = h.sync();
        h.end_all(0);
        h.good(sync);
    }
}

/// It waited so as not to keep the page from the device: now it does not.
#[test]
fn a_change_goes_on_when_its_own_log_is_there() {
    let mut h = hand(16);
    let pages = [0, 2, 4];
    pages.into_iter().for_each(|page| h.logged(page, 5, 1));
    let pin = h.hit(4);
    let sync = h.sync();
    h.cache.set_durable_lsn(GateId::default(), 5);
    let writes = [h.io(), h.io()]; // The depth is two: page 4 may be written, and is not yet.
    let change = h.pool(CacheOp::Change { page: 4, lsn: 9 });
    h.cache.set_durable_lsn(GateId::default(), 8);
    h.quiet();
    h.cache.set_durable_lsn(GateId::default(), 9);
    h.good(change);
    writes.into_iter().for_each(|io| h.end(io, 0));
    let last = h.io();
    assert_eq!(write_at(&last).0, 4);
    h.end(last, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
    h.cache.unpin(pin);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

/// Neither another object's log nor a page that only waits for a flush is a reason to write what was changed later.
#[test]
fn a_flush_to_an_lsn_writes_what_its_object_had_changed_by_then() {
    let mut h = hand(32);
    h.cache.set_durable_lsn(GateId::default(), 100);
    h.logged(1, 10, 1);
    let later = h.write(3, 1);
    h.good(later);
    let (this, other) = (h.object, h.cache.add(10 * P, 0));
    h.object = other;
    h.logged(0, 12, 1);
    h.object = this;
    let one = h.pool(CacheOp::FlushTo { lsn: 15 });
    let write = h.io();
    assert_eq!(write_at(&write), (1, 1, false));
    h.quiet();
    h.end(write, 0);
    let first = h.io();
    assert!(is_sync(&first));
    let two = h.pool(CacheOp::FlushTo { lsn: 15 });
    h.quiet();
    h.end(first, 0);
    h.good(one);
    let second = h.io();
    assert!(is_sync(&second));
    h.end(second, 0);
    h.good(two);
    h.quiet();
    assert_eq!(h.cache.stats().frames_dirty, 2, "page 3, and the other's");
}
