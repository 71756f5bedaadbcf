//! Promises of write-back: what is written again and again in memory reaches the device once, the cleaner keeps a set depth, and
//! what it writes is merged and in the order of offsets. All told by counters, every I/O ended by hand.

use std::sync::Arc;
use std::time::Duration;

use baio_engine::{Arena, Durability, Memory, Open, Time, Wait};
use baio_storage::cache::{Cache, CacheOp, CacheOptions, GateId, IoKind, ObjectId};
use baio_storage::{Core, Mode, SegmentOp, SegmentRequest};

use crate::rig::hand::P;
use crate::rig::{PAGE, Random, ask, end_well};

/// A cache as it is by default, but of so many frames, with an object of so many pages.
struct World {
    cache: Cache,
    object: ObjectId,
    memory: Option<Memory>,
}

impl World {
    fn new(frames: usize, pages: u64) -> World {
        World::with_log(frames, pages, u64::MAX)
    }

    fn with_log(frames: usize, pages: u64, log_distance_max: u64) -> World {
        let config = CacheOptions {
            bytes: frames * PAGE,
            log_distance_max,
            ..CacheOptions::default()
        };
        let mut cache = Cache::new(&Arena::new(frames * PAGE).unwrap(), config).unwrap();
        let object = cache.add(pages * P, 0);
        let requests: Arc<Arena> = Arena::new(1 << 20).unwrap();
        let memory = Some(requests.buffer(PAGE).unwrap().into());
        World { cache, object, memory }
    }

    fn start(&mut self, op: CacheOp, memory: Memory) {
        ask(&mut self.cache, self.object, op, memory);
    }

    /// One plain write of a page; the memory comes back with its end.
    fn write(&mut self, page: u64) {
        let (offset, durability) = (page * P, Durability::None);
        let memory = self.memory.take().unwrap();
        self.start(CacheOp::Write { offset, durability }, memory);
    }

    /// Ends all I/Os, oldest first, until the requests have ended. Gives the pages of each write.
    fn drain(&mut self) -> Vec<(u64, u64)> {
        let mut writes = Vec::new();
        while let Some(io) = self.cache.next_io() {
            if let IoKind::Write { offset, len, .. } = io.kind {
                writes.push((offset / P, u64::from(len) / P));
            }
            end_well(&mut self.cache, io);
        }
        while let Some(done) = self.cache.next_done() {
            assert!(done.result.is_ok(), "{done:?}");
            if !done.memory.is_empty() {
                self.memory = Some(done.memory);
            }
        }
        writes
    }

    /// Changes a page that is cached, under an LSN that the log has made durable.
    fn change(&mut self, page: u64, lsn: u64) {
        self.cache.set_durable_lsn(GateId::default(), lsn);
        let pin = self.cache.pin_hit(self.object, page).unwrap();
        self.cache.change(&pin, lsn).unwrap().fill(lsn as u8);
        self.cache.unpin(pin);
    }

    fn sync(&mut self) -> Vec<(u64, u64)> {
        let (start, end, durability) = (0, u64::MAX, Durability::Data);
        self.start(CacheOp::Sync { start, end, durability }, Memory::None);
        self.drain()
    }
}

#[test]
fn a_block_rewritten_within_a_set_that_fits_reaches_the_device_once() {
    // Half of the frames, each page written forty times at random, and then one sync.
    let mut world = World::new(1024, 512);
    let mut random = Random(7);
    for nth in 0..512 * 40 {
        let page = if nth < 512 { nth } else { random.below(512) };
        world.write(page);
        assert_eq!(world.drain(), [], "at write {nth}");
    }
    let writes = world.sync();
    let stats = world.cache.stats();
    assert_eq!((stats.pages_written, stats.flushes), (512, 1), "{stats:?}");
    // Merged to what one write may hold, in the order of offsets.
    let each = CacheOptions::default().write_bytes_max as u64 / P;
    let expected: Vec<_> = (0..512 / each).map(|nth| (nth * each, each)).collect();
    assert_eq!(writes, expected);
}

#[test]
fn the_cleaner_starts_before_writers_wait_and_keeps_its_depth() {
    let mut world = World::new(1024, 4096);
    let depth = CacheOptions::default().cleaner_depth as usize;
    // Every other page: nothing can be merged. The device answers nothing so far.
    let (mut ios, mut nth) = (Vec::new(), 0);
    while world.cache.stats().parked == 0 {
        world.write(2 * nth);
        nth += 1;
        ios.extend(std::iter::from_fn(|| world.cache.next_io()));
        while let Some(done) = world.cache.next_done() {
            world.memory = Some(done.memory);
        }
    }
    // A writer waits at three quarters of the frames; a third below that the cleaner had begun.
    assert_eq!((nth, ios.len()), (1024 * 3 / 4 + 1, depth));
    let offsets: Vec<u64> = ios
        .iter()
        .map(|io| match io.kind {
            IoKind::Write { offset, .. } => offset / P,
            other => panic!("{other:?}"),
        })
        .collect();
    let in_order: Vec<u64> = (0..depth as u64).map(|nth| 2 * nth).collect();
    assert_eq!(offsets, in_order);
    // As writes end others begin: never more, and when they have gone down by a quarter, as many again.
    let mut under_way = ios.len();
    for io in ios {
        end_well(&mut world.cache, io);
        under_way -= 1;
        let begun = std::iter::from_fn(|| world.cache.next_io()).count();
        under_way += begun;
        assert!(begun == 0 || under_way == depth, "{begun} of {under_way}");
        assert!(under_way > depth - depth.div_ceil(4), "{under_way}");
    }
    let stats = world.cache.stats();
    assert_eq!(stats.spurious_wakeups, 0);
    assert_eq!(stats.writes, stats.cleaner_writes);
}

