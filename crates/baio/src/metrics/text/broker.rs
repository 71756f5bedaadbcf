//! What the users of a broker have and had. Each has a label of its own: a broker remembers some hundreds.

use std::fmt::Error;

use prometheus_client::metrics::MetricType;

use super::page::{Page, counter};
use crate::{BrokerStatus, OwnerStatus};

/// A name, its help and its value.
type OwnerFigure = (&'static str, &'static str, fn(&OwnerStatus) -> u64);

const COUNTERS: &[OwnerFigure] = &[
    ("baio_broker_requests", "Requests of clients that have ended", |owner| {
        owner.requests
    }),
    ("baio_broker_errors", "Requests of clients that failed", |owner| {
        owner.errors
    }),
    ("baio_broker_read_bytes", "Bytes that clients read", |owner| {
        owner.bytes_read
    }),
    ("baio_broker_written_bytes", "Bytes that clients wrote", |owner| {
        owner.bytes_written
    }),
    (
        "baio_broker_violations",
        "Connections ended for what no correct client sends",
        |owner| owner.violations,
    ),
];

const GAUGES: &[OwnerFigure] = &[
    ("baio_broker_clients", "Connections", |owner| owner.clients.into()),
    ("baio_broker_handles", "Segments that clients have open", |owner| {
        owner.handles.into()
    }),
    ("baio_broker_in_flight", "Requests of clients under way", |owner| {
        owner.in_flight.into()
    }),
    ("baio_broker_held", "Requests that wait until others end", |owner| {
        owner.held.into()
    }),
];

impl Page<'_> {
    pub(super) fn broker(&mut self, status: &BrokerStatus) -> Result<(), Error> {
        let uid = |owner: &OwnerStatus| owner.uid.to_string();
        let help = "When the broker started, in seconds since 1970";
        self.gauges(&[("baio_broker_started_at_seconds", help, status.started_at_unix)])?;
        let help = "Connections that have ended";
        self.counters(&[("baio_broker_sessions_ended", help, status.sessions_ended)])?;
        for &(name, help, figure) in COUNTERS {
            let mut family = self.family(name, help, MetricType::Counter)?;
            for owner in &status.owners {
                counter(family.encode_family(&[("uid", uid(owner))])?, figure(owner))?;
            }
        }
        for &(name, help, figure) in GAUGES {
            let mut family = self.family(name, help, MetricType::Gauge)?;
            for owner in &status.owners {
                family
                    .encode_family(&[("uid", uid(owner))])?
                    .encode_gauge(&figure(owner))?;
            }
        }
        let help = "How long the latest requests of clients took in the broker";
        let mut family = self.family("baio_broker_request_seconds", help, MetricType::Gauge)?;
        for owner in &status.owners {
            for (quantile, took) in [("0.5", owner.latency_p50), ("0.99", owner.latency_p99)] {
                let labels = [("uid", uid(owner)), ("quantile", quantile.to_owned())];
                family.encode_family(&labels)?.encode_gauge(&took.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Metrics;

    #[test]
    fn each_user_has_its_own_figures() {
        let mut status = BrokerStatus::default();
        (status.started_at_unix, status.sessions_ended) = (1_700_000_000, 5);
        for uid in [7, u32::MAX] {
            let mut owner = OwnerStatus::default();
            (owner.uid, owner.requests, owner.held) = (uid, 3, 2);
            (owner.latency_p50, owner.latency_p99) = (Duration::from_micros(250), Duration::from_millis(2));
            status.owners.push(owner);
        }
        let text = Metrics {
            broker: Some(status),
            ..Metrics::default()
        }
        .prometheus();
        for line in [
            "baio_broker_started_at_seconds 1700000000",
            "baio_broker_sessions_ended_total 5",
            "# TYPE baio_broker_requests counter",
            "baio_broker_requests_total{uid=\"7\"} 3",
            "baio_broker_requests_total{uid=\"4294967295\"} 3",
            "baio_broker_held{uid=\"7\"} 2",
            "baio_broker_request_seconds{uid=\"7\",quantile=\"0.5\"} 0.00025",
            "baio_broker_request_seconds{uid=\"7\",quantile=\"0.99\"} 0.002",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
