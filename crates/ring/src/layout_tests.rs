use super::*;

/// Numbers that look random, the same ones each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }

    /// Of any magnitude.
    fn up_to(&mut self, most: u64) -> u64 {
        let magnitude = self.roll() % 64;
        (self.roll() >> magnitude) % (most + 1)
    }
}

const ROUNDS: u32 = if cfg!(miri) { 20 } else { 20_000 };

fn layouts() -> impl Iterator<Item = (u32, Layout)> {
    let mut dice = Dice(1);
    (0..ROUNDS).map(move |_| {
        let places = 1 + dice.up_to(u64::from(PLACES_MAX) - 1) as u32;
        let arena_bytes = dice.up_to(ARENA_BYTES_MAX);
        let layout = Layout::new(places, arena_bytes);
        (places, layout.expect("within the limits"))
    })
}

/// Byte ranges of a layout with their use, by a description of its own.
fn ranges(layout: &Layout) -> Vec<(std::ops::Range<u64>, &'static str)> {
    let mut ranges = Vec::new();
    for (ring, entry) in [(layout.submissions, 64), (layout.completions, 32)] {
        for word in [ring.head, ring.tail, ring.sleeping] {
            ranges.push((word..word + 4, "word"));
        }
        ranges.push((ring.cells..ring.cells + entry * u64::from(ring.entries), "cells"));
    }
    ranges.push((layout.arena_at..layout.arena_at + layout.arena_bytes, "arena"));
    ranges
}

#[test]
fn nothing_of_a_new_layout_overlaps() {
    for (places, layout) in layouts() {
        let ranges = ranges(&layout);
        for (nth, (one, _)) in ranges.iter().enumerate() {
            assert!(one.end <= layout.bytes, "{layout:?}");
            for (other, _) in &ranges[nth + 1..] {
                assert!(one.end <= other.start || other.end <= one.start, "{layout:?}");
            }
        }
        let words = ranges.iter().filter(|(_, kind)| *kind == "word");
        let lines: std::collections::BTreeSet<_> = words.map(|(word, _)| word.start / 128).collect();
        assert_eq!(lines.len(), 6, "a word is not alone: {layout:?}");
        let first_behind = ranges.iter().filter(|(_, kind)| *kind != "word");
        let first_behind = first_behind.map(|(range, _)| range.start).min().unwrap();
        assert!(first_behind / 128 > *lines.last().unwrap(), "{layout:?}");
        assert_eq!((layout.arena_at % 4096, layout.bytes % 4096), (0, 0));
        assert!(layout.submissions.entries.is_power_of_two() && layout.completions.entries.is_power_of_two());
        assert!(layout.submissions.entries >= 2 * places && layout.completions.entries >= places);
    }
}

#[test]
fn a_new_layout_is_accepted_in_memory_of_its_size() {
    for (places, layout) in layouts() {
        assert_eq!(layout.check(layout.bytes), Ok(()));
        assert_eq!(layout.check(u64::MAX), Ok(()));
        assert!(layout.check(layout.bytes - 1).is_err());
        assert!(layout.has_room_for(places));
        assert!(!layout.has_room_for(layout.completions.entries + 1));
    }
}

#[test]
fn what_no_session_may_have_has_no_layout() {
    assert_eq!(Layout::new(0, 1 << 20), None);
    assert_eq!(Layout::new(PLACES_MAX + 1, 0), None);
    assert_eq!(Layout::new(1, ARENA_BYTES_MAX + 1), None);
    assert_eq!(Layout::new(u32::MAX, u64::MAX), None);
    assert!(Layout::new(PLACES_MAX, ARENA_BYTES_MAX).is_some());
    assert!(Layout::new(1, 0).is_some());
}

/// Is it one that a client can use? Slow and plain: with sums that do not wrap, and every pair compared.
fn can_be(layout: &Layout, region_bytes: u64) -> bool {
    let mut ranges = Vec::new();
    for (ring, entry) in [(layout.submissions, 64_u128), (layout.completions, 32)] {
        if !(1..=1 << 24).contains(&ring.entries) || ring.entries.count_ones() != 1 {
            return false;
        }
        for word in [ring.head, ring.tail, ring.sleeping] {
            ranges.push((u128::from(word), 4, 4, true));
        }
        ranges.push((u128::from(ring.cells), entry * u128::from(ring.entries), 8, false));
    }
    ranges.push((u128::from(layout.arena_at), u128::from(layout.arena_bytes), 4096, false));
    let end_of_words = ranges.iter().filter(|range| range.3).map(|range| range.0 + 4).max();
    let end_of_words = end_of_words.unwrap().next_multiple_of(8);
    let bytes = u128::from(layout.bytes);
    let apart = |one: (u128, u128), other: (u128, u128)| one.0 + one.1 <= other.0 || other.0 + other.1 <= one.0;
    bytes <= u128::from(region_bytes)
        && layout.arena_bytes <= ARENA_BYTES_MAX
        && ranges.iter().enumerate().all(|(nth, &(at, len, align, is_word))| {
            let others = ranges[nth + 1..].iter();
            at % align == 0
                && at + len <= bytes
                && (is_word || at >= end_of_words)
                && others.into_iter().all(|other| apart((at, len), (other.0, other.1)))
        })
}

