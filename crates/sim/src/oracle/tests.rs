//! Canaries: an oracle that finds nothing wrong with a wrong volume would pass every exploration.

use super::*;
use crate::model::NAMES;
use crate::observe::observe;
use crate::workload::{ByChance, Counts, Ids, Session, State, run_session};
use crate::world::{self, World};
use baio_engine::sim::Random;
use baio_storage::Identity;

fn by_chance<'a>(random: &'a mut Random, ids: &'a mut Ids, left: usize) -> ByChance<'a> {
    ByChance::new(random, ids, left, false)
}

/// A session that ends with at least two segments, one of them with synced bytes.
fn session() -> Session {
    for seed in 0.. {
        let world = World::new(seed).unwrap();
        let state = State::after_power_cut(world.disk, Expectation::default());
        let (mut random, mut ids) = (Random::from(&[seed]), Ids::default());
        let session = run_session(state, &mut by_chance(&mut random, &mut ids, 20), &mut Counts::default()).unwrap();
        let model = session.models.last().unwrap();
        let synced = |segment: &Rc<Segment>| segment.sectors.iter().any(|s| s.settled > 0 && s.pending.is_empty());
        if model.segments.len() >= 2 && model.segments.values().any(synced) {
            return session;
        }
    }
    unreachable!()
}

fn ended() -> (Expectation, Seen) {
    let session = session();
    let disk = session.disk_at(session.record.len());
    let seen = observe(&mut world::open(&disk, 7).unwrap()).unwrap();
    (session.expectation(session.record.len()), seen)
}

fn gap_of(seen: &Seen) -> u64 {
    let runs = seen.segments.iter().map(|s| (s.start_block, s.start_block + s.reserve));
    longest_gap(runs.collect(), seen.data_blocks)
}

fn kind_of(expectation: &Expectation, seen: &Seen) -> Option<Kind> {
    expectation.check(seen).err().map(|violation| violation.kind)
}

#[test]
fn the_right_volume_is_right() {
    let (expectation, seen) = ended();
    assert_eq!(kind_of(&expectation, &seen), None);
}

#[test]
fn an_acknowledged_segment_that_is_gone_is_reported() {
    let (expectation, mut seen) = ended();
    let gone = seen.segments.pop().unwrap();
    seen.free_blocks += gone.reserve;
    seen.segments_counted -= 1;
    seen.largest_free = gap_of(&seen);
    for (uid, account) in &mut seen.accounts {
        if *uid == gone.key.uid {
            account.used.blocks -= gone.reserve;
            account.used.segments -= 1;
        }
    }
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Lost));
    let under_way = Expectation {
        under_way: Some(Op::Delete { key: gone.key }),
        ..expectation
    };
    assert_eq!(kind_of(&under_way, &seen), None, "its delete was under way");
}

#[test]
fn a_segment_that_was_deleted_and_is_back_is_reported() {
    let (mut expectation, seen) = ended();
    expectation.model.segments.pop_first();
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Lost));
}

#[test]
fn a_segment_of_another_size_is_reported() {
    let (mut expectation, seen) = ended();
    Rc::make_mut(expectation.model.segments.first_entry().unwrap().get_mut()).reserve += 1;
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Lost));
}

#[test]
fn synced_bytes_that_are_old_are_reported() {
    let (expectation, mut seen) = ended();
    let written = |content: &&mut Content| matches!(content, Content::Written { .. });
    let lost = seen.segments.iter_mut().find_map(|segment| {
        let settled = &expectation.model.segments[&segment.key].sectors;
        let at = settled.iter().position(|s| s.settled > 0 && s.pending.is_empty())?;
        Some(&mut segment.contents[at]).filter(written)
    });
    *lost.unwrap() = Content::Zero;
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Lost));
}

#[test]
fn bytes_of_others_are_reported() {
    let alien = Content::Written {
        instance: 4711,
        position: 0,
        version: 1,
    };
    for content in [Content::Stale, Content::Mixed, alien] {
        let (expectation, mut seen) = ended();
        seen.segments[0].contents[0] = content;
        assert_eq!(kind_of(&expectation, &seen), Some(Kind::Leak), "{content:?}");
    }
}

