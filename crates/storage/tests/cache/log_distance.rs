//! The promise of `log_distance_max`: the log that a restart must read stays within twice of it, also under a page that is changed on
//! and on, and few flushes see to that. Told by counters.

use std::collections::VecDeque;

use baio_engine::Arena;
use baio_storage::cache::{Cache, CacheError, CacheOptions, GateId, Io, IoKind, PagePin};

use crate::rig::hand::P;
use crate::rig::{PAGE, Random, end_all, end_well};

const DISTANCE: u64 = 1000;
const LSNS: u64 = 100_000;
const FRAMES: usize = 1024;
const PAGES: u64 = 512;

struct World {
    cache: Cache,
    pins: Vec<PagePin>,
    ios: VecDeque<Io>,
    lsn: u64,
    random: Random,
    /// Changes of the first page that had to wait, and those that were made.
    refused: u64,
    made: u64,
}

impl World {
    fn new() -> World {
        let config = CacheOptions {
            bytes: FRAMES * PAGE,
            log_distance_max: DISTANCE,
            ..CacheOptions::default()
        };
        let mut cache = Cache::new(&Arena::new(FRAMES * PAGE).unwrap(), config).unwrap();
        let object = cache.add(PAGES * P, 0);
        cache.prefetch(object, std::slice::from_ref(&(0..PAGES))).unwrap();
        for at in [0, 1] {
            cache
                .prefetch(object, std::slice::from_ref(&(at * PAGES / 2..PAGES)))
                .unwrap();
            end_all(&mut cache);
        }
        let pins = (0..PAGES).map(|page| cache.pin_hit(object, page).unwrap()).collect();
        World {
            cache,
            pins,
            ios: VecDeque::new(),
            lsn: 0,
            random: Random(3),
            refused: 0,
            made: 0,
        }
    }

    /// A change under the next LSN, if the page can be changed now.
    fn change(&mut self, page: u64) -> bool {
        match self.cache.change(&self.pins[page as usize], self.lsn + 1) {
            Ok(_) => {
                self.lsn += 1;
                true
            }
            Err(CacheError::BeingWritten | CacheError::LogFirst(_) | CacheError::NoRoom) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Ends I/Os until so many are left.
    fn device(&mut self, left: usize) {
        self.ios.extend(std::iter::from_fn(|| self.cache.next_io()));
        while self.ios.len() > left {
            let Some(io) = self.ios.pop_front() else { return };
            assert!(!matches!(io.kind, IoKind::Read { .. }));
            end_well(&mut self.cache, io);
            self.ios.extend(std::iter::from_fn(|| self.cache.next_io()));
        }
    }

    /// The first page is changed with every second LSN, or whenever that can be done, others at random; the log follows as `durable`
    /// says. Gives the furthest that the oldest change was behind.
    fn run(&mut self, others: u64, durable: impl Fn(u64) -> u64) -> u64 {
        let mut furthest = 0;
        while self.lsn < LSNS {
            let hot = self.change(0);
            match hot {
                true => self.made += 1,
                false => self.refused += 1,
            }
            let other = 1 + self.random.below(others);
            if self.change(other) || hot {
                self.cache.set_durable_lsn(GateId::default(), durable(self.lsn));
                self.device(4);
            } else {
                // Nobody can do anything: then a log is flushed.
                self.cache.set_durable_lsn(GateId::default(), self.lsn);
                self.device(0);
            }
            let oldest = self.cache.oldest_recovery_lsn(GateId::default()).unwrap_or(self.lsn);
            furthest = furthest.max(self.lsn - oldest);
        }
        furthest
    }
}

/// How far the log is durable when the latest LSN is this, in words and numbers.
type Log = (&'static str, fn(u64) -> u64);

#[test]
fn the_oldest_change_stays_near_under_a_page_that_changes_on_and_on() {
    let logs: [Log; 3] = [
        ("follows in steps", |lsn| lsn / 64 * 64),
        ("is always behind", |lsn| lsn.saturating_sub(40)),
        ("is up to date", |lsn| lsn),
    ];
    for (what, durable) in logs {
        for others in [PAGES - 1, 8, 1] {
            let mut world = World::new();
            let furthest = world.run(others, durable);
            let stats = world.cache.stats();
            assert!(
                furthest <= 2 * DISTANCE,
                "the log {what}, {others} others: {furthest}, {stats:?}"
            );
            // About two for each distance as a rule, and never more than eight.
            let few = 8 * LSNS / DISTANCE;
            assert!(stats.flushes <= few, "the log {what}, {others} others: {stats:?}");
            // Most changes are made at once.
            assert!(
                world.refused <= world.made / 3,
                "the log {what}, {others} others: {} of {}",
                world.refused,
                world.made
            );
        }
    }
}

/// A change that waits by a ticket, and one of another object, go on when the page has been written.
#[test]
fn who_is_held_up_for_the_log_goes_on() {
    let mut world = World::new();
    while world.lsn < 3 * DISTANCE && world.change(0) {}
    let held_at = world.lsn;
    assert!(held_at <= 2 * DISTANCE, "{held_at}");
    assert_eq!(world.cache.lsn_wanted(GateId::default()), Some(held_at));
    world.cache.set_durable_lsn(GateId::default(), held_at);
    world.device(0);
    assert!(world.change(0));
    assert_eq!(world.cache.oldest_recovery_lsn(GateId::default()), Some(held_at + 1));
}
