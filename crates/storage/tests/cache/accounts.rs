//! Dirty pages are capped per owner: one owner's cached writes do not take all the room of the others, whatever its device does, and
//! no owner waits for ever. Every I/O is ended by hand.

use baio_engine::{Arena, Durability};
use baio_storage::cache::{Cache, Io, ObjectId};
use proptest::prelude::*;

use crate::rig::hand::{Hand, P, config};
use crate::rig::{PAGE, Random};

/// Pages that may be dirty of those of a cache of 64, and those of one owner beside others.
const LIMIT: u64 = 32;
const HALF: u64 = 16;

/// A cache with one object for each owner; an owner's may be several.
fn owners(of: &[u32]) -> (Hand, Vec<ObjectId>) {
    let mut cache = Cache::new(&Arena::new(64 * PAGE).unwrap(), config(64)).unwrap();
    let objects: Vec<_> = of.iter().map(|&uid| cache.add_of(uid, 1000 * P, 0)).collect();
    let hand = Hand {
        cache,
        object: objects[0],
        memory: Arena::new(16 << 20).unwrap(),
    };
    (hand, objects)
}

/// Writes whole pages of an object, one request each, until one waits or these are done; says how many were done.
fn fill(h: &mut Hand, object: ObjectId, pages: std::ops::Range<u64>) -> u64 {
    h.object = object;
    let first = pages.start;
    for page in pages {
        h.write(page, 1);
        if h.cache.next_done().is_none() {
            return page - first;
        }
    }
    panic!("no write waits");
}

/// The I/Os that the cache wants now, of this object or not. What it has put off is done first, as whoever drives it must.
fn wanted(h: &mut Hand) -> Vec<Io> {
    let mut ios = Vec::new();
    loop {
        ios.extend(std::iter::from_fn(|| h.cache.next_io()));
        if !h.cache.is_put_off() {
            return ios;
        }
        h.cache.go_on();
    }
}

/// Requests that have ended.
fn ended(h: &mut Hand) -> u64 {
    std::iter::from_fn(|| h.cache.next_done())
        .map(|done| assert!(done.result.is_ok(), "{done:?}"))
        .count() as u64
}

/// Ends I/Os of other objects than this one, and what follows from that, until there is none; gives its own, which do not end.
fn end_but(h: &mut Hand, stuck: ObjectId, held: &mut Vec<Io>) {
    loop {
        let (its, others): (Vec<Io>, Vec<Io>) = wanted(h).into_iter().partition(|io| io.object == stuck);
        held.extend(its);
        if others.is_empty() {
            return;
        }
        others.into_iter().for_each(|io| h.end(io, 0));
    }
}

#[test]
fn one_owner_alone_has_the_whole_limit() {
    let (mut h, of) = owners(&[1, 2]);
    assert_eq!(fill(&mut h, of[0], 0..100), LIMIT);
    let (mut h, of) = owners(&[1, 1]);
    for page in 0..HALF {
        h.object = of[1];
        let write = h.write(page, 1);
        h.good(write);
    }
    assert_eq!(
        fill(&mut h, of[0], 0..100),
        HALF,
        "two objects of one owner are one account"
    );
}

