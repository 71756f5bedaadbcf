//! The promise of a reservation over much: whoever else has the thread is not held up by it. No call goes over more than a slice of
//! pages, a bounded number of writes is on its way, and one flush makes all of them safe. Told by counters.

use std::collections::VecDeque;

use baio_engine::{Arena, Durability, Errno, Memory};
use baio_storage::cache::{Cache, CacheDone, CacheError, CacheOp, CacheOptions, Io, ObjectId, RequestId};

use crate::rig::hand::{P, hand};
use crate::rig::{PAGE, ask, end_well};

/// What a call may go over in a cache that is not small: the last slice of a flush, one of the reservation that goes on with it, and
/// a run of the cleaner.
const SLICE: u64 = 512;
const MOST: u64 = 2 * SLICE + 64;

/// A cache of which half is dirty, and what each call into it has gone over at most.
struct World {
    cache: Cache,
    object: ObjectId,
    pages: u64,
    most: u64,
    gone_over: u64,
    ios: VecDeque<Io>,
    deepest: usize,
    ended: u64,
    /// I/Os from this one on fail.
    fails_from: u64,
}

fn config(frames: u64) -> CacheOptions {
    CacheOptions::of_size(frames as usize * PAGE)
}

impl World {
    /// Every `nth` page of the object is dirty.
    fn new(frames: u64, nth: u64) -> World {
        let mut cache = Cache::new(&Arena::new(frames as usize * PAGE).unwrap(), config(frames)).unwrap();
        let pages = frames / 2 * nth;
        let object = cache.add(pages * P, 0);
        let mut world = World {
            cache,
            object,
            pages,
            most: 0,
            gone_over: 0,
            ios: VecDeque::new(),
            deepest: 0,
            ended: 0,
            fails_from: u64::MAX,
        };
        let memory = Arena::new(PAGE).unwrap();
        for page in (0..pages).step_by(nth as usize) {
            world.write(page, memory.buffer(PAGE).unwrap().into());
        }
        let stats = world.cache.stats();
        assert_eq!((u64::from(stats.frames_dirty), stats.writes), (frames / 2, 0));
        world
    }

    fn write(&mut self, page: u64, memory: Memory) {
        let (offset, durability) = (page * P, Durability::None);
        self.ask(CacheOp::Write { offset, durability }, memory);
        assert!(self.cache.next_done().unwrap().result.is_ok());
    }

    fn ask(&mut self, op: CacheOp, memory: Memory) -> RequestId {
        ask(&mut self.cache, self.object, op, memory)
    }

    fn reserve(&mut self) -> RequestId {
        let (start, end) = (0, self.pages * P);
        let id = self.ask(CacheOp::Reserve { start, end }, Memory::None);
        self.look();
        id
    }

    /// After each call.
    fn look(&mut self) {
        let now = self.cache.stats().pages_gone_over;
        self.most = self.most.max(now - self.gone_over);
        self.gone_over = now;
    }

    /// One call: what was put off, or the end of the oldest I/O. Gives an end.
    fn step(&mut self) -> Option<CacheDone> {
        if self.cache.is_put_off() {
            self.cache.go_on();
            self.look();
        }
        while !self.cache.is_put_off()
            && let Some(io) = self.cache.next_io()
        {
            self.look();
            self.ios.push_back(io);
        }
        self.deepest = self.deepest.max(self.ios.len());
        if let Some(io) = self.ios.pop_front() {
            let result = match self.ended < self.fails_from {
                true => Ok(io.memory.len() as u32),
                false => Err(Errno::EIO),
            };
            self.ended += 1;
            self.cache.io_ended(io.id, result, io.memory);
            self.look();
        }
        self.cache.next_done()
    }

    fn until_done(&mut self) -> CacheDone {
        for _ in 0..10 * self.pages {
            if let Some(done) = self.step() {
                return done;
            }
        }
        panic!("it never ends: {:?}", self.cache.stats());
    }
}

#[test]
fn a_reservation_over_half_a_dirty_cache_is_made_in_slices() {
    for (frames, nth) in [(1 << 13, 1), (1 << 13, 2), (1 << 14, 1)] {
        let mut world = World::new(frames, nth);
        let id = world.reserve();
        let done = world.until_done();
        assert_eq!((done.id, done.result), (id, Ok(0)));
        let stats = world.cache.stats();
        assert!(world.most <= MOST, "{} pages in a call", world.most);
        assert!(
            world.deepest <= CacheOptions::default().cleaner_depth as usize + 1,
            "{} deep",
            world.deepest
        );
        assert!(world.deepest > 4, "{} deep", world.deepest);
        assert_eq!((stats.flushes, stats.durable_writes), (1, 0), "{stats:?}");
        assert_eq!(stats.pages_written, frames / 2);
        // Linear: each page is written, settled and dropped.
        assert!(stats.pages_gone_over <= 6 * frames / 2, "{stats:?}");
        assert_eq!((stats.frames_free, stats.spurious_wakeups), (frames as u32, 0));
        world.cache.release(world.object, id);
    }
}

