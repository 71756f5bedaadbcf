//! Several logs beside one cache: a page waits for the log of its own gate and for no other, and recovery LSNs, what is awaited and how
//! long a log may become are of each log for itself.

use std::collections::BTreeMap;

use baio_engine::{Arena, Durability, Memory};
use baio_storage::cache::{Cache, CacheError, CacheOp, CacheOptions, GateId, IoKind, ObjectId, RequestId};
use proptest::prelude::*;

use crate::rig::hand::{Hand, P, config, hand, is_sync, write_at};

/// A cache with two databases, each of one object under a gate of its own; the object of the hand is A's.
struct Two {
    h: Hand,
    a: (ObjectId, GateId),
    b: (ObjectId, GateId),
}

fn two(frames: usize, log_distance_max: u64) -> Two {
    let mut h = hand(frames);
    let a = (h.object, h.cache.add_gate(log_distance_max));
    let b = (h.cache.add(1000 * P, 0), h.cache.add_gate(log_distance_max));
    for (object, gate) in [a, b] {
        assert_eq!(h.cache.gate(object), Some(GateId::default()));
        h.cache.set_gate(object, gate).unwrap();
        assert_eq!(h.cache.gate(object), Some(gate));
    }
    Two { h, a, b }
}

impl Two {
    fn logged(&mut self, object: ObjectId, page: u64, lsn: u64) {
        let before = std::mem::replace(&mut self.h.object, object);
        self.h.logged(page, lsn, 1);
        self.h.object = before;
    }

    /// Ends all I/Os well; gives the objects and first pages of what was written.
    fn end_all(&mut self) -> Vec<(ObjectId, u64)> {
        let mut written = Vec::new();
        while let Some(io) = self.h.cache.next_io() {
            if let IoKind::Write { offset, .. } = io.kind {
                written.push((io.object, offset / P));
            }
            self.h.end(io, 0);
        }
        written
    }
}

#[test]
fn a_page_is_written_though_the_log_of_another_stands_still() {
    let mut t = two(16, u64::MAX);
    let ((a, log_a), (b, log_b)) = (t.a, t.b);
    // B's number is the smaller one: it has nothing to do with A's.
    t.logged(b, 7, 3);
    t.logged(a, 1, 500);
    assert_eq!(t.h.cache.stats().frames_gated, 2);
    let sync = t.h.sync();
    t.h.quiet();
    assert_eq!(t.h.cache.lsn_wanted(log_a), Some(500));
    assert_eq!(t.h.cache.lsn_awaited(log_a), Some(500));
    assert_eq!(t.h.cache.lsn_wanted(log_b), None, "nobody waits for B's page");
    assert_eq!(t.h.cache.lsns_awaited().collect::<Vec<_>>(), [(log_a, 500)]);
    t.h.cache.set_durable_lsn(log_a, 500);
    assert_eq!(t.end_all(), [(a, 1)]);
    t.h.good(sync);
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_a), None);
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_b), Some(3));
    assert_eq!(t.h.cache.stats().frames_gated, 1);
    // And one that is under no gate of its own waits for neither.
    let other = t.h.cache.add(10 * P, 0);
    t.h.cache.set_durable_lsn(GateId::default(), 9);
    t.logged(other, 0, 9);
    t.h.object = other;
    let sync = t.h.sync();
    assert_eq!(t.end_all(), [(other, 0)]);
    t.h.good(sync);
}

