//! All counters of a link at one moment, as plain numbers; and with the feature `metrics` as Prometheus' text, and on a socket.
//!
//! A [`Metrics`] is a snapshot: what has been counted since the link was made, and what is so now. It can be sent to another
//! thread, which a `Local` cannot.
//!
//! | name | what it is |
//! |---|---|
//! | [`Metrics`] | the snapshot |
//! | `Metrics::prometheus` | the same in the text format of OpenMetrics (feature `metrics`) |
//! | `serve` | a Unix socket that answers with it, for `baio metrics`, `curl --unix-socket` and scrapers (feature `metrics`) |

#[cfg(feature = "metrics")]
mod server;
#[cfg(feature = "metrics")]
mod text;

#[cfg(feature = "metrics")]
pub use self::server::{MetricsServer, serve, serve_if};
pub use baio_engine::{Histogram, Stats};
pub use baio_storage::cache::CacheStats;
pub use baio_storage::{Counters, LogCounters, RequestCounters, VolumeCounters};

use crate::BrokerStatus;

/// All counters of a link at one moment.
///
/// Counters only grow; what is a figure of now says so.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Of the engine.
    pub engine: Stats,
    /// Of what was asked of the engine, by operation and mode; what the page cache answered is not among it.
    pub requests: Vec<RequestCounters>,
    /// Of the page cache, if there is one.
    pub cache: Option<CacheStats>,
    /// Of the volume, if there is one.
    pub volume: Option<VolumeCounters>,
    /// Of each durable log that is open.
    pub logs: Vec<LogCounters>,
    /// Of a broker's users, where a broker shows its own figures (`baio serve --metrics`).
    pub broker: Option<BrokerStatus>,
    /// Of the link itself.
    pub link: LinkCounters,
}

/// Figures of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Now: requests that have not ended.
    pub in_flight: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Now: bytes of the arena that nobody has.
    pub arena_free_bytes: u64,
    /// Requests that were copied through a buffer of the arena, because their own memory was not aligned as the file wants it.
    pub bounced_requests: u64,
    /// Bytes of these.
    pub bounced_bytes: u64,
}

impl From<Counters> for Metrics {
    /// What a core has counted; nothing has bounced.
    fn from(counters: Counters) -> Metrics {
        Metrics {
            engine: counters.engine,
            requests: counters.requests,
            cache: counters.cache,
            volume: counters.volume,
            logs: counters.logs,
            broker: None,
            link: LinkCounters {
                in_flight: counters.in_flight,
                arena_bytes: counters.arena_bytes,
                arena_free_bytes: counters.arena_free_bytes,
                ..LinkCounters::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_can_be_taken_to_another_thread() {
        fn is_sent<T: Send + Sync + 'static>() {}
        is_sent::<Metrics>();
    }

    #[test]
    fn what_a_core_has_counted_is_all_there() {
        let core = baio_storage::Core::new(&baio_engine::EngineOptions::default()).unwrap();
        let metrics = Metrics::from(core.counters());
        let arena = core.engine().arena();
        assert_eq!(metrics.engine, core.stats());
        assert_eq!(metrics.link.arena_bytes, arena.size() as u64);
        assert_eq!(metrics.link.arena_free_bytes, arena.free_bytes() as u64);
        assert_eq!((metrics.link.in_flight, metrics.link.bounced_requests), (0, 0));
        assert!(metrics.cache.is_none() && metrics.volume.is_none() && metrics.logs.is_empty());
    }
}