#[test]
fn a_long_log_has_its_oldest_pages_written_and_no_others() {
    let mut world = World::with_log(1024, 512, 1000);
    for page in 0..60 {
        world.write(page);
        world.drain();
    }
    world.sync();
    // Every third page, backwards, one each 50 LSNs.
    for nth in 0..20 {
        world.change(3 * (19 - nth), 50 * (nth + 1));
        assert_eq!(world.drain(), [], "the log is short");
    }
    assert_eq!(world.cache.oldest_recovery_lsn(GateId::default()), Some(50));
    world.cache.set_durable_lsn(GateId::default(), 1050);
    assert_eq!(world.drain(), [], "1000 behind is not too far");
    world.cache.set_durable_lsn(GateId::default(), 1051);
    // First changed at 551 at the latest: the first eleven changes, in the order of offsets.
    let expected: Vec<(u64, u64)> = (9..20).map(|nth| (3 * nth, 1)).collect();
    assert_eq!(world.drain(), expected);
    // And they are safe: the log may be cut behind them.
    let oldest = world.cache.oldest_recovery_lsn(GateId::default()).unwrap();
    assert_eq!(oldest, 600);
    let stats = world.cache.stats();
    assert_eq!((stats.foreground_writes, stats.spurious_wakeups), (0, 0));
    assert!(stats.cleaner_writes > 0 && stats.frames_dirty > 0, "{stats:?}");
}

#[test]
fn who_must_wait_for_a_dirty_frame_is_counted() {
    let mut world = World::new(16, 1000);
    for page in 0..12 {
        world.write(page);
        while let Some(done) = world.cache.next_done() {
            world.memory = Some(done.memory);
        }
    }
    assert_eq!(world.cache.stats().foreground_writes, 0);
    // Readers have the rest, and one waits for a frame: of whole pages a cold read needs none.
    let requests = Arena::new(1 << 20).unwrap();
    for page in 100..117 {
        world.start(
            CacheOp::Read { offset: page * P },
            requests.buffer(PAGE / 2).unwrap().into(),
        );
    }
    world.drain();
    assert!(world.cache.stats().foreground_writes > 0, "{:?}", world.cache.stats());
}

#[test]
fn what_grows_old_counts_from_its_change() {
    let mut world = World::new(64, 512);
    world.cache.set_now(Time(1_000_000_000_000)); // The clock has run before the first change.
    world.write(3);
    world.drain();
    let age = CacheOptions::default().age_max;
    assert_eq!(world.cache.next_tick(), Some(Time(1_000_000_000_000).after(age)));
    world.cache.tick(Time(1_000_000_000_000).after(age / 2));
    assert_eq!(world.drain(), []);
    world.cache.tick(Time(1_000_000_000_000).after(age));
    assert_eq!(world.drain(), [(3, 1)]);
    assert_eq!(world.cache.next_tick(), None);
}

#[test]
fn the_cleaner_wakes_a_core_that_nobody_asks_for_anything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; 16 * PAGE]).unwrap();
    let config = baio_engine::EngineOptions {
        slots: 64,
        arena_bytes: 4 << 20,
        ..baio_engine::EngineOptions::default()
    };
    let mut core = Core::new(&config).unwrap();
    core.use_cache(&CacheOptions {
        bytes: 64 * PAGE,
        age_max: Duration::from_millis(20),
        ..CacheOptions::default()
    })
    .unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    let mut buffer = core.buffer(PAGE).unwrap();
    buffer.fill(5);
    let request = SegmentRequest {
        mode: Mode::Cached,
        ..SegmentRequest::new(handle, SegmentOp::Write { offset: 0 }, buffer)
    };
    let ticket = core.start(request).unwrap();
    assert_eq!(core.wait(ticket).unwrap().unwrap().result.unwrap(), PAGE as u32);
    assert_eq!(core.cache_stats().unwrap().frames_dirty, 1);
    // As a service does that has nothing under way: it sleeps until somebody rings. Nobody does.
    let begun = core.engine().now();
    let hang = begun.after(Duration::from_secs(60));
    while core.cache_stats().unwrap().frames_clean == 0 {
        let deadline = Some(hang);
        let (count, min_wait) = (0, Duration::ZERO);
        core.turn(Wait::Until {
            count,
            min_wait,
            deadline,
        })
        .unwrap();
        assert!(core.engine().now() < hang, "it slept through");
    }
    assert_eq!(std::fs::read(&path).unwrap()[..PAGE], [5; PAGE]);
    core.close().unwrap();
}