#[test]
fn beside_another_it_has_half_and_the_other_goes_on() {
    let (mut h, of) = owners(&[1, 2]);
    h.object = of[1];
    let first = h.write(500, 1);
    h.good(first);
    assert_eq!(fill(&mut h, of[0], 0..100), HALF);
    // Nothing of the first one's is ever written: the second goes on, also far beyond its half.
    let mut held = Vec::new();
    h.object = of[1];
    for page in 0..HALF - 1 {
        let write = h.write(page, 2);
        h.good(write);
    }
    assert_eq!(
        h.cache.requests_under_way(),
        1,
        "the first one's, which may have no more"
    );
    for page in HALF..10 * LIMIT {
        let mut left = h.cache.requests_under_way() as u64;
        h.write(page, 2);
        end_but(&mut h, of[0], &mut held);
        left = left + 1 - ended(&mut h);
        // As soon as the second one has no dirty page, the first is alone, and goes on.
        assert_eq!(left, 0, "page {page}");
    }
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn who_comes_second_has_room_at_once_though_the_first_has_it_all() {
    let (mut h, of) = owners(&[1, 2]);
    assert_eq!(fill(&mut h, of[0], 0..100), LIMIT);
    h.object = of[1];
    let mut held = Vec::new();
    for page in 0..10 * LIMIT {
        h.write(page, 2);
        end_but(&mut h, of[0], &mut held);
        assert_eq!(ended(&mut h), 1, "page {page}");
    }
    assert_eq!(h.cache.requests_under_way(), 1, "the first one's");
    held.into_iter().for_each(|io| h.end(io, 0));
    end_but(&mut h, of[1], &mut Vec::new());
    assert_eq!(ended(&mut h), 1);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn nobody_overtakes_who_could_have_the_room() {
    let (mut h, of) = owners(&[1, 2, 3]);
    let durable = h.durable(0, 1);
    let io = h.io();
    let dirty = |h: &mut Hand, object, pages: std::ops::Range<u64>| {
        h.object = object;
        for page in pages {
            let write = h.write(page, 1);
            h.good(write);
        }
    };
    dirty(&mut h, of[0], 1..HALF);
    dirty(&mut h, of[1], 0..HALF);
    h.object = of[2];
    let third = h.write(0, 3);
    h.object = of[0];
    let again = h.write(0, 2);
    assert!(h.cache.next_done().is_none(), "all room is taken");
    // Its end makes room for one, and wakes who waits for this page: the other one has waited longer.
    h.end(io, 0);
    h.good(durable);
    h.good(third);
    assert!(h.cache.next_done().is_none());
    end_but(&mut h, of[2], &mut Vec::new());
    h.good(again);
}

#[test]
fn who_waits_beside_another_goes_on_when_it_is_alone() {
    let (mut h, of) = owners(&[1, 2]);
    h.object = of[1];
    let first = h.write(0, 1);
    h.good(first);
    assert_eq!(fill(&mut h, of[0], 0..100), HALF);
    // The second one's page is written, the first one's are not: now the first may have the whole limit.
    let mut held = Vec::new();
    end_but(&mut h, of[0], &mut held);
    assert_eq!(ended(&mut h), 1);
    assert_eq!(fill(&mut h, of[0], 100..200), LIMIT - HALF - 1);
}

#[test]
fn an_owner_that_has_gone_leaves_no_trace() {
    let (mut h, of) = owners(&[1, 2]);
    for page in 0..3 {
        h.object = of[1];
        let write = h.write(page, 1);
        h.good(write);
    }
    h.cache.discard(of[1]);
    assert_eq!(fill(&mut h, of[0], 0..100), LIMIT);
    // Its place goes to another owner, who has nothing.
    let third = h.cache.add_of(3, 1000 * P, 0);
    h.object = third;
    let write = h.write(0, 1);
    h.good(write);
}

/// A world of owners who write at random; I/Os end at random, those of the stuck one not before the end.
fn play(seed: u64, objects: &[u32], stuck: Option<usize>) -> Result<(), TestCaseError> {
    let (mut h, of) = owners(objects);
    let mut random = Random(seed);
    let mut flying: Vec<Io> = Vec::new();
    let mut held: Vec<Io> = Vec::new();
    let (mut asked, mut done) = (0, 0);
    let is_stuck = |io: &Io| stuck.is_some_and(|nth| of[nth] == io.object);
    for _ in 0..600 {
        flying.extend(wanted(&mut h));
        held.extend(flying.extract_if_stuck(&is_stuck));
        match random.below(3) {
            0 if !flying.is_empty() => {
                let io = flying.swap_remove(random.below(flying.len() as u64) as usize);
                h.end(io, 0);
            }
            _ if h.cache.requests_under_way() < 60 => {
                h.object = of[random.below(of.len() as u64) as usize];
                let durability = [Durability::None, Durability::None, Durability::None, Durability::Data];
                let (page, pages) = (random.below(200), 1 + random.below(4));
                let durability = durability[random.below(4) as usize];
                h.write_with(page * P, pages as usize * PAGE, 1, durability);
                asked += 1;
            }
            _ => {}
        }
        done += ended(&mut h);
    }
    // All but the stuck one's end.
    loop {
        flying.extend(wanted(&mut h));
        held.extend(flying.extract_if_stuck(&is_stuck));
        let Some(io) = flying.pop() else { break };
        h.end(io, 0);
        done += ended(&mut h);
    }
    if let Some(nth) = stuck {
        let its = h.cache.stats();
        // Who is not stuck has nothing that waits: a sync of it ends too.
        for (other, &object) in of
            .iter()
            .enumerate()
            .filter(|(other, _)| objects[*other] != objects[nth])
        {
            h.object = object;
            h.write(900 + other as u64, 1);
            asked += 1;
            let before = done;
            loop {
                flying.extend(wanted(&mut h));
                held.extend(flying.extract_if_stuck(&is_stuck));
                let Some(io) = flying.pop() else { break };
                h.end(io, 0);
            }
            done += ended(&mut h);
            prop_assert!(done > before, "owner {} waits for ever: {its:?}", objects[other]);
        }
    }
    for io in held {
        h.end(io, 0);
    }
    loop {
        flying.extend(wanted(&mut h));
        let Some(io) = flying.pop() else { break };
        h.end(io, 0);
    }
    done += ended(&mut h);
    prop_assert_eq!((asked, h.cache.requests_under_way()), (done, 0));
    prop_assert_eq!(h.cache.stats().spurious_wakeups, 0);
    Ok(())
}

trait Stuck {
    fn extract_if_stuck(&mut self, is_stuck: &dyn Fn(&Io) -> bool) -> Vec<Io>;
}

impl Stuck for Vec<Io> {
    fn extract_if_stuck(&mut self, is_stuck: &dyn Fn(&Io) -> bool) -> Vec<Io> {
        let (its, others) = std::mem::take(self).into_iter().partition(|io| is_stuck(io));
        *self = others;
        its
    }
}

proptest! {
    #[test]
    fn in_whatever_order_everything_ends(seed: u64, of in prop::collection::vec(0u32..3, 1..5)) {
        play(seed, &of, None)?;
    }

    #[test]
    fn who_is_stuck_keeps_nobody_else(seed: u64, of in prop::collection::vec(0u32..2, 1..4)) {
        play(seed, &of, Some(0))?;
    }
}

/// Here what ends is so much that the cache puts the rest off while the stuck one's writes are on their way.
#[test]
fn what_was_put_off_goes_on_beside_who_is_stuck() {
    play(3759447970264768440, &[0, 1, 1], Some(0)).unwrap();
}

#[test]
fn the_place_of_an_object_that_has_gone_is_cleaned_for_its_next_owner() {
    let (mut h, of) = owners(&[1, 2]);
    let first = h.write(0, 1);
    h.good(first);
    h.cache.discard(of[0]);
    // Its place, of another account.
    h.object = h.cache.add_of(2, 1000 * P, 0);
    let long = h.write_with(0, (LIMIT as usize + 8) * PAGE, 1, Durability::None);
    assert!(h.cache.next_done().is_none(), "it waits for room");
    h.end_all(0);
    h.good(long);
}