#[test]
fn a_page_never_goes_out_before_the_log_of_its_own_gate() {
    let mut t = two(16, u64::MAX);
    let ((a, log_a), (_, log_b)) = (t.a, t.b);
    t.h.cache.set_durable_lsn(log_b, 1000);
    t.h.cache.set_durable_lsn(GateId::default(), 1000);
    t.logged(a, 1, 10);
    let waits = [
        t.h.sync(),
        t.h.write_with(P, 100, 2, Durability::Data),
        t.h.reserve(1, 1),
        t.h.pool(CacheOp::FlushTo { lsn: 10 }),
        t.h.ask(a, CacheOp::WriteOut { start: 0, end: 9 * P }, Memory::None),
    ];
    t.h.quiet();
    t.h.cache.set_durable_lsn(log_b, 2000);
    t.h.cache.set_durable_lsn(log_a, 9);
    t.h.quiet();
    t.h.cache.set_durable_lsn(log_a, 10);
    assert_eq!(t.end_all().first(), Some(&(a, 1)));
    let mut ended = 0;
    while let Some(done) = t.h.cache.next_done() {
        assert!(waits.contains(&done.id) && done.result.is_ok(), "{done:?}");
        ended += 1;
    }
    assert_eq!(ended, waits.len());
}

/// Who wants a frame or room is helped by any log: then all of them are asked.
#[test]
fn who_waits_for_room_waits_for_every_log() {
    let mut t = two(8, u64::MAX);
    let ((a, log_a), (b, log_b)) = (t.a, t.b);
    for page in 0..2 {
        t.logged(a, 2 * page, 100 + page);
        t.logged(b, 2 * page, 5 + page);
    }
    let write = t.h.write(50, 1);
    t.h.quiet();
    assert_eq!(t.h.cache.lsns_awaited().collect::<Vec<_>>(), [(log_a, 101), (log_b, 6)]);
    t.h.cache.set_durable_lsn(log_b, 6);
    assert_eq!(t.end_all().first(), Some(&(b, 0)));
    t.h.good(write);
    assert_eq!(t.h.cache.lsn_wanted(log_a), None);
}

#[test]
fn a_flush_to_an_lsn_is_of_the_log_of_its_object() {
    let mut t = two(32, u64::MAX);
    let ((a, log_a), (b, log_b)) = (t.a, t.b);
    for gate in [log_a, log_b] {
        t.h.cache.set_durable_lsn(gate, 100);
    }
    t.logged(b, 0, 10);
    t.logged(a, 0, 10);
    t.logged(a, 5, 20);
    let flush = t.h.pool(CacheOp::FlushTo { lsn: 15 });
    assert_eq!(t.end_all(), [(a, 0)]);
    t.h.good(flush);
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_a), Some(20));
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_b), Some(10));
    assert_eq!(t.h.cache.oldest_recovery_lsn(GateId::default()), None);
}

/// Each log is kept short for itself, and one that need not be is not a reason to write.
#[test]
fn the_cleaner_keeps_each_log_within_its_own_distance() {
    let mut h = hand(64);
    let logs = [100, 400, u64::MAX].map(|distance| (h.cache.add(1000 * P, 0), h.cache.add_gate(distance), distance));
    for (object, gate, _) in logs {
        h.cache.set_gate(object, gate).unwrap();
    }
    let mut t = Two {
        h,
        a: (logs[0].0, logs[0].1),
        b: (logs[1].0, logs[1].1),
    };
    let mut furthest = [0; 3];
    for lsn in 1..2000 {
        for (nth, (object, gate, _)) in logs.into_iter().enumerate() {
            // The pages of the third stay few.
            t.logged(object, lsn % 5 * 2, lsn + nth as u64 * 10_000);
            t.h.cache.set_durable_lsn(gate, lsn + nth as u64 * 10_000);
            t.end_all();
            let newest = lsn + nth as u64 * 10_000;
            let oldest = t.h.cache.oldest_recovery_lsn(gate).unwrap_or(newest);
            furthest[nth] = furthest[nth].max(newest - oldest);
        }
    }
    for ((_, _, distance), furthest) in logs.into_iter().zip(furthest).take(2) {
        assert!(
            (distance / 2..=2 * distance).contains(&furthest),
            "{furthest} of {distance}"
        );
    }
    assert_eq!(furthest[2], 1998, "nothing was written for the third");
}

