//! The ring under the model checker: every interleaving of a producer and a consumer, with every value that the memory
//! model lets a load return (up to three preemptions). Promises: nothing lost, nothing twice, no torn entry, no missed
//! wake-up, a full ring is told and nothing in it is overwritten.
//!
//! The product's file is included as it is; only its atomics are the model's. The words of the cells are plain memory
//! here: between honest peers the counters alone must order them, so any race on a cell is an error. And each ordering
//! can be weakened by the line it stands on: the last test weakens one after the other, and each time the model fails.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

thread_local! {
    /// Lines of the ring with an ordering above `Relaxed`, as they are met, and the one that is weakened. The model runs
    /// all its threads on one thread of the system, each test on another.
    static ORDERED: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
    static WEAK: RefCell<Option<u32>> = const { RefCell::new(None) };
}

mod atomic {
    use std::panic::Location;

    pub(crate) use std::sync::atomic::Ordering;

    fn weakened(order: Ordering, at: &Location<'_>) -> Ordering {
        if order != Ordering::Relaxed {
            super::ORDERED.with_borrow_mut(|lines| lines.insert(at.line()));
        }
        let weak = super::WEAK.with_borrow(|line| *line == Some(at.line()));
        if weak { Ordering::Relaxed } else { order }
    }

    #[track_caller]
    pub(crate) fn fence(order: Ordering) {
        let order = weakened(order, Location::caller());
        if order != Ordering::Relaxed {
            loom::sync::atomic::fence(order);
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        #[track_caller]
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.0.load(weakened(order, Location::caller()))
        }

        #[track_caller]
        pub(crate) fn store(&self, value: u32, order: Ordering) {
            self.0.store(value, weakened(order, Location::caller()));
        }

        #[track_caller]
        pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
            self.0.swap(value, weakened(order, Location::caller()))
        }
    }

    /// A word of a cell: plain memory, so that the model sees every race on it.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicU64(loom::cell::Cell<u64>);

    // What may race is found by the model.
    #[allow(unsafe_code)]
    // SAFETY: the model runs one thread at a time, and fails on accesses that nothing orders.
    unsafe impl Sync for AtomicU64 {}

    impl AtomicU64 {
        pub(crate) fn load(&self, _: Ordering) -> u64 {
            self.0.get()
        }

        pub(crate) fn store(&self, value: u64, _: Ordering) {
            self.0.set(value);
        }
    }
}

#[path = "../src/ring.rs"]
#[allow(dead_code, unreachable_pub)]
mod ring;

use ring::{Cursor, Refused, Ring};

const CELLS: usize = 2;

/// The memory that both sides share, and the consumer's doorbell.
#[derive(Default)]
struct Shared {
    head: atomic::AtomicU32,
    tail: atomic::AtomicU32,
    sleeping: atomic::AtomicU32,
    cells: [[atomic::AtomicU64; 2]; CELLS],
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Shared {
    fn starting_at(counter: u32) -> Shared {
        let shared = Shared::default();
        shared.head.store(counter, atomic::Ordering::Relaxed);
        shared.tail.store(counter, atomic::Ordering::Relaxed);
        shared
    }

    fn ring(&self) -> Ring<'_, 2> {
        Ring::new(&self.head, &self.tail, &self.sleeping, &self.cells).unwrap()
    }

    fn ring_the_bell(&self) {
        *self.rung.lock().unwrap() = true;
        self.bell.notify_one();
    }

