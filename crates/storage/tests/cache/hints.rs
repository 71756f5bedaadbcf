//! The promises of hints and of eviction policies of the caller's own: they change what is in the cache and nothing else, each is
//! bounded, and a policy that is wrong harms nobody.

#![allow(clippy::single_range_in_vec_init, reason = "a list of ranges, of which there is one")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use baio_engine::{Arena, Errno, Memory};
use baio_storage::cache::eviction::{Eviction, Hint};
use baio_storage::cache::window::Pattern;
use baio_storage::cache::{Cache, CacheError, CacheOp, Keeper};

use crate::rig::PAGE;
use crate::rig::hand::{Hand, P, config, hand, read_at, write_at};

impl Hand {
    fn prefetch(&mut self, ranges: &[Range<u64>]) -> u64 {
        self.cache.prefetch(self.object, ranges).unwrap()
    }

    /// The reads that are wanted now, all ended well.
    fn reads(&mut self) -> Vec<(u64, u64)> {
        let mut reads = Vec::new();
        while let Some(io) = self.cache.next_io() {
            reads.push(read_at(&io));
            self.end(io, 5);
        }
        reads
    }
}

#[test]
fn scattered_blocks_are_prefetched_with_a_read_each() {
    let mut h = hand(64);
    h.cached(7, 1, 1);
    assert_eq!(h.prefetch(&[300..301, 5..9, 40..42]), 7);
    assert_eq!(h.reads(), [(300, 1), (5, 2), (8, 1), (40, 2)]);
    let before = h.cache.stats();
    for page in [300, 5, 6, 8, 40, 41] {
        let read = h.read(page, 1);
        h.good(read);
    }
    h.quiet();
    let stats = h.cache.stats();
    assert_eq!((stats.pages_prefetched, stats.ahead_hit - before.ahead_hit), (6, 6));
}

#[test]
fn a_prefetch_is_bounded_and_says_how_far_it_came() {
    let mut h = hand(64);
    assert_eq!(h.prefetch(&[0..40]), 16, "a quarter of the frames");
    assert_eq!(h.reads(), [(0, 16)]);
    let far = [900..910, 998..1200, 5000..5001];
    assert_eq!(h.prefetch(&far), 10 + 202 + 1, "what is past the end is gone over");
    assert_eq!(h.reads(), [(900, 10), (998, 2)]);
    // With every frame dirty or held none can be had, and nobody waits.
    let mut h = hand(4);
    h.cached(0, 4, 0);
    let pins: Vec<_> = (0..4).map(|page| h.cache.pin_hit(h.object, page).unwrap()).collect();
    assert_eq!(h.prefetch(&[10..12]), 0);
    h.quiet();
    pins.into_iter().for_each(|pin| _ = h.cache.unpin(pin));
}

/// What is here already costs time too, and a hint may be about all of it again and again.
#[test]
fn what_a_hint_has_gone_over_is_counted() {
    let mut h = hand(64);
    h.cached(0, 16, 1);
    let mut before = 0;
    let mut gone_over = |h: &Hand| {
        let over = h.cache.pages_hinted() - before;
        before += over;
        over
    };
    assert_eq!(h.prefetch(&[0..10, 4..8, 5000..6000]), 10 + 4 + 1000);
    assert_eq!(gone_over(&h), 14, "what is past the end costs nothing");
    let keeper = Keeper { id: 1, uid: 1 };
    h.cache.keep(h.object, keeper, 0..8).unwrap();
    assert!(gone_over(&h) >= 8);
    h.cache.keep_no_more(h.object, keeper, 0..8).unwrap();
    assert!(gone_over(&h) >= 8);
    assert_eq!(h.cache.drop_pages(h.object, 0..16), Ok(16));
    assert_eq!(gone_over(&h), 16);
    // What all others keep is added up, also for one that is refused.
    for id in 2..6 {
        let other = Keeper { id, uid: 2 };
        h.cache.keep(h.object, other, 2 * id..2 * id + 1).unwrap();
    }
    gone_over(&h);
    h.cache.keep(h.object, keeper, 20..21).unwrap();
    assert!(gone_over(&h) > 4);
    assert_eq!(h.cache.keep(h.object, keeper, 100..200), Err(CacheError::KeptFull));
    assert!(gone_over(&h) > 4);
}

