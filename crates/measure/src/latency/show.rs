//! Latencies for people: points of the distribution in a line, and a histogram of bars.

use std::io::{self, Write};
use std::time::Duration;

use baio_stress::{Latency, Recorder};
use serde::Serialize;

/// Requests that took at least as long as the bucket before ends, and less than `below_us`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Bucket {
    pub(super) below_us: f64,
    pub(super) count: u64,
}

/// Longest bar, in characters.
const BAR: u64 = 50;

/// Buckets that end at 1, 2, 5, 10, 20, 50, ... microseconds, from the first that has anything to the last.
pub(super) fn histogram(recorder: &Recorder) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut before = 0;
    let mut unit = 1_u64;
    while before < recorder.count() && unit <= 100_000_000 {
        for factor in [1, 2, 5] {
            let below_us = unit * factor;
            let below = recorder.count_below(Duration::from_micros(below_us));
            if before < recorder.count() && below > 0 {
                buckets.push(Bucket {
                    below_us: below_us as f64,
                    count: below - before,
                });
            }
            before = below;
        }
        unit *= 10;
    }
    buckets
}

/// One line a bucket, the longest bar for the fullest.
pub(super) fn write_histogram(buckets: &[Bucket], out: &mut dyn Write) -> io::Result<()> {
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    for bucket in buckets {
        let len = (bucket.count * BAR).div_ceil(most) as usize;
        let line = format!(
            "  < {:>8}  {:>8}  {}",
            shown(bucket.below_us),
            bucket.count,
            "#".repeat(len)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// `p50 81.2 us, p99 140 us, ...`.
pub(super) fn points(latency: &Latency) -> String {
    let named = [
        ("mean", latency.mean),
        ("p50", latency.p50),
        ("p99", latency.p99),
        ("p99.9", latency.p999),
        ("max", latency.max),
    ];
    let known = named
        .into_iter()
        .filter_map(|(name, us)| Some(format!("{name} {}", shown(us?))));
    let known: Vec<String> = known.collect();
    match known.is_empty() {
        true => "nothing measured".to_owned(),
        false => known.join(", "),
    }
}

/// Microseconds in a unit that reads well.
pub(super) fn shown(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1000.0 => (us, "us"),
        us if us < 1_000_000.0 => (us / 1000.0, "ms"),
        us => (us / 1_000_000.0, "s"),
    };
    let decimals = if value >= 100.0 || value == value.trunc() { 0 } else { 1 };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_in_one_bucket() {
        let mut recorder = Recorder::new();
        for us in [3, 40, 41, 700, 30_000_000] {
            recorder.record(Duration::from_micros(us));
        }
        let buckets = histogram(&recorder);
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 5);
        assert_eq!((buckets[0].below_us, buckets[0].count), (5.0, 1));
        assert_eq!(buckets.last().map(|bucket| bucket.count), Some(1));
        assert!(histogram(&Recorder::new()).is_empty());
    }

    #[test]
    fn the_unit_fits_the_number() {
        assert_eq!(shown(0.25), "0.2 us");
        assert_eq!(shown(50.0), "50 us");
        assert_eq!(shown(1500.0), "1.5 ms");
        assert_eq!(shown(2_000_000.0), "2 s");
        assert_eq!(points(&Latency::default()), "nothing measured");
    }
}