#[test]
fn what_is_clean_is_dropped_in_slices_too_and_readers_in_between_see_it_or_wait() {
    let mut world = World::new(1 << 13, 1);
    let whole = CacheOp::Sync {
        start: 0,
        end: u64::MAX,
        durability: Durability::Data,
    };
    world.ask(whole, Memory::None);
    assert!(world.until_done().result.is_ok());
    assert!(world.most <= MOST, "the end of a flush: {} pages in a call", world.most);
    let id = world.reserve();
    let mut calls = 1;
    while world.cache.is_put_off() {
        let free = world.cache.stats().frames_free;
        world.cache.go_on();
        world.look();
        let dropped = u64::from(world.cache.stats().frames_free - free);
        assert!(dropped <= SLICE, "{dropped} pages dropped in a call");
        calls += 1;
    }
    assert!(
        calls >= (1 << 12) / SLICE && world.most <= MOST,
        "{calls} calls, {}",
        world.most
    );
    assert_eq!(world.cache.next_done().unwrap().id, id);
    assert_eq!(world.cache.stats().frames_free, 1 << 13);
}

#[test]
fn who_never_asks_for_slices_gets_them_all_the_same() {
    let mut world = World::new(1 << 13, 1);
    let id = world.reserve();
    let mut ended = None;
    while ended.is_none() {
        let mut ios: Vec<Io> = std::iter::from_fn(|| world.cache.next_io()).collect();
        for io in ios.drain(..) {
            end_well(&mut world.cache, io);
        }
        ended = world.cache.next_done();
    }
    assert_eq!(ended.map(|done| (done.id, done.result)), Some((id, Ok(0))));
}

#[test]
fn a_write_or_a_flush_that_fails_ends_it_and_loses_nothing() {
    let fails_at = [0, 40, 64]; // A first write, one later on, and the flush.
    for nth in fails_at {
        let mut world = World::new(1 << 13, 1);
        world.fails_from = nth;
        world.reserve();
        // A write that nobody waited for yet is tried once more before its failure is told.
        let done = world.until_done();
        assert!(matches!(done.result, Err(CacheError::System(_))), "{nth}: {done:?}");
        let stats = world.cache.stats();
        assert!(stats.failed_writes + stats.failed_flushes > 0, "{stats:?}");
        let changed = stats.frames_dirty + stats.frames_failed + stats.frames_unflushed + stats.frames_write_back;
        assert!(changed > 0 && changed + stats.frames_clean == 1 << 12, "{stats:?}");
    }
}

#[test]
fn one_that_is_given_up_half_way_keeps_nobody_out() {
    for steps in [0, 10, 64, 66, 70] {
        let mut world = World::new(1 << 13, 1);
        let id = world.reserve();
        let mut ended = None;
        for _ in 0..steps {
            ended = ended.or(world.step());
        }
        world.cache.cancel(id);
        ended = ended.or_else(|| world.cache.next_done());
        match ended.unwrap().result {
            Ok(_) => world.cache.release(world.object, id),
            error => assert_eq!(error, Err(CacheError::Cancelled)),
        }
        while world.cache.is_put_off() || !world.ios.is_empty() {
            assert!(world.step().is_none());
        }
        let sync = CacheOp::Sync {
            start: 0,
            end: u64::MAX,
            durability: Durability::Data,
        };
        world.ask(sync, Memory::None);
        assert!(world.until_done().result.is_ok(), "after {steps} steps");
        assert_eq!(world.cache.remove(world.object), Ok(0));
    }
}

#[test]
fn what_has_been_written_is_flushed_as_before_when_a_reservation_is_over() {
    let flushes = [0, 4].map(|runs| {
        let mut h = hand(64);
        for run in 0..runs {
            let write = h.write(2 * run, 1);
            h.good(write);
        }
        let reserve = h.reserve(0, 8);
        h.end_all(0);
        h.good(reserve);
        h.cache.release(h.object, reserve);
        let before = h.cache.stats().flushes;
        for page in 100..140 {
            let write = h.write(page, 1);
            h.good(write);
            h.end_all(0);
        }
        h.cache.stats().flushes - before
    });
    assert!(flushes[0] > 0 && flushes[0] == flushes[1], "{flushes:?}");
}