    /// An event fd: a ring before the sleep ends it too.
    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.bell.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn entry(number: u64) -> [u64; 2] {
    [number, !number]
}

/// Pushes `1..=entries` in batches, as far as there is room; what is handed back goes with the next batch.
fn produce(shared: &Shared, start: u32, entries: u64, batch: u64) {
    let (ring, mut at) = (shared.ring(), Cursor::starting_at(start));
    let mut next = 1;
    while next <= entries {
        let end = (next + batch).min(entries + 1);
        while next < end {
            match ring.push(&mut at, &entry(next)) {
                Ok(()) => next += 1,
                Err(Refused::Full) => break,
                Err(Refused::Broken) => panic!("an honest consumer looks broken"),
            }
        }
        if ring.publish(&at) {
            shared.ring_the_bell();
        }
        thread::yield_now();
    }
}

/// Pops all that there is; sleeps when there is nothing, until `entries` have come.
fn consume(shared: &Shared, start: u32, entries: u64, looks_again: bool) {
    let (ring, mut at) = (shared.ring(), Cursor::starting_at(start));
    let mut seen = 0;
    loop {
        while let Some(popped) = ring.pop(&mut at).expect("an honest producer looks broken") {
            seen += 1;
            assert_eq!(popped, entry(seen), "lost, twice, or torn");
        }
        ring.release(&at);
        if seen == entries {
            return;
        }
        if !looks_again {
            shared.sleeping.swap(1, atomic::Ordering::SeqCst);
            shared.sleep();
        } else if ring.fall_asleep(&at) {
            shared.sleep();
            ring.wake_up();
        }
    }
}

fn check(start: u32, entries: u64, batch: u64, looks_again: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new(Shared::starting_at(start));
        let other = Arc::clone(&shared);
        let producer = thread::spawn(move || produce(&other, start, entries, batch));
        consume(&shared, start, entries, looks_again);
        producer.join().unwrap();
    });
}

#[test]
fn entries_arrive_once_and_whole_and_nobody_sleeps_through_them() {
    check(0, 2, 1, true);
}

#[test]
fn a_batch_is_published_at_once() {
    check(0, 2, 2, true);
}

#[test]
fn a_full_ring_hands_back_and_overwrites_nothing() {
    check(0, 3, 3, true);
}

#[test]
fn the_counters_may_wrap() {
    check(u32::MAX, 3, 3, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_second_look_a_wake_up_is_missed() {
    check(0, 1, 1, false);
}

/// The model bites: with any one ordering weakened to `Relaxed` (a fence removed) it fails.
#[test]
fn every_ordering_is_needed() {
    let all = || {
        check(0, 2, 1, true);
        check(0, 3, 3, true);
    };
    all();
    let lines: Vec<u32> = ORDERED.with_borrow(|lines| lines.iter().copied().collect());
    assert_eq!(lines.len(), 6, "two loads, two stores, two fences: {lines:?}");
    for line in lines {
        WEAK.set(Some(line));
        let ended = catch_unwind(AssertUnwindSafe(all));
        WEAK.set(None);
        let Err(why) = ended else {
            panic!("ring.rs:{line} can be weakened and no model notices");
        };
        let why = why.downcast_ref::<String>().map_or("", String::as_str);
        // A missed wake-up, a race on a cell, or an entry that came wrong; not a limit of the model checker.
        let bites = ["deadlock", "Causality violation", "lost, twice, or torn"];
        assert!(bites.iter().any(|bite| why.contains(bite)), "ring.rs:{line}: {why}");
    }
}

/// A peer that publishes a counter that cannot be is found out, on both sides, and nothing is read or written.
#[test]
fn a_counter_that_cannot_be_is_told() {
    loom::model(|| {
        let shared = Shared::default();
        let (ring, mut at) = (shared.ring(), Cursor::default());
        shared.tail.store(CELLS as u32 + 1, atomic::Ordering::Relaxed);
        assert_eq!(ring.pop(&mut at), Err(Refused::Broken));
        shared.tail.store(u32::MAX, atomic::Ordering::Relaxed);
        assert_eq!(ring.pop(&mut at), Err(Refused::Broken));
        let mut at = Cursor::default();
        ring.push(&mut at, &entry(1)).unwrap();
        ring.push(&mut at, &entry(2)).unwrap();
        assert_eq!(ring.push(&mut at, &entry(3)), Err(Refused::Full));
        shared.head.store(3, atomic::Ordering::Relaxed);
        assert_eq!(ring.push(&mut at, &entry(3)), Err(Refused::Broken));
    });
}
