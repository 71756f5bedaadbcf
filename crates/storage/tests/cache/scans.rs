//! The promise that readers in order leave a hot set alone and read nothing twice, however many there are and in whatever pieces
//! they read: told by the pages that the device was asked for.

use std::sync::Arc;

use baio_engine::{Arena, Memory};
use baio_storage::cache::eviction::{Hint, Policy};
use baio_storage::cache::window::Pattern;
use baio_storage::cache::{Cache, CacheOp, CacheOptions, CacheStats, ObjectId};

use crate::rig::hand::P;
use crate::rig::{PAGE, Random, ask_with, end_all};

/// Pages of each file.
const FILE: u64 = 1 << 20;
/// Pages of each request of a stream.
const PAGES: u64 = 4;

/// A cache of which each request ends before the next begins.
struct World {
    cache: Cache,
    hot: ObjectId,
    cold: ObjectId,
    frames: u64,
    memory: Arc<Arena>,
}

impl World {
    fn new(frames: u64, policy: Policy) -> World {
        let config = CacheOptions {
            bytes: frames as usize * PAGE,
            eviction: policy,
            ..CacheOptions::default()
        };
        let mut cache = Cache::new(&Arena::new(frames as usize * PAGE).unwrap(), config).unwrap();
        let hot = cache.add(FILE * P, 2 << 20);
        cache.hint(hot, Pattern::Random).unwrap();
        World {
            hot,
            cold: cache.add(FILE * P, 2 << 20),
            cache,
            frames,
            memory: Arena::new(1 << 20).unwrap(),
        }
    }

    fn read(&mut self, object: ObjectId, offset: u64, len: usize, hint: Hint) {
        let memory: Memory = self.memory.buffer(len).unwrap().into();
        let op = CacheOp::Read { offset };
        ask_with(&mut self.cache, object, op, memory, hint);
        loop {
            end_all(&mut self.cache);
            let Some(done) = self.cache.next_done() else { break };
            assert_eq!(done.result, Ok(len as u32));
        }
    }

    fn touch(&mut self, page: u64) {
        self.read(self.hot, page * P, PAGE, Hint::Normal);
    }

    /// Reads this many pages four times.
    fn warm(&mut self, hot: u64) {
        for _ in 0..4 {
            (0..hot).for_each(|page| self.touch(page));
        }
    }

    /// Pages that the device was asked for since.
    fn filled(&self, since: &CacheStats) -> u64 {
        self.cache.stats().pages_filled - since.pages_filled
    }

    /// How many pages of the hot set are not there any more.
    fn lost(&mut self, hot: u64) -> u64 {
        let before = self.cache.stats();
        (0..hot).for_each(|page| self.touch(page));
        self.filled(&before)
    }
}

/// Readers in order, each from a place of its own; `turn` says whose request is next.
struct Readers {
    at: Vec<u64>,
    asked: u64,
}

impl Readers {
    fn new(count: u64) -> Readers {
        Readers {
            at: (0..count).map(|nth| nth * (FILE / 16)).collect(),
            asked: 0,
        }
    }

    fn step(&mut self, world: &mut World, nth: u64, hint: Hint) {
        let at = &mut self.at[nth as usize];
        world.read(world.cold, *at * P, (PAGES * P) as usize, hint);
        *at += PAGES;
        self.asked += PAGES;
    }
}

/// Pages read by so many streams beside a hot set that fills the cache but for its small queue, in percent of what they asked for.
/// Nothing of the hot set may be lost.
fn read_by(count: u64, frames: u64, hint: Hint, mut turn: impl FnMut(u64) -> u64) -> u64 {
    let mut world = World::new(frames, Policy::S3Fifo);
    let hot = match hint {
        Hint::Normal => frames * 9 / 10,
        Hint::Once => frames * 8 / 10, // They have a queue besides.
    };
    world.warm(hot);
    let (mut readers, mut random) = (Readers::new(count), Random(7));
    let (before, mut missed) = (world.cache.stats(), 0);
    for step in 0..frames {
        readers.step(&mut world, turn(step), hint);
        let stats = world.cache.stats();
        world.touch(random.below(hot));
        missed += world.filled(&stats);
    }
    let filled = world.filled(&before) - missed;
    let lost = world.lost(hot);
    assert_eq!((missed, lost), (0, 0), "{count} streams, {frames} frames, {hint:?}");
    filled * 100 / readers.asked
}

#[test]
fn streams_beside_a_hot_set_read_what_was_asked_once() {
    for frames in [1 << 10, 1 << 12, 1 << 14] {
        for count in [4, 5, 6, 7, 8] {
            let percent = read_by(count, frames, Hint::Normal, |step| step % count);
            assert!(percent <= 105, "{count} streams, {frames} frames: {percent} %");
        }
    }
}

