//! What a figure tells whoever writes a program for this disk.

use super::figures::{Figure, Kind};
use crate::report::numbers::{figure, ratio};

/// More in flight are worth it from here on.
const WORTH: f64 = 1.1;

pub(super) fn of(figures: &[Figure]) -> Vec<String> {
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

/// From which depth on more of it only makes them wait.
fn depth(reads: &[&Figure]) -> Option<String> {
    let (first, last) = (reads.first()?, reads.last()?);
    let enough = reads.iter().find(|read| read.iops * WORTH >= last.iops)?;
    if enough.depth == first.depth {
        return Some(format!(
            "One read at a time is enough: {} at a time make {} as many.",
            last.depth,
            ratio(last.iops / first.iops)
        ));
    }
    let more = match enough.depth == last.depth {
        true => String::new(),
        false => format!(
            " With {} each waits {} times as long for no more.",
            last.depth,
            figure(last.p50_us? / enough.p50_us?)
        ),
    };
    Some(format!(
        "Keep {} reads in flight: {} times as many as one at a time.{more}",
        enough.depth,
        figure(enough.iops / first.iops)
    ))
}

fn durable(writes: &[&Figure]) -> Option<String> {
    let (alone, many) = (writes.first()?, writes.last()?);
    let gain = many.iops / alone.iops;
    let cost = format!("A durable write takes {} us", figure(alone.p50_us?));
    Some(match gain >= 2.0 {
        true => format!(
            "{cost}. {} at a time make {} times as many: let them share, as a log does.",
            many.depth,
            figure(gain)
        ),
        false => format!(
            "{cost}, and {} at a time make only {} times as many: write fewer, larger ones.",
            many.depth,
            ratio(gain)
        ),
    })
}

fn cached(hits: &[&Figure], reads: &[&Figure]) -> Option<String> {
    let (hit, read) = (hits.first()?.p50_us?, reads.first()?.p50_us?);
    let times = read / hit;
    Some(match times >= 3.0 {
        true => format!(
            "A read from baio's cache is {} times as fast as one from the disk: cache what is read again.",
            figure(times)
        ),
        false => "This disk is nearly as fast as memory: a cache gains little.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::row;
    use super::*;

    #[test]
    fn more_in_flight_is_advised_as_far_as_it_gains() {
        let reads = |iops: [f64; 3]| {
            [1, 16, 64]
                .into_iter()
                .zip(iops)
                .map(|(depth, iops)| row(Kind::RandomRead, depth, iops, f64::from(depth) * 1e6 / iops))
                .collect::<Vec<_>>()
        };
        let said = |iops| of(&reads(iops)).remove(0);
        assert!(said([10_000.0, 60_000.0, 62_000.0]).starts_with("Keep 16 reads in flight: 6.00 times as many"));
        assert!(said([10_000.0, 60_000.0, 62_000.0]).contains("With 64 each waits 3.87 times as long"));
        assert_eq!(
            said([10_000.0, 60_000.0, 90_000.0]),
            "Keep 64 reads in flight: 9.00 times as many as one at a time."
        );
        assert!(said([10_000.0, 10_100.0, 10_200.0]).starts_with("One read at a time is enough"));
    }

    #[test]
    fn durable_writes_are_to_be_shared_where_sharing_gains() {
        let said = |many| {
            of(&[
                row(Kind::DurableWrite, 1, 1_000.0, 1_000.0),
                row(Kind::DurableWrite, 16, many, 900.0),
            ])
            .remove(0)
        };
        assert!(said(9_000.0).contains("let them share"));
        assert!(said(1_100.0).contains("write fewer, larger ones"));
    }

    #[test]
    fn a_cache_is_advised_where_the_disk_is_slower() {
        let said = |disk: f64| {
            of(&[
                row(Kind::RandomRead, 1, 1e6 / disk, disk),
                row(Kind::CacheHit, 1, 1e6, 1.0),
            ])
            .pop()
            .unwrap()
        };
        assert!(said(100.0).contains("100 times as fast"));
        assert!(said(2.0).contains("gains little"));
    }

    #[test]
    fn without_figures_nothing_is_advised() {
        assert!(of(&[]).is_empty());
    }
}