/// The fields of a layout by number, for whoever changes one.
fn field(layout: &mut Layout, which: u64) -> Option<&mut u64> {
    let ring = if which & 8 == 0 {
        &mut layout.submissions
    } else {
        &mut layout.completions
    };
    Some(match which & 7 {
        0 => &mut ring.head,
        1 => &mut ring.tail,
        2 => &mut ring.sleeping,
        3 => &mut ring.cells,
        4 => &mut layout.arena_at,
        5 => &mut layout.arena_bytes,
        6 => &mut layout.bytes,
        _ => return None,
    })
}

#[test]
fn a_changed_layout_is_accepted_only_if_it_can_be() {
    let (mut accepted, mut refused) = (0, std::collections::BTreeSet::new());
    let mut dice = Dice(7);
    for (_, good) in layouts() {
        let mut layout = good;
        for _ in 0..=dice.roll() % 2 {
            let which = dice.roll() % 16;
            let other = dice.roll() % 16;
            // Somewhere near what is there, or near another part, or anywhere.
            let theirs = field(&mut layout, other).map(|field| *field);
            let nudge = [0, 1, 2, 4, 8, 64, 4096, 8192, 1 << 20][dice.roll() as usize % 9];
            let any = dice.up_to(u64::MAX - 1);
            let how = dice.roll() % 5;
            if let Some(field) = field(&mut layout, which) {
                *field = match how {
                    0 => field.wrapping_add(nudge),
                    1 => field.wrapping_sub(nudge),
                    2 => theirs.unwrap_or(0).wrapping_add(nudge),
                    3 => theirs.unwrap_or(0).wrapping_sub(nudge),
                    _ => any,
                };
            } else {
                let ring = [&mut layout.submissions, &mut layout.completions];
                let entries = &mut ring[which as usize / 8].entries;
                *entries = match how {
                    0 => entries.wrapping_mul(2),
                    1 => *entries / 2,
                    2 => entries.wrapping_add(nudge as u32),
                    _ => any as u32,
                };
            }
        }
        let region_bytes = if dice.roll() % 8 == 0 { layout.bytes } else { good.bytes };
        match layout.check(region_bytes) {
            Ok(()) => {
                accepted += 1;
                assert!(can_be(&layout, region_bytes), "{layout:?} in {region_bytes}");
            }
            Err(why) => {
                assert!(!can_be(&layout, region_bytes), "{why}: {layout:?} in {region_bytes}");
                refused.insert(why.need);
            }
        }
    }
    if !cfg!(miri) {
        // Each rule was needed, and not all was refused.
        assert_eq!(refused.len(), 9, "{refused:?}");
        assert!(accepted > 100, "{accepted}");
    }
}

/// In memory that is large enough for each: only the limits are left to say no.
#[test]
fn limits_hold_where_there_is_room_for_more() {
    let mut layout = Layout::new(PLACES_MAX, ARENA_BYTES_MAX).unwrap();
    layout.bytes = u64::MAX;
    assert_eq!(layout.check(u64::MAX), Ok(()));
    let mut larger = layout;
    larger.arena_bytes += 1;
    assert!(larger.check(u64::MAX).is_err());
    let mut longer = layout;
    longer.submissions.cells = 1 << 40;
    longer.submissions.entries *= 2;
    assert!(longer.check(u64::MAX).is_err());
    longer.submissions.entries /= 2;
    assert_eq!(longer.check(u64::MAX), Ok(()));
}

#[test]
fn an_empty_arena_is_in_nobodys_way() {
    let mut layout = Layout::new(64, 0).unwrap();
    layout.bytes += 1 << 20;
    layout.completions.cells = layout.arena_at;
    assert_eq!(layout.check(layout.bytes), Ok(()));
}

#[test]
fn each_part_is_told_by_its_name() {
    let good = Layout::new(8, 1 << 20).unwrap();
    let told = |change: &dyn Fn(&mut Layout)| {
        let mut layout = good;
        change(&mut layout);
        layout.check(good.bytes).unwrap_err().to_string()
    };
    let told_of_tail = told(&|layout| layout.completions.tail += 1);
    assert_eq!(
        told_of_tail,
        "the completion ring's tail is at byte 513; needed: a multiple of 4"
    );
    let overlap = told(&|layout| layout.submissions.tail = layout.submissions.head);
    assert!(overlap.contains("bytes of its own"), "{overlap}");
    let inside = told(&|layout| layout.submissions.cells = u64::MAX - 7);
    assert!(
        inside.contains("the submission ring is at byte") && inside.contains("inside"),
        "{inside}"
    );
    let among = told(&|layout| layout.completions.sleeping = layout.arena_at + layout.arena_bytes - 4);
    assert!(among.contains("bytes of its own"), "{among}");
    let among = told(&|layout| {
        layout.arena_bytes -= 4096;
        layout.completions.sleeping = layout.bytes - 4;
    });
    assert!(among.contains("behind all counters"), "{among}");
}
