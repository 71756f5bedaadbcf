//! How figures are written: families, each with its name and help, and in them counters, gauges and histograms.

use std::fmt::Error;
use std::time::Duration;

use baio_engine::Histogram;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The edges of the buckets of latencies, as powers of two of nanoseconds, where our histograms are exact: from 4 us to 17 s.
const EDGES: std::ops::RangeInclusive<u32> = 12..=34;
/// Only every second of them: each bucket is four times as wide as the one before.
const STEP: usize = 2;

/// A name, its help and its value.
type Figure = (&'static str, &'static str, u64);

/// What is written so far, and what writes on.
pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

impl Page<'_> {
    pub(super) fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    pub(super) fn counters(&mut self, figures: &[Figure]) -> Result<(), Error> {
        figures.iter().try_for_each(|&(name, help, value)| {
            let family = self.family(name, help, MetricType::Counter)?;
            counter(family, value)
        })
    }

    pub(super) fn gauges(&mut self, figures: &[Figure]) -> Result<(), Error> {
        figures.iter().try_for_each(|&(name, help, value)| {
            let mut family = self.family(name, help, MetricType::Gauge)?;
            family.encode_gauge(&value)
        })
    }
}

pub(super) fn counter(mut encoder: MetricEncoder<'_>, value: u64) -> Result<(), Error> {
    encoder.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

pub(super) fn histogram(mut encoder: MetricEncoder<'_>, latency: &Histogram) -> Result<(), Error> {
    let mut before = 0;
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for power in EDGES.step_by(STEP) {
        let edge = Duration::from_nanos(1 << power);
        let shorter = latency.shorter_than(edge);
        buckets.push((edge.as_secs_f64(), shorter.saturating_sub(before)));
        before = shorter;
    }
    buckets.push((f64::INFINITY, latency.count().saturating_sub(before)));
    encoder.encode_histogram::<NoLabelSet>(latency.total().as_secs_f64(), latency.count(), &buckets, None)
}
