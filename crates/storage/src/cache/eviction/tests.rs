//! One body of tests over every policy, and what tells them apart.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const POLICIES: [Policy; 2] = [Policy::Clock, Policy::S3Fifo];
const FRAMES: u32 = 24;

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u64, Hint),
    Ahead(u32, u64),
    Hit(u32),
    Remove(u32),
    /// Asks for a victim; the frames whose bit is set may not go.
    Victim(u32),
}

fn a_step() -> impl Strategy<Value = Step> {
    let hint = prop_oneof![3 => Just(Hint::Normal), 1 => Just(Hint::Once)];
    prop_oneof![
        6 => (0..FRAMES, 0..60u64, hint).prop_map(|(frame, key, hint)| Step::Insert(frame, key, hint)),
        2 => (0..FRAMES, 0..60u64).prop_map(|(frame, key)| Step::Ahead(frame, key)),
        6 => (0..FRAMES).prop_map(Step::Hit),
        1 => (0..FRAMES).prop_map(Step::Remove),
        3 => any::<u32>().prop_map(Step::Victim),
        1 => Just(Step::Victim(u32::MAX)),
    ]
}

proptest! {
    /// Whatever came before: a victim holds a page and may go, and no victim means that none may. Pages of `Once` go first, if the
    /// policy is told when those that it asked about in vain may go.
    #[test]
    fn a_victim_is_one_that_may_go(steps in prop::collection::vec(a_step(), 1..300)) {
        for (policy, is_told) in POLICIES.into_iter().flat_map(|policy| [(policy, true), (policy, false)]) {
            let mut eviction = policy.build(FRAMES).unwrap();
            let mut held = BTreeMap::<u32, Hint>::new();
            let mut refused = is_told.then(BTreeSet::new);
            for step in &steps {
                match *step {
                    Step::Insert(frame, key, hint) => {
                        eviction.inserted(frame, key, hint);
                        held.insert(frame, hint);
                    }
                    Step::Ahead(frame, key) => {
                        eviction.inserted_ahead(frame, key, Hint::Normal);
                        held.insert(frame, Hint::Normal);
                    }
                    Step::Hit(frame) => eviction.hit(frame),
                    Step::Remove(frame) => {
                        eviction.removed(frame);
                        held.remove(&frame);
                    }
                    Step::Victim(stays) => victim(&mut *eviction, &mut held, refused.as_mut(), stays)?,
                }
                prop_assert!(eviction.room() <= FRAMES as usize);
            }
            // All that is left can go, one by one.
            while !held.is_empty() {
                victim(&mut *eviction, &mut held, refused.as_mut(), 0)?;
            }
            victim(&mut *eviction, &mut held, refused.as_mut(), 0)?;
        }
    }
}

/// `refused`: the frames about which a call has said no; without it the policy is not told when they may go.
fn victim(
    eviction: &mut dyn Eviction,
    held: &mut BTreeMap<u32, Hint>,
    mut refused: Option<&mut BTreeSet<u32>>,
    stays: u32,
) -> Result<(), TestCaseError> {
    let asked = Cell::new(0);
    let name = eviction.name();
    let is_told = refused.is_some();
    if let Some(refused) = &mut refused {
        refused.retain(|&frame| {
            let still = stays & (1 << frame) != 0;
            if !still {
                eviction.eased(frame);
            }
            still
        });
    }
    let victim = eviction.victim(&mut |frame| {
        asked.set(asked.get() + 1);
        if let Some(refused) = &mut refused {
            if stays & (1 << frame) != 0 {
                refused.insert(frame);
            }
        }
        assert!(
            held.contains_key(&frame),
            "{name} asks about frame {frame}, which holds nothing"
        );
        stays & (1 << frame) == 0
    });
    let may_go = |hint| held.iter().any(|(&frame, &of)| of == hint && stays & (1 << frame) == 0);
    let expected = if may_go(Hint::Once) {
        Some(Hint::Once)
    } else {
        may_go(Hint::Normal).then_some(Hint::Normal)
    };
    if is_told {
        prop_assert_eq!(victim.map(|frame| held[&frame]), expected, "{}: {:?}", name, victim);
    }
    prop_assert_eq!(victim.is_some(), expected.is_some(), "{}: {:?}", name, victim);
    if let Some(frame) = victim {
        prop_assert!(stays & (1 << frame) == 0, "{name} gave frame {frame}, which may not go");
        held.remove(&frame);
    }
    // Three times spared, once taken, and once more before it is sure that all the others refuse.
    prop_assert!(asked.get() <= 6 * FRAMES, "{name} asked {} times", asked.get());
    Ok(())
}

