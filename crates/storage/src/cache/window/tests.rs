//! Each pattern as readers make it, and what holds for all of them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Pages.
const MAX: u64 = 32;

/// A reader whose every range is written down: no page is named twice, and none that had been asked for.
#[derive(Default)]
struct Reader {
    asked: BTreeSet<u64>,
    named: BTreeSet<u64>,
    /// Requests of which a page had neither been asked for nor read ahead.
    missed: usize,
    widest: u64,
}

impl Reader {
    fn ask(&mut self, streams: &mut Streams, first: u64, count: u64) {
        let pages = first..first + count;
        self.missed += usize::from(
            pages
                .clone()
                .any(|page| !self.asked.contains(&page) && !self.named.contains(&page)),
        );
        self.asked.extend(pages.clone());
        let ahead = streams.asked(first, count, MAX);
        assert!(
            ahead.is_empty() || ahead.start >= pages.end && ahead.end <= pages.end + MAX,
            "{pages:?}: {ahead:?}"
        );
        if !ahead.is_empty() {
            self.widest = self.widest.max(ahead.end - pages.end);
        }
        for page in ahead {
            assert!(self.named.insert(page), "page {page} was named before");
        }
    }
}

#[test]
fn the_example_at_the_top() {
    let mut streams = Streams::new();
    let ahead = [0..0, 8..16, 16..28, 0..0, 28..36, 0..0];
    for (step, ahead) in ahead.into_iter().enumerate() {
        let got = streams.asked(4 * step as u64, 4, 16);
        assert!(
            got == ahead || got.is_empty() && ahead.is_empty(),
            "step {step}: {got:?}"
        );
    }
}

#[test]
fn a_sequential_stream_is_read_ahead_of_up_to_the_maximum() {
    for count in [1, 3, 4, 16, 32, 100] {
        let (mut streams, mut reader) = (Streams::new(), Reader::default());
        for step in 0..200 {
            reader.ask(&mut streams, 1000 + step * count, count);
        }
        assert_eq!(reader.widest, MAX, "{count} pages a request");
        if count <= MAX {
            assert_eq!(
                reader.missed, 2,
                "{count} pages a request: all behind the second step was read ahead"
            );
        }
    }
}

/// Few large reads: pages are named when half of the window is left, not one behind each one.
#[test]
fn reads_ahead_are_few_and_large() {
    let mut streams = Streams::new();
    let ranges = (0..1000)
        .map(|page| streams.asked(page, 1, MAX))
        .filter(|range| !range.is_empty());
    let ranges: Vec<_> = ranges.collect();
    assert!(
        ranges.len() <= 1000 / (MAX as usize / 2) + 5,
        "{} reads for 1000 pages",
        ranges.len()
    );
}

/// Seed 001 §3.5: a reader that asks for much and takes little.
#[test]
fn overlapping_steps_are_one_stream() {
    for (count, step) in [(32, 2), (8, 1), (8, 7), (3, 1)] {
        let (mut streams, mut reader) = (Streams::new(), Reader::default());
        for n in 0..200 {
            reader.ask(&mut streams, n * step, count);
        }
        assert_eq!(reader.widest, MAX, "{count} pages every {step}");
        assert!(reader.missed <= 3, "{count} pages every {step}: {}", reader.missed);
    }
}

#[test]
fn interleaved_streams_are_each_recognised() {
    for readers in [2, 4, 8] {
        let mut streams = Streams::new();
        let mut all: Vec<Reader> = (0..readers).map(|_| Reader::default()).collect();
        for step in 0..100 {
            for (n, reader) in all.iter_mut().enumerate() {
                reader.ask(&mut streams, ((n as u64) << 32) + step * 2, 2);
            }
        }
        for reader in &all {
            assert_eq!(reader.widest, MAX);
            assert!(
                reader.missed <= 2 + readers / 2,
                "{readers} readers: {} missed",
                reader.missed
            );
        }
    }
}

/// A stream that was found stays, even with more random reads between its steps than there are places for streams.
#[test]
fn random_reads_do_not_hide_a_stream() {
    let (mut streams, mut reader) = (Streams::new(), Reader::default());
    for step in 0..200 {
        reader.ask(&mut streams, step, 1);
        for n in 0..if step < 10 { 0 } else { 12 } {
            assert_eq!(streams.asked((1 << 40) + (step * 12 + n) * 1000, 4, MAX).count(), 0);
        }
    }
    assert_eq!((reader.widest, reader.missed), (MAX, 2));
}

