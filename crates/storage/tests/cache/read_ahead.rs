//! Promises of reading, told by counters: under a random pattern a cold request is one read of the device and nothing is read that
//! nobody asked for; a sequential reader always has several reads under way; and a scan leaves a hot set alone.

use std::collections::VecDeque;

use baio_engine::{Arena, Memory};
use baio_storage::cache::eviction::Hint;
use baio_storage::cache::{Cache, CacheOp, CacheOptions, Io, ObjectId};

use crate::rig::hand::P;
use crate::rig::{PAGE, Random, ask_with, end_well};

/// Pages of a file that is not small.
const FILE: u64 = 1 << 18;
/// Of each request: 16 KiB.
const PAGES: u64 = 4;

struct World {
    cache: Cache,
    object: ObjectId,
    free: Vec<Memory>,
    ios: VecDeque<Io>,
    under_way: usize,
}

impl World {
    fn new(frames: usize) -> World {
        let config = CacheOptions::of_size(frames * PAGE);
        let mut cache = Cache::new(&Arena::new(frames * PAGE).unwrap(), config).unwrap();
        let object = cache.add(FILE * P, 2 << 20);
        let requests = Arena::new(4 << 20).unwrap();
        let free = (0..64).map(|_| requests.buffer((PAGES * P) as usize).unwrap().into());
        World {
            cache,
            object,
            free: free.collect(),
            ios: VecDeque::new(),
            under_way: 0,
        }
    }

    fn read(&mut self, page: u64, hint: Hint) {
        let (object, op) = (self.object, CacheOp::Read { offset: page * P });
        let memory = self.free.pop().unwrap();
        ask_with(&mut self.cache, object, op, memory, hint);
        self.under_way += 1;
        self.look();
    }

    fn look(&mut self) {
        self.ios.extend(std::iter::from_fn(|| self.cache.next_io()));
        while let Some(done) = self.cache.next_done() {
            assert!(done.result.is_ok(), "{done:?}");
            self.free.push(done.memory);
            self.under_way -= 1;
        }
    }

    /// Ends I/Os, oldest first, until at most so many requests are under way.
    fn wait(&mut self, left: usize) {
        while self.under_way > left {
            let io = self.ios.pop_front().expect("a request waits for nothing");
            end_well(&mut self.cache, io);
            self.look();
        }
    }
}

#[test]
fn a_cold_random_read_is_one_read_of_what_was_asked() {
    for depth in [1, 64] {
        let mut world = World::new(4096);
        let mut random = Random(3);
        let mut blocks: Vec<u64> = (0..FILE / PAGES).collect();
        for at in (1..blocks.len()).rev() {
            blocks.swap(at, random.below(at as u64 + 1) as usize);
        }
        let asked = 20_000;
        for block in &blocks[..asked] {
            world.read(block * PAGES, Hint::Normal);
            world.wait(depth - 1);
        }
        world.wait(0);
        let stats = world.cache.stats();
        let pages = asked as u64 * PAGES;
        assert!(stats.pages_filled * 100 <= pages * 102, "depth {depth}: {stats:?}");
        // Those that were read ahead after all, because they lay side by side by chance, save reads.
        assert!(
            stats.fills <= asked as u64 && stats.fills * 102 >= asked as u64 * 100,
            "{stats:?}"
        );
        assert_eq!(stats.spurious_wakeups, 0);
    }
}

#[test]
fn a_sequential_reader_has_several_large_reads_under_way() {
    let mut world = World::new(16_384);
    for block in 0..FILE / PAGES / 4 {
        world.read(block * PAGES, Hint::Normal);
        world.wait(0);
        // As soon as the window has grown, three quarters of it at least are there or on their way.
        if block > 512 {
            let ahead = world.cache.stats().pages_ahead - world.cache.stats().ahead_hit;
            assert!(ahead >= 512 * 3 / 4, "{ahead} at block {block}");
        }
    }
    let stats = world.cache.stats();
    let asked = FILE / 4;
    assert!(stats.fills * 100 < asked, "reads are large: {stats:?}");
    assert!(stats.pages_filled <= asked + 512, "{stats:?}");
    assert_eq!(stats.ahead_wasted, 0);
}

/// Pages that a hot set loses to a scan of 32 times the cache, and of which half of the requests in between are for the hot set.
fn lost_to_a_scan(hint: Hint, beside: bool) -> u64 {
    let mut world = World::new(2048);
    let hot = 1024 / PAGES;
    let first = FILE - 1024;
    let mut random = Random(9);
    let touch = |world: &mut World, block: u64| {
        world.read(first + block * PAGES, Hint::Normal);
        world.wait(0);
    };
    // Each of it used three times at least, in any order.
    for round in 0..6 * hot {
        touch(
            &mut world,
            if round % 2 == 0 {
                round / 2 % hot
            } else {
                random.below(hot)
            },
        );
    }
    let before = world.cache.stats();
    for block in 0..32 * 2048 / PAGES {
        world.read(block * PAGES, hint);
        world.wait(0);
        if beside {
            touch(&mut world, random.below(hot));
        }
    }
    let scanned = world.cache.stats().pages_filled - before.pages_filled;
    (0..hot).for_each(|block| touch(&mut world, block));
    let lost = world.cache.stats().pages_filled - before.pages_filled - scanned;
    let again = scanned.saturating_sub(32 * 2048 + 512);
    lost + again
}

#[test]
fn a_hot_set_that_fits_is_not_read_again_after_a_scan() {
    // 2 GiB through 64 MiB, at the ratio of a smaller one; hinted, and as S3-FIFO finds out by itself.
    for (hint, beside) in [
        (Hint::Once, false),
        (Hint::Once, true),
        (Hint::Normal, false),
        (Hint::Normal, true),
    ] {
        assert_eq!(lost_to_a_scan(hint, beside), 0, "{hint:?}, used meanwhile: {beside}");
    }
}