#[test]
fn an_object_changes_its_gate_when_it_owes_nothing_to_its_log() {
    let mut t = two(16, u64::MAX);
    let ((a, log_a), (_, log_b)) = (t.a, t.b);
    t.h.cache.set_durable_lsn(log_a, 1000);
    t.logged(a, 1, 1000);
    let pin = t.h.hit(1);
    assert_eq!(t.h.cache.set_gate(a, log_a), Ok(()), "it is there");
    assert_eq!(t.h.cache.set_gate(a, log_b), Err(CacheError::OtherGate));
    let sync = t.h.sync();
    let write = t.h.io();
    assert_eq!(
        t.h.cache.set_gate(a, log_b),
        Err(CacheError::OtherGate),
        "being written"
    );
    t.h.end(write, 0);
    assert_eq!(t.h.cache.set_gate(a, log_b), Err(CacheError::OtherGate), "not flushed");
    let flush = t.h.io();
    assert!(is_sync(&flush));
    t.h.end(flush, 0);
    t.h.good(sync);
    // What has no LSN binds to no log.
    t.h.change(&pin, 0, 7);
    assert_eq!(t.h.cache.set_gate(a, log_b), Ok(()));
    assert_eq!(t.h.cache.gate(a), Some(log_b));
    // Its last LSN there was far beyond those of the new log, and holds nothing back here.
    t.h.change(&pin, 5, 8);
    assert_eq!(t.h.cache.stats().frames_gated, 1);
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_a), None);
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_b), Some(5));
    let sync = t.h.sync();
    t.h.cache.set_durable_lsn(log_a, 2000);
    t.h.quiet();
    t.h.cache.set_durable_lsn(log_b, 5);
    assert_eq!(t.end_all(), [(a, 1)]);
    t.h.good(sync);
    t.h.cache.unpin(pin);
}

/// The number of a change that waits is of the log that the object had when it was asked for.
#[test]
fn an_object_keeps_its_gate_while_a_change_waits() {
    let mut t = two(16, u64::MAX);
    let ((a, log_a), (_, log_b)) = (t.a, t.b);
    t.h.logged(1, 0, 1);
    let sync = t.h.sync();
    let write = t.h.io();
    let pin = t.h.hit(1);
    let change = t.h.pool(CacheOp::Change { page: 1, lsn: 7 });
    assert_eq!(t.h.cache.set_gate(a, log_b), Err(CacheError::Busy));
    t.h.end(write, 0);
    t.h.good(change);
    assert_eq!(t.h.cache.set_gate(a, log_b), Err(CacheError::OtherGate));
    t.end_all();
    t.h.good(sync);
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_a), Some(7));
    t.h.cache.unpin(pin);
}

#[test]
fn a_gate_is_removed_when_no_object_is_under_it() {
    let mut t = two(16, u64::MAX);
    let ((a, log_a), (b, log_b)) = (t.a, t.b);
    let default = GateId::default();
    assert_eq!(t.h.cache.remove_gate(default), Err(CacheError::Busy));
    assert_eq!(t.h.cache.remove_gate(log_a), Err(CacheError::Busy));
    t.logged(a, 1, 10);
    t.logged(b, 1, 10);
    // By another gate, by being forgotten, by being thrown away with what was changed.
    assert_eq!(t.h.cache.remove_gate(log_a), Err(CacheError::Busy));
    t.h.cache.discard(a);
    t.h.cache.remove_gate(log_a).unwrap();
    assert_eq!(t.h.cache.stats().frames_gated, 1, "B's page waits on");
    t.h.cache.set_durable_lsn(log_b, 10);
    t.h.object = b;
    let sync = t.h.sync();
    t.end_all();
    t.h.good(sync);
    t.h.cache.set_gate(b, default).unwrap();
    t.h.cache.remove_gate(log_b).unwrap();
    // What has gone is an error, or nothing.
    assert_eq!(t.h.cache.remove_gate(log_b), Err(CacheError::NoGate));
    assert_eq!(t.h.cache.set_gate(b, log_b), Err(CacheError::NoGate));
    assert_eq!(t.h.cache.set_gate(a, default), Err(CacheError::NoObject));
    assert_eq!(t.h.cache.gate(a), None);
    t.h.cache.set_durable_lsn(log_b, 99);
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_b), None);
    assert_eq!(t.h.cache.lsn_wanted(log_b), None);
    // The next one begins anew, whatever the log before it had come to.
    let (next, last) = (t.h.cache.add_gate(5), t.h.cache.add_gate(5));
    assert!(next != log_a && next != log_b && last != next && last != log_b);
    t.h.cache.set_gate(b, last).unwrap();
    t.logged(b, 1, 1);
    assert_eq!(t.h.cache.stats().frames_gated, 1);
    t.h.cache.discard(b);
    t.h.cache.remove_gate(last).unwrap();
}