#[test]
fn a_prefetch_that_fails_is_silent() {
    let mut h = hand(16);
    h.prefetch(&[3..4]);
    let io = h.io();
    h.fail(io);
    h.quiet();
    let read = h.read(3, 1);
    let io = h.io();
    h.end(io, 0);
    h.good(read);
    // One that somebody waits for by then is told to him.
    h.prefetch(&[5..6]);
    let read = h.read(5, 1);
    let io = h.io();
    h.fail(io);
    assert_eq!(h.done(read).result, Err(CacheError::System(Errno::EIO)));
}

#[test]
fn a_prefetch_keeps_out_of_what_a_direct_write_has() {
    let mut h = hand(16);
    let reserve = h.reserve(2, 2);
    h.good(reserve);
    assert_eq!(h.prefetch(&[0..6]), 6);
    assert_eq!(h.reads(), [(0, 2), (4, 2)]);
    // It goes over a long range of such pages, but not over any.
    let mut h = hand(64);
    let reserve = h.reserve(0, 200);
    h.good(reserve);
    assert_eq!(h.prefetch(&[0..204]), 204);
    assert_eq!(h.reads(), [(200, 4)]);
    let reserve = h.reserve(300, 600);
    h.good(reserve);
    let over = h.prefetch(&[300..904]);
    assert!((200..300).contains(&over), "{over}");
    h.quiet();
}

#[test]
fn dropped_pages_leave_and_changed_ones_leave_when_written() {
    let mut h = hand(8);
    h.cached(0, 4, 1);
    let write = h.write(2, 9);
    h.good(write);
    assert_eq!(h.cache.drop_pages(h.object, 1..4), Ok(2));
    assert!(h.is_cached(0) && !h.is_cached(1) && h.is_cached(2));
    let sync = h.sync();
    let io = h.io();
    assert_eq!(write_at(&io), (2, 1, false));
    h.end(io, 0);
    let io = h.io();
    h.end(io, 0);
    h.good(sync);
    // It leaves before those that came in earlier.
    for page in 100..106 {
        h.cached(page, 1, 0);
    }
    assert!(!h.is_cached(2) && h.is_cached(0));
}

const ONE: Keeper = Keeper { id: 1, uid: 7 };

#[test]
fn kept_pages_stay_and_their_share_is_bounded() {
    let mut h = hand(16);
    assert_eq!(
        h.cache.keep(h.object, ONE, 0..5),
        Err(CacheError::KeptFull),
        "more than a quarter"
    );
    h.cached(1, 1, 7);
    h.cache.keep(h.object, ONE, 0..2).unwrap();
    h.cache.keep(h.object, ONE, 2..4).unwrap();
    assert_eq!(h.cache.keep(h.object, ONE, 9..10), Err(CacheError::KeptFull));
    h.cache.keep(h.object, ONE, 1..3).unwrap(); // Nothing new.
    h.cached(0, 1, 7);
    for page in 50..90 {
        h.cached(page, 1, 0);
    }
    assert!(h.is_cached(0) && h.is_cached(1));
    h.cache.keep_no_more(h.object, ONE, 1..900).unwrap();
    for page in 50..90 {
        h.cached(page, 1, 0);
    }
    assert!(h.is_cached(0) && !h.is_cached(1));
    h.cache.keep(h.object, ONE, 10..13).unwrap();
    // An object that goes takes its range along.
    assert_eq!(h.cache.remove(h.object), Ok(0));
    h.object = h.cache.add(1000 * P, 0);
    h.cache.keep(h.object, ONE, 0..4).unwrap();
    h.cached(0, 8, 0);
    h.cached(100, 4, 0);
    assert!(h.is_cached(0));
}

