//! One shape of result, whoever has run the requests and on whichever side of a comparison.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::cache_counts::CacheCounts;

/// What a run of requests gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measurement {
    /// Requests that succeeded, a second.
    pub iops: f64,
    /// Their bytes.
    pub bytes_per_second: f64,
    /// From the submission of a request to the reaping of its completion.
    pub latency_us: Latency,
    /// Time in the submitting call; `None` where there is no such call, or a peer does not tell.
    pub submit_latency_us: Option<Latency>,
    /// User and system time of the whole process per request.
    pub cpu_us_per_request: f64,
    /// The same less what a process takes to start and to end; `None` where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_less_start_us_per_request: Option<f64>,
    /// Of the whole process, too.
    pub context_switches_per_request: f64,
    /// Counted by us; `None` where a peer does not tell.
    pub system_calls_per_request: Option<f64>,
    /// Requests that were under way at a time.
    pub in_flight_max: u64,
    /// `None` where a peer does not tell.
    pub threads_max: Option<u64>,
    /// The most memory that the process has had; `None` where the system does not tell.
    pub rss_bytes: Option<u64>,
    /// Completed, the failed ones among them.
    pub requests: u64,
    /// How many failed.
    pub errors: u64,
    /// Tries of the engine.
    pub iterations_per_request: Option<f64>,
    /// Who carried the requests.
    pub backend: String,
    /// Through which cache.
    pub mode: String,
    /// What the syncs behind the requests took, which is not in the rates; `None` where a side has none or counts it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_seconds: Option<f64>,
    /// Percent of the pages that were written in the foreground, by or for who waited, and not by a cleaner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground_percent: Option<f64>,
    /// What our own cache has done, where requests went through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheCounts>,
}

impl Measurement {
    /// So many requests of `size` bytes in so many seconds; what else is known of them is for the caller to say.
    pub fn of(requests: u64, size: u64, seconds: f64) -> Measurement {
        Measurement {
            iops: requests as f64 / seconds,
            bytes_per_second: (requests * size) as f64 / seconds,
            requests,
            ..Measurement::default()
        }
    }
}

/// Points of a latency distribution, in microseconds; `None` where nothing was recorded or a peer does not tell.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// All of them by their number.
    pub mean: Option<f64>,
    /// Half of them took no longer.
    pub p50: Option<f64>,
    /// Nor these of a hundred.
    pub p99: Option<f64>,
    /// Nor these of a thousand.
    pub p999: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

/// Collects durations; two significant digits, up to a day: a stall of minutes must not look like one of less.
pub struct Recorder(Option<Histogram<u64>>);

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

impl Recorder {
    /// With nothing in it.
    pub fn new() -> Recorder {
        const DAY_NS: u64 = 86_400_000_000_000;
        // These bounds are valid, so this is always some histogram.
        Recorder(Histogram::new_with_bounds(1, DAY_NS, 2).ok())
    }

    /// Takes one in.
    pub fn record(&mut self, duration: Duration) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(duration.as_nanos() as u64);
        }
    }

    /// Takes in all of another one.
    pub fn merge(&mut self, other: &Recorder) {
        if let (Some(histogram), Some(other)) = (&mut self.0, &other.0) {
            // Both have the same bounds.
            let _ = histogram.add(other);
        }
    }

    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// How many of them are shorter than `bound`.
    pub fn count_below(&self, bound: Duration) -> u64 {
        let most = (bound.as_nanos() as u64).saturating_sub(1);
        let shorter = |histogram: &Histogram<u64>| histogram.count_between(0, most);
        self.0.as_ref().map_or(0, shorter)
    }

    /// The points of its distribution.
    pub fn latency(&self) -> Latency {
        let Some(histogram) = self.0.as_ref().filter(|histogram| !histogram.is_empty()) else {
            return Latency::default();
        };
        let us = |ns: u64| Some(ns as f64 / 1000.0);
        Latency {
            mean: Some(histogram.mean() / 1000.0),
            p50: us(histogram.value_at_quantile(0.5)),
            p99: us(histogram.value_at_quantile(0.99)),
            p999: us(histogram.value_at_quantile(0.999)),
            max: us(histogram.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_nothing_and_not_zero() {
        assert_eq!(Recorder::new().latency().p99, None);
    }

    #[test]
    fn a_recorder_gives_points_of_the_distribution() {
        let mut recorder = Recorder::new();
        for us in 1..=1000 {
            recorder.record(Duration::from_micros(us));
        }
        let latency = recorder.latency();
        assert!((490.0..=510.0).contains(&latency.p50.unwrap()), "{latency:?}");
        assert!((980.0..=1010.0).contains(&latency.p99.unwrap()), "{latency:?}");
    }

    #[test]
    fn a_stall_is_as_long_as_it_was() {
        let mut recorder = Recorder::new();
        recorder.record(Duration::from_secs(90));
        let max = recorder.latency().max.unwrap() / 1e6;
        assert!((89.0..=91.0).contains(&max), "{max} s");
    }
}
