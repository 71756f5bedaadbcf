//! Who uses a broker, and how much.

use std::time::Duration;

use baio_words::session::{OwnerWords, StatusWords};

/// Who uses a broker at one moment, and has since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerStatus {
    /// When it started: seconds since 1970.
    pub started_at_unix: u64,
    /// Connections that have ended since; 0 for who sees its own figures only.
    pub sessions_ended: u64,
    /// Those of its users that the caller may see, in no order. Of users that have gone it forgets some when there are more than 256.
    pub owners: Vec<OwnerStatus>,
}

/// How much one user uses a broker, over all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerStatus {
    /// The user.
    pub uid: u32,
    /// Now: connections.
    pub clients: u32,
    /// Now: segments that are open, each as often as it is.
    pub handles: u32,
    /// Now: requests at the device or in the page cache.
    pub in_flight: u32,
    /// Now: requests that wait until others end.
    pub held: u32,
    /// Requests that have ended.
    pub requests: u64,
    /// Bytes that these have read.
    pub bytes_read: u64,
    /// Bytes that these have written.
    pub bytes_written: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Connections that were ended for what no correct client sends.
    pub violations: u64,
    /// Half of the requests have ended within this time, in the broker.
    pub latency_p50: Duration,
    /// 99 of 100.
    pub latency_p99: Duration,
}

impl From<StatusWords> for BrokerStatus {
    fn from(words: StatusWords) -> BrokerStatus {
        BrokerStatus {
            started_at_unix: words.started_at_unix,
            sessions_ended: words.sessions_ended,
            owners: words.owners.into_iter().map(OwnerStatus::from).collect(),
        }
    }
}

impl From<OwnerWords> for OwnerStatus {
    fn from(words: OwnerWords) -> OwnerStatus {
        let us = |us: u32| Duration::from_micros(us.into());
        OwnerStatus {
            uid: words.uid,
            clients: words.sessions,
            handles: words.handles,
            in_flight: words.in_flight,
            held: words.held,
            requests: words.requests,
            bytes_read: words.bytes_read,
            bytes_written: words.bytes_written,
            errors: words.errors,
            violations: words.violations,
            latency_p50: us(words.latency_us_p50),
            latency_p99: us(words.latency_us_p99),
        }
    }
}