/// A page of an object that was thrown away while the device had it: its gate stays until it is back.
#[test]
fn a_gate_stays_while_the_device_has_a_page_under_it() {
    let mut t = two(16, u64::MAX);
    let (a, log_a) = t.a;
    t.h.cache.set_durable_lsn(log_a, 10);
    t.logged(a, 1, 10);
    t.h.sync();
    let write = t.h.io();
    assert_eq!(write_at(&write).0, 1);
    t.h.cache.discard(a);
    assert_eq!(t.h.cache.remove_gate(log_a), Err(CacheError::Busy));
    t.h.end(write, 0);
    t.h.cache.remove_gate(log_a).unwrap();
}

/// A log that failed: its pages never go out, who waits for them is told, and the rest of the cache goes on.
#[test]
fn a_log_that_will_not_go_on_holds_up_nobody_else() {
    let mut t = two(16, u64::MAX);
    let ((a, log_a), (b, log_b)) = (t.a, t.b);
    t.logged(b, 0, 10);
    t.logged(a, 0, 10);
    let (start, end, durability) = (0, u64::MAX, Durability::Data);
    let waits = [
        t.h.sync(),
        t.h.write_with(0, 100, 2, Durability::Data),
        t.h.reserve(0, 1),
        t.h.pool(CacheOp::FlushTo { lsn: 10 }),
        t.h.ask(a, CacheOp::WriteOut { start: 0, end: P }, Memory::None),
        t.h.pool(CacheOp::Change { page: 0, lsn: 11 }),
    ];
    let others = t.h.ask(b, CacheOp::Sync { start, end, durability }, Memory::None);
    let read = t.h.read(30, 1);
    t.h.cache.shut_gate(log_a);
    for _ in waits {
        let done = t.h.cache.next_done().expect("an end");
        let is_stale = done.result == Err(CacheError::StalePin); // The change: nobody holds that page.
        assert!(
            waits.contains(&done.id) && (is_stale || done.result == Err(CacheError::LogFirst(10))),
            "{done:?}"
        );
    }
    assert!(t.end_all().is_empty());
    t.h.good(read);
    // It is the same from now on, and what is not of that page is made safe.
    let plain = t.h.write(5, 1);
    t.h.good(plain);
    let durable = t.h.write_with(6 * P, 100, 2, Durability::Data);
    t.end_all();
    t.h.good(durable);
    for which in 0..5 {
        let late = match which {
            0 => t.h.sync(),
            1 => t.h.write_with(0, 100, 2, Durability::Data),
            2 => t.h.reserve(0, 1),
            3 => t.h.pool(CacheOp::FlushTo { lsn: 10 }),
            _ => t.h.ask(a, CacheOp::WriteOut { start: 0, end: P }, Memory::None),
        };
        assert!(t.end_all().iter().all(|(object, page)| *object == a && *page > 0));
        assert_eq!(t.h.done(late).result, Err(CacheError::LogFirst(10)));
    }
    let out = t.h.ask(
        a,
        CacheOp::WriteOut {
            start: 5 * P,
            end: 9 * P,
        },
        Memory::None,
    );
    t.end_all();
    t.h.good(out);
    t.h.cache.set_durable_lsn(log_b, 10);
    assert_eq!(t.end_all(), [(b, 0)]);
    t.h.good(others);
    assert_eq!(t.h.cache.lsn_wanted(log_a), None);
    assert_eq!(t.h.cache.oldest_recovery_lsn(log_a), Some(10), "a restart needs it");
    t.h.cache.discard(a);
    t.h.cache.remove_gate(log_a).unwrap();
    assert_eq!(t.h.cache.stats().frames_gated, 0);
    assert_eq!(t.h.cache.stats().spurious_wakeups, 0);
}

