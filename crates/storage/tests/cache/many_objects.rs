//! The promise that what a request, a turn or the cleaner costs does not grow with the objects that are cached: it looks at those that
//! have something to do. Told by a counter.

use std::time::Duration;

use baio_engine::{Arena, Durability, Memory, Time};
use baio_storage::cache::{Cache, CacheOp, CacheOptions, ObjectId};

use crate::rig::hand::P;
use crate::rig::{PAGE, ask, end_all};

const FRAMES: usize = 4096;
const OBJECT_PAGES: u64 = 32;

struct World {
    cache: Cache,
    objects: Vec<ObjectId>,
    memory: Option<Memory>,
    now: Time,
}

impl World {
    /// So many objects; every so manieth has a dirty page.
    fn new(count: usize, dirty: usize) -> World {
        let config = CacheOptions::of_size(FRAMES * PAGE);
        let mut cache = Cache::new(&Arena::new(FRAMES * PAGE).unwrap(), config).unwrap();
        let objects: Vec<ObjectId> = (0..count).map(|_| cache.add(OBJECT_PAGES * P, 0)).collect();
        let memory = Some(Arena::new(PAGE).unwrap().buffer(PAGE).unwrap().into());
        let now = Time(0);
        let mut world = World {
            cache,
            objects,
            memory,
            now,
        };
        for nth in (0..count).step_by(dirty) {
            world.write(nth, 0);
        }
        world
    }

    fn ask(&mut self, nth: usize, op: CacheOp) {
        let memory = self.memory.take().unwrap();
        ask(&mut self.cache, self.objects[nth], op, memory);
        let done = self.cache.next_done().expect("it is done at once");
        assert!(done.result.is_ok());
        self.memory = Some(done.memory);
    }

    fn write(&mut self, nth: usize, page: u64) {
        let (offset, durability) = (page * P, Durability::None);
        self.ask(nth, CacheOp::Write { offset, durability });
    }

    /// What a core does in a turn.
    fn turn(&mut self) {
        self.now = self.now.after(Duration::from_millis(1));
        if self.cache.next_tick().is_some_and(|at| at <= self.now) {
            self.cache.tick(self.now);
        }
        self.cache.set_now(self.now);
        end_all(&mut self.cache);
    }

    fn looked_at(&self) -> u64 {
        self.cache.stats().objects_looked_at
    }
}

#[test]
fn a_write_a_hit_and_a_turn_look_at_no_more_of_ten_thousand_objects() {
    for count in [100, 10_000] {
        let mut world = World::new(count, count / 10);
        let before = world.looked_at();
        for round in 0..1000 {
            world.write(round % 10 * (count / 10), 0);
            world.ask(round % 10 * (count / 10), CacheOp::Read { offset: 0 });
            world.turn();
        }
        // The changes are younger than what is written for their age.
        assert_eq!(world.looked_at() - before, 0, "{count} objects");
    }
}

#[test]
fn so_does_the_cleaner_for_age_and_for_want_of_clean_frames() {
    for count in [100, 10_000] {
        let mut world = World::new(count, count / 10);
        let (writes, looked_at) = (world.cache.stats().writes, world.looked_at());
        // Each page grows old several times.
        for round in 0..20_000 {
            world.write(round % 10 * (count / 10), 0);
            world.turn();
        }
        let written = world.cache.stats().writes - writes;
        assert!(written >= 30, "{written}");
        assert!(
            world.looked_at() - looked_at <= 4 * written,
            "{count} objects: {}",
            world.looked_at()
        );

        // So many pages of a hundred objects that the cleaner writes, and that what it wrote must be flushed.
        let mut world = World::new(count, count / 100);
        let (before, looked_at) = (world.cache.stats(), world.looked_at());
        for round in 0..FRAMES * 4 {
            world.write(
                round * 7 % 100 * (count / 100),
                1 + round as u64 / 100 % (OBJECT_PAGES - 1),
            );
            world.turn();
        }
        let stats = world.cache.stats();
        let (cleaned, flushed) = (
            stats.cleaner_writes - before.cleaner_writes,
            stats.flushes - before.flushes,
        );
        let done = stats.writes - before.writes + flushed;
        assert!(cleaned >= 500 && flushed >= 100, "{cleaned}, {flushed}");
        assert!(
            world.looked_at() - looked_at <= 2 * done,
            "{count} objects: {} for {stats:?}",
            world.looked_at() - looked_at
        );
    }
}

/// As when the last handle on a file is closed: else each turn from then on would come too late for it.
#[test]
fn what_was_written_before_it_grew_old_is_not_waited_for() {
    let mut world = World::new(10, 1);
    for nth in 0..10 {
        world.cache.write_soon(world.objects[nth]);
    }
    world.turn();
    assert_eq!((world.cache.stats().frames_dirty, world.cache.next_tick()), (0, None));
    let (objects, flushes) = (world.looked_at(), world.cache.stats().flushes);
    for _ in 0..20_000 {
        world.turn();
    }
    assert_eq!((world.looked_at(), world.cache.stats().flushes), (objects, flushes));
}

#[test]
fn what_many_objects_have_changed_is_written_when_it_is_old_and_no_object_is_forgotten() {
    let mut world = World::new(2000, 1);
    assert_eq!(world.cache.next_tick(), Some(Time(0).after(Duration::from_secs(5))));
    for _ in 0..6000 {
        world.turn();
    }
    let stats = world.cache.stats();
    assert_eq!(
        (stats.frames_clean, stats.frames_dirty, stats.frames_unflushed),
        (2000, 0, 0)
    );
    assert_eq!(world.cache.next_tick(), None);
    // Objects that go while they have something to do leave nothing behind.
    for nth in 0..2000 {
        world.write(nth, 1);
        world.cache.discard(world.objects[nth]);
    }
    assert_eq!(world.cache.next_tick(), None);
    world.objects = (0..2000).map(|_| world.cache.add(OBJECT_PAGES * P, 0)).collect();
    (0..2000).for_each(|nth| world.write(nth, 0));
    for _ in 0..6000 {
        world.turn();
    }
    assert_eq!(world.cache.stats().frames_clean, 2000);
}