/// A cache of page numbers, as small as it can be made.
struct Model {
    eviction: Box<dyn Eviction>,
    frame_of: BTreeMap<u64, u32>,
    page_in: Vec<Option<u64>>,
    free: Vec<u32>,
}

impl Model {
    fn new(policy: Policy, frames: u32) -> Self {
        Self {
            eviction: policy.build(frames).unwrap(),
            frame_of: BTreeMap::new(),
            page_in: vec![None; frames as usize],
            free: (0..frames).collect(),
        }
    }

    /// Uses a page, and says whether it was there.
    fn touch(&mut self, page: u64, hint: Hint) -> bool {
        if let Some(&frame) = self.frame_of.get(&page) {
            self.eviction.hit(frame);
            return true;
        }
        let (frame, key) = self.place(page);
        self.eviction.inserted(frame, key, hint);
        false
    }

    /// Brings in a page that nobody asked for.
    fn ahead(&mut self, page: u64, hint: Hint) {
        let (frame, key) = self.place(page);
        self.eviction.inserted_ahead(frame, key, hint);
    }

    fn place(&mut self, page: u64) -> (u32, u64) {
        let frame = self.free.pop().unwrap_or_else(|| {
            let frame = self.eviction.victim(&mut |_| true).unwrap();
            let old = self.page_in[frame as usize].take().unwrap();
            self.frame_of.remove(&old);
            frame
        });
        self.page_in[frame as usize] = Some(page);
        self.frame_of.insert(page, frame);
        (frame, page.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn cached(&self, pages: std::ops::Range<u64>) -> usize {
        self.frame_of.range(pages).count()
    }
}

/// Frames, pages of the working set, and the first page of a scan.
const MANY: u32 = 1000;
const HOT: u64 = 500;
const SCAN: u64 = 1 << 40;

fn warmed(policy: Policy) -> Model {
    let mut model = Model::new(policy, MANY);
    for _ in 0..4 {
        for page in 0..HOT {
            model.touch(page, Hint::Normal);
        }
    }
    model
}

/// The reason for S3-FIFO: a scan of a hundred times the working set, which is not used meanwhile, leaves it in the cache.
#[test]
fn a_scan_drives_out_the_working_set_under_clock_but_not_under_s3_fifo() {
    for (policy, left) in [(Policy::Clock, 0), (Policy::S3Fifo, HOT as usize)] {
        let mut model = warmed(policy);
        for page in 0..HOT * 100 {
            model.touch(SCAN + page, Hint::Normal);
        }
        assert_eq!(model.cached(0..HOT), left, "{policy:?}");
    }
}

/// And under either, if the scan says what it is. Even used again and again, its pages stay those that leave first.
#[test]
fn a_scan_that_says_so_drives_nothing_out() {
    for policy in POLICIES {
        let mut model = warmed(policy);
        for page in 0..HOT * 100 {
            for _ in 0..5 {
                model.touch(SCAN + page, Hint::Once);
            }
        }
        assert_eq!(model.cached(0..HOT), HOT as usize, "{policy:?}");
    }
}

/// The main queue is no prison: a working set that is over makes room for the next.
#[test]
fn a_new_working_set_replaces_the_old() {
    for policy in POLICIES {
        let mut model = warmed(policy);
        let new = 10_000..10_900;
        for _ in 0..20 {
            for page in new.clone() {
                model.touch(page, Hint::Normal);
            }
        }
        let cached = model.cached(new.clone());
        assert!(cached >= 880, "{policy:?} holds {cached} of 900");
    }
}

/// A page that comes back soon after it left goes to the main queue at once; another must be used twice before.
#[test]
fn s3_fifo_remembers_who_left() {
    let mut model = Model::new(Policy::S3Fifo, MANY);
    model.touch(0, Hint::Normal);
    for page in 0..u64::from(MANY) {
        model.touch(SCAN + page, Hint::Normal);
    }
    assert_eq!(model.cached(0..1), 0);
    model.touch(0, Hint::Normal);
    for page in 0..HOT * 100 {
        model.touch(2 * SCAN + page, Hint::Normal);
    }
    assert_eq!(model.cached(0..1), 1);
    // A page used twice in all has not earned that.
    model.touch(1, Hint::Normal);
    model.touch(1, Hint::Normal);
    for page in 0..HOT * 100 {
        model.touch(3 * SCAN + page, Hint::Normal);
    }
    assert_eq!(model.cached(0..2), 1);
}

/// A page that was read ahead outlives pages that came later and were asked for, whatever its hint; its first use is none that
/// keeps it, and unused it leaves at last.
#[test]
fn what_was_read_ahead_waits_for_its_first_use_and_not_for_ever() {
    for policy in POLICIES {
        for hint in [Hint::Normal, Hint::Once] {
            let mut model = warmed(policy);
            let ahead = SCAN * 4;
            model.ahead(ahead, hint);
            model.ahead(ahead + 1, hint);
            let share = model.eviction.room() as u64;
            for page in 0..share {
                model.touch(SCAN + page, Hint::Normal);
            }
            assert_eq!(model.cached(ahead..ahead + 2), 2, "{policy:?}, {hint:?}");
            assert!(model.touch(ahead, hint), "{policy:?}, {hint:?}");
            for page in 0..HOT * 100 {
                model.touch(2 * SCAN + page, Hint::Normal);
            }
            assert_eq!(model.cached(ahead..ahead + 2), 0, "{policy:?}, {hint:?}");
        }
    }
}

/// Pages of a working set that still stand among the newcomers are none that make room.
#[test]
fn room_is_what_newcomers_pass_through() {
    let model = warmed(Policy::S3Fifo);
    assert_eq!(model.eviction.room(), (u64::from(MANY) - HOT) as usize);
    assert_eq!(Policy::Clock.build(MANY).unwrap().room(), MANY as usize);
    let mut model = warmed(Policy::S3Fifo);
    for _ in 0..3 {
        (0..u64::from(MANY)).for_each(|page| _ = model.touch(page, Hint::Normal));
    }
    // All has earned its place: the share of the small queue.
    assert_eq!(model.eviction.room(), MANY as usize / 10);
}

/// Asking in vain, as when all is dirty, does not cost the working set what it earned.
#[test]
fn asking_in_vain_changes_nothing() {
    for policy in POLICIES {
        let mut model = Model::new(policy, MANY);
        // Side by side: the hand of a clock that forgot would soon meet the working set.
        for page in 0..HOT {
            model.touch(page, Hint::Normal);
            model.touch(SCAN + page, Hint::Normal);
        }
        for _ in 0..3 {
            for page in 0..HOT {
                model.touch(page, Hint::Normal);
            }
        }
        for _ in 0..10 {
            assert_eq!(model.eviction.victim(&mut |_| false), None);
        }
        for page in 0..u64::from(MANY) - HOT {
            model.touch(2 * SCAN + page, Hint::Normal);
        }
        assert_eq!(model.cached(0..HOT), HOT as usize, "{policy:?}");
    }
}

/// Pages that are used once and may not go, as changed ones that a hint dropped, are not asked about for each victim.
#[test]
fn who_may_not_go_is_asked_once_and_not_for_each_victim() {
    for policy in POLICIES {
        let mut eviction = policy.build(MANY).unwrap();
        let dirty = MANY / 2;
        for frame in 0..MANY {
            let hint = if frame < dirty { Hint::Once } else { Hint::Normal };
            eviction.inserted(frame, u64::from(frame), hint);
        }
        let mut asked = 0;
        for _ in dirty..MANY {
            let victim = eviction.victim(&mut |frame| {
                asked += 1;
                frame >= dirty
            });
            assert!(victim.is_some_and(|frame| frame >= dirty), "{policy:?}: {victim:?}");
        }
        assert!(asked <= 4 * MANY, "{policy:?} asked {asked} times");
        // Once they may go they are the first.
        eviction.inserted(dirty, 0, Hint::Normal);
        (0..dirty).for_each(|frame| eviction.eased(frame));
        for _ in 0..dirty {
            let victim = eviction.victim(&mut |_| true);
            assert!(victim.is_some_and(|frame| frame < dirty), "{policy:?}: {victim:?}");
        }
    }
}

/// A main queue that could take all does not starve the newcomers: a tenth of the frames is theirs.
#[test]
fn s3_fifo_keeps_a_tenth_for_newcomers() {
    let mut model = Model::new(Policy::S3Fifo, MANY);
    for _ in 0..4 {
        for page in 0..u64::from(MANY) {
            model.touch(page, Hint::Normal);
        }
    }
    for page in 0..500 {
        assert!(!model.touch(SCAN + page, Hint::Normal));
        assert!(page < 90 || model.touch(SCAN + page - 90, Hint::Normal), "page {page}");
    }
}

#[test]
fn a_policy_without_frames_has_no_victim() {
    for policy in POLICIES {
        assert_eq!(policy.build(0).unwrap().victim(&mut |_| true), None);
    }
}