/// What one keeps is its own: it goes with him, nobody else ends it, and another user has a share as large.
#[test]
fn what_is_kept_is_its_keepers_and_goes_with_him() {
    let (other, same_user) = (Keeper { id: 2, uid: 8 }, Keeper { id: 3, uid: 7 });
    let mut h = hand(16);
    h.cached(0, 8, 7);
    h.cache.keep(h.object, ONE, 0..4).unwrap();
    assert_eq!(h.cache.keep(h.object, same_user, 4..5), Err(CacheError::KeptFull));
    h.cache.keep(h.object, other, 4..8).unwrap();
    assert_eq!(
        h.cache.keep(h.object, Keeper { id: 4, uid: 9 }, 8..9),
        Err(CacheError::KeptFull),
        "half in all"
    );
    h.cache.keep_no_more(h.object, other, 0..4).unwrap();
    h.cache.keeper_gone(3);
    for page in 50..90 {
        h.cached(page, 1, 0);
    }
    assert!((0..8).all(|page| h.is_cached(page)), "another has ended it");
    h.cache.keeper_gone(1);
    for page in 50..90 {
        h.cached(page, 1, 0);
    }
    assert!(!(0..4).any(|page| h.is_cached(page)) && (4..8).all(|page| h.is_cached(page)));
    h.cache.keep(h.object, same_user, 20..24).unwrap();
}

/// Each keeper is asked of each page that another one keeps no more: one user has so many of them at one object.
#[test]
fn one_user_has_so_many_keepers_of_an_object() {
    let mut h = hand(512);
    let keeper = |id| Keeper { id, uid: 7 };
    for id in 0..64 {
        h.cache.keep(h.object, keeper(id), id..id + 1).unwrap();
    }
    assert_eq!(
        h.cache.keep(h.object, keeper(64), 9..10),
        Err(CacheError::KeptFull),
        "half of its share is left"
    );
    h.cache.keep(h.object, keeper(3), 3..4).unwrap(); // It is there already.
    h.cache.keeper_gone(9);
    h.cache.keep(h.object, keeper(64), 9..10).unwrap();
}

#[test]
fn a_kept_page_is_written_and_makes_way_for_a_direct_write() {
    let mut h = hand(8);
    h.cache.keep(h.object, ONE, 0..2).unwrap();
    h.cached(0, 2, 0);
    let write = h.write(0, 3);
    h.good(write);
    let reserve = h.reserve(0, 2);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, true));
    h.end(io, 0);
    h.good(reserve);
    h.cache.release(h.object, reserve);
    assert!(!h.is_cached(1));
}

#[test]
fn a_reader_that_says_how_it_reads_is_believed() {
    let mut h = hand(256);
    let object = h.cache.add(1000 * P, 16 * PAGE);
    h.cache.hint(object, Pattern::Sequential).unwrap();
    let pin = h.ask(object, CacheOp::Pin { page: 0 }, Memory::None);
    assert_eq!(h.reads(), [(0, 17)], "a pinned page is read ahead of like any other");
    let pin = h.good(pin).pin.unwrap();
    h.cache.unpin(pin);
    h.cache.hint(object, Pattern::Random).unwrap();
    for page in [100, 101, 102, 103] {
        h.ask(object, CacheOp::Pin { page }, Memory::None);
        assert_eq!(h.reads(), [(page, 1)]);
        let pin = h.cache.next_done().unwrap().pin.unwrap();
        h.cache.unpin(pin);
    }
}

/// What a policy may do wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// Always the same frame, may it go or not.
    SameAgain,
    /// Frames that there are none of.
    Beyond,
    /// Asks about such.
    AsksBeyond,
    /// None, though some may go.
    Never,
}

#[derive(Debug)]
struct Bad(Wrong);

impl Eviction for Bad {
    fn inserted(&mut self, _: u32, _: u64, _: Hint) {}
    fn hit(&mut self, _: u32) {}
    fn removed(&mut self, _: u32) {}

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        match self.0 {
            Wrong::SameAgain => Some(2),
            Wrong::Beyond => Some(u32::MAX),
            Wrong::AsksBeyond => (0..1000).rev().find(|&frame| may_go(frame)),
            Wrong::Never => None,
        }
    }

    fn name(&self) -> &'static str {
        "bad"
    }
}