/// What it has left behind is no reason for others to wait: below the dirty limit there is as much room as without it.
#[test]
fn what_a_log_leaves_behind_takes_no_room_of_others() {
    let mut t = two(16, u64::MAX);
    let ((a, log_a), (b, _)) = (t.a, t.b);
    for page in 0..8 {
        t.logged(a, 2 * page, 10 + page);
    }
    t.h.object = b;
    let waits = t.h.write(50, 1);
    t.h.quiet();
    t.h.cache.shut_gate(log_a);
    t.h.good(waits);
    for page in 60..65 {
        let write = t.h.write(page, 1);
        t.h.good(write);
    }
    // Its own object takes no more of what is for all; what it has can be changed.
    t.h.object = a;
    let more = t.h.write(99, 1);
    assert_eq!(t.h.done(more).result, Err(CacheError::LogFirst(17)));
    let pin = t.h.hit(0);
    t.h.change(&pin, 0, 3);
    t.h.cache.unpin(pin);
    // Whoever says after all that it is durable has pages that are dirty like any others.
    t.h.cache.set_durable_lsn(log_a, 17);
    t.end_all();
    assert_eq!(t.h.cache.stats().frames_gated, 0);
    t.h.cache.discard(a);
    t.h.cache.remove_gate(log_a).unwrap();
    assert_eq!(t.h.cache.stats().spurious_wakeups, 0);
}

/// And it ends nothing that would end well without its pages, on the same object neither.
#[test]
fn a_log_that_will_not_go_on_ends_only_what_waits_for_its_pages() {
    let mut t = two(16, u64::MAX);
    let (a, log_a) = t.a;
    t.logged(a, 7, 10);
    t.logged(a, 9, 11);
    let (start, end, durability) = (0, 6 * P, Durability::Data);
    let go_on = [
        t.h.durable(2, 1),
        t.h.ask(a, CacheOp::WriteOut { start, end }, Memory::None),
        t.h.ask(a, CacheOp::Sync { start, end, durability }, Memory::None),
        t.h.pool(CacheOp::FlushTo { lsn: 5 }),
    ];
    let whole = t.h.sync();
    // Of page 9 nothing is left.
    let cut = t.h.ask(a, CacheOp::Cut { from: 8 * P }, Memory::None);
    t.h.cache.shut_gate(log_a);
    let mut ends: Vec<_> = std::iter::from_fn(|| t.h.cache.next_done()).collect();
    t.end_all();
    ends.extend(std::iter::from_fn(|| t.h.cache.next_done()));
    let result = |id: RequestId| ends.iter().find(|done| done.id == id).map(|done| done.result);
    assert_eq!(result(whole), Some(Err(CacheError::LogFirst(11))));
    assert_eq!(result(cut), Some(Ok(0)));
    for id in go_on {
        assert!(matches!(result(id), Some(Ok(_))), "{:?} of {ends:?}", result(id));
    }
    t.h.cache.release(a, cut);
    assert!(!t.h.is_cached(9) && t.h.is_cached(7));
    assert_eq!(t.h.cache.stats().spurious_wakeups, 0);
}

/// Who reads one of its pages holds up a cut of that page, and does not end it.
#[test]
fn a_cut_waits_for_who_holds_what_a_log_has_left_behind() {
    let mut t = two(16, u64::MAX);
    let (a, log_a) = t.a;
    t.logged(a, 8, 10);
    t.h.cache.shut_gate(log_a);
    let read = t.h.read(7, 2);
    let fill = t.h.io();
    let cut = t.h.ask(a, CacheOp::Cut { from: 8 * P }, Memory::None);
    t.h.quiet();
    t.h.end(fill, 1);
    t.h.good(read);
    t.h.good(cut);
    t.h.cache.release(a, cut);
    assert!(!t.h.is_cached(8) && t.h.is_cached(7));
    assert_eq!(t.h.cache.stats().spurious_wakeups, 0);
}

