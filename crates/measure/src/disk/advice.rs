//! What a figure tells whoever writes a program for this disk. Where the rounds do not agree it says so, and advises nothing.

use super::{Figure, Kind, ends};
use crate::report::numbers::{figure, ratio};

/// More in flight are worth it from here on, where the rounds agree: each request waits longer for it.
const WORTH: f64 = 1.1;

/// Rounds that differ no more than this say the same.
const SAME: f64 = 1.3;

pub(crate) fn of(figures: &[Figure]) -> Vec<String> {
    let of_kind = |kind| {
        figures
            .iter()
            .filter(move |figure| figure.kind == kind)
            .collect::<Vec<_>>()
    };
    let reads = of_kind(Kind::RandomRead);
    [
        depth(&reads),
        durable(&of_kind(Kind::DurableWrite)),
        cached(&of_kind(Kind::CacheHit), &reads),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How many times as many requests one makes as another: the figures that the reader sees, and the least and the most of the rounds.
struct Times {
    middle: f64,
    least: f64,
    most: f64,
}

/// Round by round; none of a single one, which shows nothing about the next.
fn times(of: &Figure, other: &Figure) -> Option<Times> {
    let rounds: Vec<f64> = of.rounds.iter().zip(&other.rounds).map(|(a, b)| a / b).collect();
    let (least, most) = ends(rounds.iter().copied()).filter(|(least, most)| least.is_finite() && most.is_finite())?;
    Some(Times {
        middle: of.iops / other.iops,
        least,
        most,
    })
}

impl Times {
    /// Does it gain more than noise? In each round a tenth, and more than what lies between the rounds.
    fn pays(&self) -> bool {
        self.least >= WORTH && self.least * self.least > self.most
    }

    /// `3.71 times`; where the rounds lie far apart, between which they do.
    fn said(&self) -> String {
        match self.most < SAME * self.least {
            true => format!("{} times", figure(self.middle)),
            false => format!("{} to {} times", figure(self.least), figure(self.most)),
        }
    }

    /// `0.983 to 1.124 times`: what lies so near to 1 that its digits say whether it is more.
    fn between(&self) -> String {
        format!("{} to {} times", ratio(self.least), ratio(self.most))
    }
}

/// Instead of advice.
fn unsure(question: &str, times: &Times) -> String {
    format!(
        "{question} is not clear: the rounds say {}. Measure again when the disk is quiet.",
        times.between()
    )
}

/// The smallest depth that makes as many as the best of them, as far as the rounds can tell: more of it only makes them wait.
fn depth(reads: &[&Figure]) -> Option<String> {
    const QUESTION: &str = "How many reads to keep in flight";
    let (first, last) = (reads.first()?, reads.last()?);
    let best = reads.iter().max_by(|a, b| a.iops.total_cmp(&b.iops))?;
    let enough = reads
        .iter()
        .find(|read| times(best, read).is_some_and(|more| !more.pays()))?;
    let (over, more) = (times(best, enough)?, times(last, enough)?);
    if over.middle >= SAME {
        return Some(unsure(QUESTION, &over)); // So much is no noise around the same figure.
    }
    if enough.depth == first.depth {
        return Some(match more.most.max(over.most) < SAME {
            true => format!(
                "One read at a time is enough: {} at a time make {} as many.",
                last.depth,
                ratio(more.middle)
            ),
            false => unsure(QUESTION, if over.most < SAME { &more } else { &over }),
        });
    }
    let gain = times(enough, first)?;
    if gain.least < WORTH {
        return Some(unsure(QUESTION, &gain));
    }
    let less = reads.iter().take_while(|read| read.depth < enough.depth).last();
    let of_less = less.and_then(|less| times(enough, less).map(|more| (less, more.middle)));
    let waits = match of_less {
        _ if enough.depth < last.depth => {
            let longer = figure(last.p50_us? / enough.p50_us?);
            let is_beyond_noise = more.least > 1.0 && more.least * more.least > more.most;
            let gain = match (more.most < WORTH, is_beyond_noise) {
                (true, _) => "and they make no more".to_owned(),
                (_, true) => format!("for only {} times as many", ratio(more.middle)),
                _ => format!("for {} as many", more.between()),
            };
            let (deep, enough) = (last.depth, enough.depth);
            format!(" With {deep} each waits {longer} times as long as with {enough}, {gain}.")
        }
        Some((less, more)) if less.depth > first.depth && more < SAME => format!(
            " With {} each waits {} times as long as with {}, for {} times as many.",
            enough.depth,
            figure(enough.p50_us? / less.p50_us?),
            less.depth,
            ratio(more)
        ),
        _ => String::new(),
    };
    Some(format!(
        "Keep {} reads in flight: {} as many as one at a time.{waits}",
        enough.depth,
        gain.said()
    ))
}

fn durable(writes: &[&Figure]) -> Option<String> {
    const SHARE: f64 = 2.0;
    let (alone, many) = (writes.first()?, writes.last()?);
    let gain = times(many, alone)?;
    let cost = format!("A durable write takes {} us", figure(alone.p50_us?));
    Some(match (gain.least >= SHARE, gain.most < SHARE) {
        (true, _) => format!(
            "{cost}. {} at a time make {} as many: let them share, as a log does.",
            many.depth,
            gain.said()
        ),
        (_, true) => format!(
            "{cost}, and {} at a time make only {} times as many: write fewer, larger ones.",
            many.depth,
            ratio(gain.middle)
        ),
        _ => format!("{cost}. {}", unsure("What many at a time gain", &gain)),
    })
}

fn cached(hits: &[&Figure], reads: &[&Figure]) -> Option<String> {
    const WORTH_IT: f64 = 3.0;
    let times = times(hits.first()?, reads.first()?)?;
    Some(match (times.least >= WORTH_IT, times.most < WORTH_IT) {
        (true, _) => format!(
            "A read from baio's cache is {} as fast as one from the disk: cache what is read again.",
            times.said()
        ),
        (_, true) => "This disk is nearly as fast as memory: a cache gains little.".to_owned(),
        _ => unsure("What a cache gains", &times),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    /// Reads of depth 1, 16 and 64.
    fn reads(rounds: [&[f64]; 3]) -> Vec<Figure> {
        let each = [1, 16, 64].into_iter().zip(rounds);
        each.map(|(depth, rounds)| row(Kind::RandomRead, depth, rounds))
            .collect()
    }

    fn of_reads(rounds: [&[f64]; 3]) -> String {
        of(&reads(rounds)).remove(0)
    }

    #[test]
    fn more_in_flight_is_advised_as_far_as_it_gains() {
        let said = |iops: [f64; 3]| of_reads([&[iops[0]; 2], &[iops[1]; 2], &[iops[2]; 2]]);
        assert!(said([10_000.0, 60_000.0, 62_000.0]).starts_with("Keep 16 reads in flight: 6.00 times as many"));
        assert!(said([10_000.0, 60_000.0, 62_000.0]).contains("With 64 each waits 3.87 times as long"));
        assert_eq!(
            said([10_000.0, 60_000.0, 90_000.0]),
            "Keep 64 reads in flight: 9.00 times as many as one at a time."
        );
        assert_eq!(
            said([10_000.0, 60_000.0, 75_000.0]),
            "Keep 64 reads in flight: 7.50 times as many as one at a time. With 64 each waits 3.20 times as long as with 16, for 1.250 times as many."
        );
        assert!(said([10_000.0, 10_100.0, 10_200.0]).starts_with("One read at a time is enough"));
    }

    #[test]
    fn what_lies_within_the_noise_is_no_reason_to_go_deeper() {
        // The median gains a seventh, the rounds between nothing and a third.
        let said = of_reads([
            &[10_000.0; 3],
            &[60_000.0, 62_000.0, 58_000.0],
            &[70_000.0, 63_000.0, 77_000.0],
        ]);
        assert!(
            said.starts_with("Keep 16 reads in flight: ")
                && said.ends_with("as long as with 16, for 1.016 to 1.328 times as many."),
            "{said}"
        );
        // A tenth in each of them, and still less than what lies between them.
        let said = of_reads([&[10_000.0; 2], &[60_000.0; 2], &[69_000.0, 84_000.0]]);
        assert!(said.starts_with("Keep 16 reads in flight: "), "{said}");
        // What disturbs all rows of a round is no noise between them.
        let said = of_reads([
            &[10_000.0, 5_000.0, 10_000.0],
            &[60_000.0, 30_000.0, 60_000.0],
            &[84_000.0, 42_000.0, 84_000.0],
        ]);
        assert!(said.starts_with("Keep 64 reads in flight: "), "{said}");
        // Less than a tenth is too little for the longer wait, and no noise where all rounds agree about it.
        let said = of_reads([&[10_000.0; 2], &[60_000.0; 2], &[65_400.0, 67_200.0]]);
        assert!(
            said.starts_with("Keep 16 reads in flight: ") && said.ends_with("for only 1.105 times as many."),
            "{said}"
        );
        // The deepest may make fewer than the one before.
        let said = of_reads([&[10_000.0; 2], &[60_000.0; 2], &[10_500.0; 2]]);
        assert!(said.starts_with("Keep 16 reads in flight: "), "{said}");
    }

    #[test]
    fn what_the_rounds_do_not_agree_about_is_not_advised() {
        // Another program took the disk in one of the rounds.
        let said = of_reads([
            &[10_000.0, 9_000.0, 10_000.0],
            &[20_000.0, 9_500.0, 60_000.0],
            &[21_000.0, 9_000.0, 61_000.0],
        ]);
        assert!(
            said.contains("is not clear: the rounds say 1.000 to 6.100 times"),
            "{said}"
        );
        // Three times as many in two of the rounds is not the same figure, wherever the third lies.
        let said = of_reads([&[5_000.0; 3], &[20_000.0; 3], &[21_000.0, 60_000.0, 61_000.0]]);
        assert!(
            said.contains("is not clear: the rounds say 1.050 to 3.050 times"),
            "{said}"
        );
        // The deepest gains nothing, and what the best one gains is not known.
        let said = of_reads([&[10_000.0; 2], &[9_000.0, 25_000.0], &[10_000.0, 10_100.0]]);
        assert!(
            said.contains("is not clear: the rounds say 0.900 to 2.500 times"),
            "{said}"
        );
        let said = of_reads([&[10_000.0; 3], &[60_000.0; 3], &[62_000.0, 59_000.0, 90_000.0]]);
        assert!(
            said.starts_with("Keep 16 reads") && !said.contains("they make no more"),
            "{said}"
        );
        let writes = [
            row(Kind::DurableWrite, 1, &[1_000.0; 3]),
            row(Kind::DurableWrite, 16, &[1_100.0, 9_000.0, 9_000.0]),
        ];
        let said = of(&writes).remove(0);
        assert!(
            said.contains("takes 1,000 us") && said.contains("is not clear"),
            "{said}"
        );
    }

    #[test]
    fn one_round_advises_nothing() {
        assert!(of(&reads([&[10_000.0], &[60_000.0], &[62_000.0]])).is_empty());
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn durable_writes_are_to_be_shared_where_sharing_gains() {
        let said = |many: f64| {
            let writes = [
                row(Kind::DurableWrite, 1, &[1_000.0; 2]),
                row(Kind::DurableWrite, 16, &[many; 2]),
            ];
            of(&writes).remove(0)
        };
        assert!(said(9_000.0).contains("let them share"));
        assert!(said(1_100.0).contains("write fewer, larger ones"));
    }

    #[test]
    fn a_cache_is_advised_where_the_disk_is_slower() {
        let said = |disk: f64| {
            let rows = [
                row(Kind::RandomRead, 1, &[1e6 / disk; 2]),
                row(Kind::CacheHit, 1, &[1e6; 2]),
            ];
            of(&rows).pop().unwrap()
        };
        assert!(said(100.0).contains("100 times as fast"));
        assert!(said(2.0).contains("gains little"));
    }
}