#[test]
fn blocks_of_two_owners_are_reported() {
    let (expectation, mut seen) = ended();
    seen.segments[1].start_block = seen.segments[0].start_block;
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Overlap));
    let (expectation, mut seen) = ended();
    seen.segments[0].state = "quarantined";
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Overlap));
}

#[test]
fn blocks_of_nobody_are_reported() {
    let (expectation, mut seen) = ended();
    seen.free_blocks -= 1;
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Space));
}

#[test]
fn unsynced_sectors_may_be_old_or_new_but_not_older() {
    let sector = Sector {
        settled: 3,
        pending: vec![5, 8],
    };
    assert!([3, 5, 8].iter().all(|&version| sector.allows(version)));
    assert!([0, 2, 4, 9].iter().all(|&version| !sector.allows(version)));
}

/// From end to end: somebody deletes a segment behind the oracle's back, on the real volume.
#[test]
fn a_volume_that_forgets_is_reported() {
    let session = session();
    let end = session.record.len();
    let disk = session.disk_at(end);
    let mut core = world::open(&disk, 7).unwrap();
    let expectation = session.expectation(end);
    let key = *expectation.model.segments.first_key_value().unwrap().0;
    core.delete(Identity::new(0, 0), key.uid, key.name()).unwrap();
    drop(core);
    let seen = observe(&mut world::open(&disk, 8).unwrap()).unwrap();
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Lost));
}

#[test]
fn an_account_that_does_not_add_up_is_reported() {
    let (expectation, mut seen) = ended();
    seen.accounts[0].1.used.blocks += 1;
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Space));
    let (expectation, mut seen) = ended();
    seen.accounts[0].1.limits.segments = Some(4711);
    assert_eq!(kind_of(&expectation, &seen), Some(Kind::Lost));
}

/// Cut half-way a renamed segment has one name or the other; a resized one the old shape, the new one, or the longer run.
#[test]
fn what_is_under_way_may_have_happened_or_not() {
    let (expectation, seen) = ended();
    let key = seen.segments[0].key;
    let free = (0..NAMES.len())
        .map(|name| Key { name, ..key })
        .find(|key| !expectation.model.segments.contains_key(key));
    let to = free.expect("a name that is free");
    let renaming = Expectation {
        under_way: Some(Op::Rename { from: key, to }),
        ..expectation.clone()
    };
    let mut renamed = seen.clone();
    renamed.segments[0].key = to;
    assert_eq!(kind_of(&renaming, &seen), None);
    assert_eq!(kind_of(&renaming, &renamed), None);
    assert_eq!(kind_of(&expectation, &renamed), Some(Kind::Lost));

    let segment = &seen.segments[0];
    let resizing = Expectation {
        under_way: Some(Op::Resize {
            key,
            blocks: segment.blocks + 2,
            reserve: Some(segment.reserve + 3),
            start_block: None,
        }),
        ..expectation
    };
    let mut resized = seen.clone();
    resized.free_blocks -= 3;
    resized.segments[0].reserve += 3;
    resized.segments[0].start_block += 1_000; // It had to move.
    resized.largest_free = gap_of(&resized);
    for (uid, account) in &mut resized.accounts {
        account.used.blocks += if *uid == key.uid { 3 } else { 0 };
    }
    assert_eq!(kind_of(&resizing, &resized), None, "the run and not yet the size");
    resized.segments[0].blocks += 2;
    let zeroes = resized.segments[0].contents.len() + 2 * SECTORS_PER_BLOCK as usize;
    resized.segments[0].contents.resize(zeroes, Content::Zero);
    assert_eq!(kind_of(&resizing, &resized), None, "both");
    *resized.segments[0].contents.last_mut().unwrap() = Content::Stale;
    assert_eq!(kind_of(&resizing, &resized), Some(Kind::Leak), "not zeroed");
}