/// Who waits for room is helped by the logs that go on.
#[test]
fn a_log_that_will_not_go_on_is_not_waited_for() {
    let mut t = two(16, u64::MAX);
    let ((a, log_a), (b, log_b)) = (t.a, t.b);
    for page in 0..2 {
        t.logged(a, 2 * page, 10 + page);
    }
    t.h.cache.shut_gate(log_a);
    for page in 0..8 {
        t.logged(b, 2 * page, 10 + page);
    }
    t.h.object = b;
    let write = t.h.write(50, 1);
    t.h.quiet();
    assert_eq!(t.h.cache.lsns_awaited().collect::<Vec<_>>(), [(log_b, 17)]);
    t.h.cache.set_durable_lsn(log_b, 17);
    t.end_all();
    t.h.good(write);
}

/// Most of the dirty limit is left behind: the cleaner begins, and flushes, in time for the room that others have.
#[test]
fn who_writes_beside_what_a_log_has_left_behind_does_not_wait() {
    let mut h = hand(64);
    let config = CacheOptions {
        dirty_percent_max: 75,
        ..config(64)
    };
    h.cache = Cache::new(&Arena::new(64 * 4096).unwrap(), config).unwrap();
    let left = h.cache.add(1000 * P, 0);
    let log = h.cache.add_gate(u64::MAX);
    h.cache.set_gate(left, log).unwrap();
    h.object = left;
    for page in 0..48 {
        h.logged(2 * page, 10 + page, 1);
    }
    h.cache.shut_gate(log);
    h.object = h.cache.add(1000 * P, 0);
    for page in 0..200 {
        let write = h.write(2 * page, 1);
        h.end_all(0); // The device keeps up.
        h.good(write);
    }
    let stats = h.cache.stats();
    assert_eq!((stats.waits_for_room, stats.frames_gated), (0, 48), "{stats:?}");
    // No more than one flush for two writes.
    assert!(stats.flushes <= stats.writes.div_ceil(2), "{stats:?}");
}

#[derive(Clone, Debug)]
enum Step {
    /// A change of this page of this object, with the next LSN of its log or with none.
    Change(usize, u64, bool),
    /// The log of this gate goes on by so much.
    Durable(usize, u64),
    Sync(usize),
    FlushTo(usize, u64),
    Move(usize, usize),
    /// So many I/Os end, the latest first or the oldest.
    End(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4_usize, 0..6_u64, prop::bool::weighted(0.9)).prop_map(|(object, page, logged)| Step::Change(object, page, logged)),
        3 => (0..3_usize, 1..4_u64).prop_map(|(gate, by)| Step::Durable(gate, by)),
        2 => (0..4_usize).prop_map(Step::Sync),
        1 => (0..4_usize, 0..9_u64).prop_map(|(object, back)| Step::FlushTo(object, back)),
        1 => (0..4_usize, 0..3_usize).prop_map(|(object, gate)| Step::Move(object, gate)),
        4 => (1..4_usize, any::<bool>()).prop_map(|(count, last)| Step::End(count, last)),
    ];
    prop::collection::vec(step, 1..120)
}