#[test]
fn so_do_streams_in_no_particular_order_and_those_that_say_that_they_read_once() {
    for hint in [Hint::Normal, Hint::Once] {
        for count in [1, 4, 8] {
            let mut random = Random(11);
            let percent = read_by(count, 1 << 12, hint, |_| random.below(count));
            assert!(percent <= 105, "{count} streams, {hint:?}: {percent} %");
        }
    }
}

#[test]
fn a_slow_stream_beside_fast_ones_keeps_what_was_read_ahead_for_it() {
    // The first is three times slower than the others.
    let percent = read_by(6, 1 << 14, Hint::Normal, |step| match step % 16 {
        0 => 0,
        step => 1 + (step - 1) % 5,
    });
    assert!(percent <= 105, "{percent} %");
}

#[test]
fn readers_that_stop_do_not_take_readahead_from_those_that_follow() {
    let mut world = World::new(1 << 12, Policy::S3Fifo);
    world.warm((1 << 12) * 9 / 10);
    // A hundred readers that stop half-way, one after the other.
    for reader in 0..100 {
        for step in 0..32 {
            world.read(
                world.cold,
                (reader * 1024 + step * PAGES) * P,
                (PAGES * P) as usize,
                Hint::Normal,
            );
        }
    }
    let mut readers = Readers {
        at: vec![FILE / 2],
        asked: 0,
    };
    for _ in 0..512 {
        readers.step(&mut world, 0, Hint::Normal);
    }
    let before = world.cache.stats();
    for _ in 0..1024 {
        readers.step(&mut world, 0, Hint::Normal);
    }
    let stats = world.cache.stats();
    let large = (stats.pages_filled - before.pages_filled) / (stats.fills - before.fills);
    assert!(large >= 16, "{large} pages a read");
}

/// Pages of a hot set of half the cache that are gone after it was scanned beside, in pieces of so many bytes.
fn lost_to_pieces(piece: usize, backwards: bool) -> u64 {
    let mut world = World::new(1 << 11, Policy::S3Fifo);
    let hot = world.frames / 2;
    world.warm(hot);
    let pieces = (8 * world.frames * P) / piece as u64;
    for nth in 0..pieces {
        let nth = if backwards { pieces - 1 - nth } else { nth };
        world.read(world.cold, nth * piece as u64, piece, Hint::Normal);
    }
    world.lost(hot)
}

#[test]
fn a_scan_in_pieces_of_any_size_leaves_a_hot_set_alone() {
    for piece in [512, 1500, 2048, 4096, 6000, 16384] {
        let lost = lost_to_pieces(piece, false);
        assert_eq!(lost, 0, "pieces of {piece} bytes");
    }
}

#[test]
fn so_does_a_scan_backwards() {
    for piece in [512, 1500, 6000] {
        let lost = lost_to_pieces(piece, true);
        assert_eq!(lost, 0, "pieces of {piece} bytes");
    }
}

/// The other way round: what is small and read again and again is a hot page all the same.
#[test]
fn a_small_record_that_is_read_again_and_again_stays() {
    let mut world = World::new(1 << 11, Policy::S3Fifo);
    let mut random = Random(5);
    for _ in 0..16 {
        for page in 0..64 {
            let record = random.below(16) * 256;
            world.read(world.hot, page * P + record, 256, Hint::Normal);
        }
    }
    for nth in 0..8 * world.frames {
        world.read(world.cold, nth * P, PAGE, Hint::Normal);
    }
    assert_eq!(world.lost(64), 0);
}

/// Blocks that were asked for ahead of their use are there when they are used, also those of a long list.
#[test]
fn a_prefetch_does_not_drive_out_what_it_brought_itself() {
    let mut world = World::new(1 << 12, Policy::S3Fifo);
    let hot = world.frames * 9 / 10;
    world.warm(hot);
    let before = world.cache.stats();
    let mut at = 0;
    while at < 4096 {
        let rest = at..4096;
        let gone_over = world.cache.prefetch(world.cold, std::slice::from_ref(&rest)).unwrap();
        end_all(&mut world.cache);
        for page in at..at + gone_over.max(1) {
            world.read(world.cold, page * P, PAGE, Hint::Normal);
        }
        at += gone_over.max(1);
    }
    let filled = world.filled(&before);
    assert!(filled <= 4096 * 105 / 100, "{filled} pages for 4096");
    assert_eq!(world.lost(hot), 0);
}