/// Among random reads it takes more steps to be believed; a page read at random beside the last is not enough.
#[test]
fn a_stream_among_random_reads_must_make_more_steps() {
    let (mut streams, mut reader) = (Streams::new(), Reader::default());
    for n in 0..100 {
        streams.asked((1 << 40) + n * 1000, 4, MAX);
    }
    for step in 0..50 {
        for n in 0..6 {
            streams.asked((1 << 50) + (step * 6 + n) * 1000, 4, MAX);
        }
        reader.ask(&mut streams, step, 1);
    }
    assert_eq!((reader.widest, reader.missed), (MAX, 10));
    // When the random reads have ended, a few steps later one step is enough again.
    for step in 50..70 {
        reader.ask(&mut streams, step, 1);
    }
    let mut other = Reader::default();
    for step in 1000..1100 {
        other.ask(&mut streams, step, 1);
    }
    assert_eq!((other.widest, other.missed), (MAX, 2));
}

#[test]
fn a_repeat_is_no_progress() {
    let mut streams = Streams::new();
    for _ in 0..100 {
        assert!(streams.asked(100, 8, MAX).is_empty());
        // A piece of it, as smaller reads within a page or a retry of the rest.
        assert!(streams.asked(103, 2, MAX).is_empty());
    }
    // Nor is the window of a stream widened by asking again.
    let mut once = Streams::new();
    let mut again = Streams::new();
    for step in 0..20 {
        let ahead = once.asked(step * 4, 4, MAX);
        assert_eq!(again.asked(step * 4, 4, MAX), ahead);
        for _ in 0..3 {
            assert!(again.asked(step * 4, 4, MAX).is_empty());
        }
    }
}

#[test]
fn a_reader_is_taken_at_its_word() {
    let mut streams = Streams::new();
    streams.hint(Pattern::Sequential);
    assert_eq!(streams.asked(1000, 1, MAX), 1001..1033);
    assert_eq!(streams.asked(u64::MAX - 9, 4, MAX), u64::MAX - 5..u64::MAX);
    streams.hint(Pattern::Random);
    for page in 0..100 {
        assert!(streams.asked(page, 1, MAX).is_empty());
    }
}

/// Small objects are where random reads touch each other by chance.
#[test]
fn random_reads_of_a_small_object_read_next_to_nothing_ahead() {
    for (pages, count) in [(100, 1), (256, 4), (100, 16)] {
        let (mut streams, mut ahead, mut random) = (Streams::new(), 0, 1u64);
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ahead += streams.asked((random >> 33) % (pages - count), count, MAX).count() as u64;
        }
        assert!(
            ahead * 100 <= 10_000 * count,
            "{count} of {pages} pages: {ahead} read ahead"
        );
    }
}

proptest! {
    /// Requests that neither touch nor overlap, in any order.
    #[test]
    fn random_reads_read_nothing_ahead(
        places in prop::collection::vec((0..1u64 << 50, 1..=16u64), 1..200),
    ) {
        let mut streams = Streams::new();
        let mut known = BTreeSet::new();
        for (place, count) in places {
            if known.insert(place) {
                prop_assert!(streams.asked(place * 17, count, MAX).is_empty());
            }
        }
    }

    /// Any requests: what is read ahead lies behind the request and within reach, and nothing overflows.
    #[test]
    fn the_range_is_within_reach(
        hint in prop::sample::select(vec![Pattern::Unknown, Pattern::Sequential]),
        steps in prop::collection::vec(
            (prop_oneof![0..100u64, u64::MAX - 100..=u64::MAX, any::<u64>()],
             prop_oneof![0..50u64, any::<u64>()],
             prop_oneof![0..40u64, any::<u64>(), Just(u64::MAX)],
             any::<bool>()),
            1..60,
        ),
    ) {
        let mut streams = Streams::new();
        streams.hint(hint);
        let mut end = 0u64;
        for (first, count, max, goes_on) in steps {
            let first = if goes_on { end } else { first };
            end = first.saturating_add(count);
            let ahead = streams.asked(first, count, max);
            prop_assert!(ahead.start >= end && ahead.end >= ahead.start);
            prop_assert!(ahead.is_empty() || ahead.end - end <= max, "{first} + {count}, {max}: {ahead:?}");
        }
    }
}

/// While there is no room nothing is named, but the reader goes on: with room again it is read ahead of at once.
#[test]
fn a_stream_without_room_is_not_forgotten() {
    let mut streams = Streams::new();
    for step in 0..8 {
        streams.asked(step * 4, 4, MAX);
    }
    for step in 8..40 {
        assert!(streams.asked(step * 4, 4, 0).is_empty(), "step {step}");
    }
    assert_eq!(streams.asked(160, 4, MAX).start, 164);
}