#[test]
fn a_policy_that_is_wrong_harms_nobody() {
    for wrong in [Wrong::SameAgain, Wrong::Beyond, Wrong::AsksBeyond, Wrong::Never] {
        let mut h = hand(8);
        let arena = Arena::new(8 * PAGE).unwrap();
        h.cache = Cache::with_eviction(&arena, config(8), Box::new(Bad(wrong))).unwrap();
        h.object = h.cache.add(1000 * P, 0);
        h.cached(0, 1, 77);
        let pin = h.cache.pin_hit(h.object, 0).unwrap();
        for page in 1..100 {
            h.cached(page, 1, page as u8);
            if page % 3 == 0 {
                let write = h.write(page, page as u8 + 1);
                h.end_all(0);
                h.good(write);
            }
            assert_eq!(h.cache.page(&pin).unwrap(), [77; PAGE], "{wrong:?}");
        }
        h.cache.unpin(pin);
        let refused = h.cache.stats().victims_refused;
        assert_eq!(refused == 0, matches!(wrong, Wrong::AsksBeyond), "{wrong:?}: {refused}");
    }
}

/// Counts the further uses of which it hears.
#[derive(Debug)]
struct Counting(Arc<AtomicU32>);

impl Eviction for Counting {
    fn inserted(&mut self, _: u32, _: u64, _: Hint) {}
    fn hit(&mut self, _: u32) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn removed(&mut self, _: u32) {}
    fn victim(&mut self, _: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        None
    }
    fn name(&self) -> &'static str {
        "counting"
    }
}

/// Its frame has held another page, of which everything had been used.
#[test]
fn the_first_use_of_a_page_is_no_further_use() {
    let mut h = hand(8);
    let hits = Arc::new(AtomicU32::new(0));
    let arena = Arena::new(8 * PAGE).unwrap();
    h.cache = Cache::with_eviction(&arena, config(8), Box::new(Counting(Arc::clone(&hits)))).unwrap();
    h.object = h.cache.add(1000 * P, 0);
    h.cached(0, 8, 1);
    assert_eq!(h.cache.drop_pages(h.object, 0..8), Ok(8));
    // Whoever asked for this one does not want it any more.
    let read = h.read(20, 1);
    let io = h.io();
    h.cache.cancel(read);
    h.done(read).result.unwrap_err();
    h.end(io, 2);
    for heard in 0..3 {
        let read = h.read(20, 1);
        h.good(read);
        assert_eq!(hits.load(Ordering::Relaxed), heard);
    }
}

/// The page that came in last leaves first: what a cyclic scan wants.
#[derive(Debug, Default)]
struct LastInFirstOut(Vec<u32>);

impl Eviction for LastInFirstOut {
    fn inserted(&mut self, frame: u32, _: u64, _: Hint) {
        self.removed(frame);
        self.0.push(frame);
    }
    fn hit(&mut self, _: u32) {}
    fn removed(&mut self, frame: u32) {
        self.0.retain(|held| *held != frame);
    }
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let at = self.0.iter().rposition(|&frame| may_go(frame))?;
        Some(self.0.remove(at))
    }
    fn name(&self) -> &'static str {
        "last in, first out"
    }
}

#[test]
fn a_policy_of_ones_own_decides() {
    let mut fills = Vec::new();
    for own in [false, true] {
        let mut h = hand(16);
        if own {
            let arena = Arena::new(16 * PAGE).unwrap();
            h.cache = Cache::with_eviction(&arena, config(16), Box::<LastInFirstOut>::default()).unwrap();
            h.object = h.cache.add(1000 * P, 0);
        }
        for _ in 0..10 {
            for page in 0..20 {
                h.cached(page, 1, 1);
            }
        }
        let stats = h.cache.stats();
        assert_eq!(stats.victims_refused, 0);
        fills.push(stats.pages_filled);
    }
    // A cycle over a little more than fits: CLOCK finds nothing again, this one most.
    assert!(fills[1] <= 20 + 9 * 5 && fills[0] >= 150, "{fills:?}");
}