/// Changes a page of the hand's object, if it is there; else it is brought in. Was it changed?
fn change(h: &mut Hand, page: u64, lsn: u64) -> bool {
    let Some(pin) = h.cache.pin_hit(h.object, page) else {
        h.pool(CacheOp::PinNew { page, lsn: 0 });
        while let Some(done) = h.cache.next_done() {
            done.pin.map(|pin| h.cache.unpin(pin));
        }
        return false;
    };
    let is_changed = h.cache.change(&pin, lsn).is_ok();
    h.cache.unpin(pin);
    is_changed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is asked in whatever order: no page goes to the device before its own log, each recovery LSN is no later than the
    /// oldest change of its log that is not safe, nothing of one log moves with another, and when the logs have gone on all ends.
    #[test]
    fn no_mix_of_logs_writes_a_page_before_its_own(distance in prop_oneof![Just(u64::MAX), Just(8)], steps in steps()) {
        let config = CacheOptions { log_distance_max: distance, ..config(16) };
        let mut h = Hand {
            cache: Cache::new(&Arena::new(16 * 4096).unwrap(), config).unwrap(),
            object: hand(4).object,
            memory: Arena::new(1 << 20).unwrap(),
        };
        let gates = [GateId::default(), h.cache.add_gate(distance), h.cache.add_gate(distance)];
        let objects: Vec<ObjectId> = (0..4).map(|_| h.cache.add(10 * P, 0)).collect();
        let mut under = [0; 4];
        // The last LSN of each log, and how far it is durable.
        let mut logs = [(0, 0), (1000, 1000), (1 << 40, 1 << 40)];
        let mut last: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let mut ios = Vec::new();
        for gate in 0..3 {
            h.cache.set_durable_lsn(gates[gate], logs[gate].1);
        }
        let mut finishing = vec![Step::Durable(0, 999), Step::Durable(1, 999), Step::Durable(2, 999)];
        finishing.extend((0..4).flat_map(|object| [Step::Sync(object), Step::End(99, false)]));
        for step in steps.into_iter().chain(finishing) {
            match step {
                Step::Change(object, page, logged) => {
                    h.object = objects[object];
                    let log = &mut logs[under[object]].0;
                    let lsn = if logged { *log + 1 } else { 0 };
                    if change(&mut h, page, lsn) && logged {
                        *log = lsn;
                        last.insert((object, page), lsn);
                    }
                }
                Step::Durable(gate, by) => {
                    let others: Vec<_> = gates.iter().map(|gate| h.cache.oldest_recovery_lsn(*gate)).collect();
                    let log = &mut logs[gate];
                    log.1 = (log.1 + by).min(log.0);
                    h.cache.set_durable_lsn(gates[gate], log.1);
                    let now: Vec<_> = gates.iter().map(|gate| h.cache.oldest_recovery_lsn(*gate)).collect();
                    prop_assert_eq!(others, now);
                }
                Step::Sync(object) => {
                    h.object = objects[object];
                    h.sync();
                }
                Step::FlushTo(object, back) => {
                    h.object = objects[object];
                    let lsn = logs[under[object]].0 - back.min(logs[under[object]].0);
                    h.pool(CacheOp::FlushTo { lsn });
                }
                Step::Move(object, gate) => {
                    let is_moved = h.cache.set_gate(objects[object], gates[gate]).is_ok();
                    if is_moved && under[object] != gate {
                        under[object] = gate;
                        last.retain(|(of, _), _| *of != object);
                    }
                }
                Step::End(count, last) => {
                    for _ in 0..count {
                        let Some(latest) = ios.len().checked_sub(1) else { break };
                        h.end(ios.remove(if last { latest } else { 0 }), 0);
                        ios.extend(std::iter::from_fn(|| h.cache.next_io()));
                    }
                }
            }
            while h.cache.next_done().is_some() {}
            let new: Vec<_> = std::iter::from_fn(|| h.cache.next_io()).collect();
            for io in ios.iter().chain(&new) {
                let IoKind::Write { offset, len, .. } = io.kind else { continue };
                let object = objects.iter().position(|object| *object == io.object).unwrap();
                for page in offset / P..(offset + u64::from(len)) / P {
                    let lsn = last.get(&(object, page)).copied().unwrap_or(0);
                    prop_assert!(lsn <= logs[under[object]].1, "object {object}, page {page}: {lsn}, {logs:?}");
                }
            }
            ios.extend(new);
        }
        prop_assert_eq!(h.cache.requests_under_way(), 0);
        prop_assert_eq!(h.cache.stats().frames_gated, 0);
        prop_assert_eq!(gates.map(|gate| h.cache.oldest_recovery_lsn(gate)), [None; 3]);
    }
}
