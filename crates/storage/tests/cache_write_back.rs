//! Promises of write-back: what is written again and again in memory reaches the device once, the cleaner keeps a set depth, and
//! what it writes is merged and in the order of offsets. All told by counters, every I/O ended by hand.

mod cached;

use std::sync::Arc;

use baio_engine::{Arena, Memory};
use baio_storage::cache::eviction::Hint;
use baio_storage::cache::{Cache, CacheConfig, CacheOp, CacheRequest, IoKind, ObjectId};
use cached::hand::P;
use cached::{PAGE, Random};

/// A cache as it is by default, but of so many frames, with an object of so many pages.
struct World {
    cache: Cache,
    object: ObjectId,
    memory: Option<Memory>,
}

impl World {
    fn new(frames: usize, pages: u64) -> World {
        let config = CacheConfig {
            bytes: frames * PAGE,
            ..CacheConfig::default()
        };
        let mut cache = Cache::new(&Arena::new(frames * PAGE).unwrap(), config).unwrap();
        let object = cache.add(pages * P, 0);
        let requests: Arc<Arena> = Arena::new(1 << 20).unwrap();
        let memory = Some(requests.buffer(PAGE).unwrap().into());
        World { cache, object, memory }
    }

    fn start(&mut self, op: CacheOp, memory: Memory) {
        let (object, hint) = (self.object, Hint::Normal);
        let asked = CacheRequest {
            object,
            op,
            memory,
            hint,
        };
        self.cache.start(0, asked);
    }

    /// One plain write of a page; the memory comes back with its end.
    fn write(&mut self, page: u64) {
        let (offset, durability) = (page * P, baio_engine::Durability::None);
        let memory = self.memory.take().unwrap();
        self.start(CacheOp::Write { offset, durability }, memory);
    }

    /// Ends all I/Os, oldest first, until the requests have ended. Gives the pages of each write.
    fn drain(&mut self) -> Vec<(u64, u64)> {
        let mut writes = Vec::new();
        while let Some(io) = self.cache.next_io() {
            let len = io.memory.len() as u32;
            if let IoKind::Write { offset, len, .. } = io.kind {
                writes.push((offset / P, u64::from(len) / P));
            }
            self.cache.io_ended(io.id, Ok(len), io.memory);
        }
        while let Some(done) = self.cache.next_done() {
            assert!(done.result.is_ok(), "{done:?}");
            if !done.memory.is_empty() {
                self.memory = Some(done.memory);
            }
        }
        writes
    }

    fn sync(&mut self) -> Vec<(u64, u64)> {
        let (start, end, durability) = (0, u64::MAX, baio_engine::Durability::Data);
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
    let each = CacheConfig::default().write_bytes_max as u64 / P;
    let expected: Vec<_> = (0..512 / each).map(|nth| (nth * each, each)).collect();
    assert_eq!(writes, expected);
}

#[test]
fn the_cleaner_starts_before_writers_wait_and_keeps_its_depth() {
    let mut world = World::new(1024, 4096);
    let depth = CacheConfig::default().cleaner_depth as usize;
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
        let len = io.memory.len() as u32;
        world.cache.io_ended(io.id, Ok(len), io.memory);
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
