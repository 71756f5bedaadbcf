//! A log-linear histogram of durations: sixteen buckets for each power of two of nanoseconds.
//!
//! Recording is an addition to one of 640 counters, so it is always on; a percentile is right to a sixteenth. Durations
//! beyond 18 minutes share the last bucket, and the maximum is kept beside it.

use std::time::Duration;

/// Buckets for each power of two.
const PARTS: u64 = 16;
const PART_BITS: u32 = PARTS.trailing_zeros();

/// Powers of two that are told apart.
const POWERS: usize = 40;

/// How long things took.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; PARTS as usize * POWERS]>,
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: Box::new([0; PARTS as usize * POWERS]),
            count: 0,
            total_ns: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Counts one that took so long.
    pub fn record(&mut self, took: Duration) {
        self.record_many(took, 1);
    }

    pub(crate) fn record_many(&mut self, took: Duration, count: u64) {
        self.record_ns(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), count);
    }

    pub(crate) fn record_ns(&mut self, ns: u64, count: u64) {
        self.counts[bucket_of(ns)] += count;
        self.count += count;
        self.total_ns = self.total_ns.saturating_add(ns.saturating_mul(count));
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds what another one has recorded.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.total_ns, self.max_ns) = (0, 0, 0);
    }

    /// Durations recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns)
    }

    /// How many were shorter than this: exact where it is a power of two of nanoseconds, else without those of its own bucket.
    #[must_use]
    pub fn shorter_than(&self, limit: Duration) -> u64 {
        let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.counts[..bucket_of(ns)].iter().sum()
    }

    /// Their mean; zero without any.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.total_ns.checked_div(self.count).unwrap_or(0))
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The duration that `share` (0 to 1) of all do not exceed, rounded up to its bucket's end; zero without any.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Duration {
        let wanted = ((share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(end_of(bucket).min(self.max_ns));
            }
        }
        self.max()
    }
}

/// Below 16 ns every nanosecond has a bucket; above, the four bits behind the leading one choose it.
fn bucket_of(ns: u64) -> usize {
    if ns < PARTS {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros();
    let part = (ns >> (power - PART_BITS)) & (PARTS - 1);
    let bucket = u64::from(power - PART_BITS + 1) * PARTS + part;
    (bucket as usize).min(PARTS as usize * POWERS - 1)
}

/// The largest duration of a bucket, in nanoseconds.
fn end_of(bucket: usize) -> u64 {
    let (power, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    if power == 0 {
        return part;
    }
    ((PARTS + part + 1) << (power - 1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shorter_is_counted_exactly_at_powers_of_two() {
        let mut histogram = Histogram::default();
        for ns in [1, 15, 1023, 1024, 1025, 1 << 20] {
            histogram.record_ns(ns, 1);
        }
        let shorter = |ns| histogram.shorter_than(Duration::from_nanos(ns));
        assert_eq!(
            [0, 1, 2, 16, 1024, 2048, 1 << 20, 1 << 21].map(shorter),
            [0, 0, 1, 2, 3, 5, 5, 6]
        );
        assert_eq!(
            histogram.total(),
            Duration::from_nanos(1 + 15 + 1023 + 1024 + 1025 + (1 << 20))
        );
    }

    #[test]
    fn every_duration_lies_in_its_bucket() {
        let mut last = 0;
        for ns in (0..4096).chain((12..41).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])) {
            let bucket = bucket_of(ns);
            assert!(bucket >= last, "{ns}");
            last = bucket;
            assert!(ns <= end_of(bucket), "{ns}");
            assert!(bucket == 0 || ns > end_of(bucket - 1), "{ns}");
        }
        assert_eq!(bucket_of(u64::MAX), PARTS as usize * POWERS - 1);
    }

    #[test]
    fn percentiles_are_right_to_a_sixteenth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), Duration::ZERO);
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let told = histogram.percentile(share).as_nanos() as f64 / 1000.0;
            assert!(told >= us && told <= us * 1.0625, "{share}: {told}");
        }
        assert_eq!(histogram.mean(), Duration::from_nanos(500_500));
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((twice.count(), twice.max()), (2000, Duration::from_millis(1)));
    }
}
