//! All counters of a core at one moment, as plain numbers that can be sent to another thread.

use baio_engine::{Engine, Histogram, Stats};

use super::Core;
use crate::cache::CacheStats;
use crate::log::LogUsage;

/// Counters of an engine and of what stands on it. Those without "now" only grow.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
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
    /// Now: requests that have not ended, wherever they are.
    pub in_flight: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Now: bytes of the arena that nobody has.
    pub arena_free_bytes: u64,
}

/// What the engine has done of one operation in one mode.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestCounters {
    /// The operation's name ("read").
    pub op: &'static str,
    /// The mode's name: "direct", "kernel", "uncached".
    pub mode: &'static str,
    /// Those that have ended, errors among them.
    pub completions: u64,
    /// Those that have ended with an error.
    pub errors: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// How long they took in the engine; of reads that were tried at once a sample.
    pub latency: Histogram,
}

/// Figures of a volume: all of them are of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeCounters {
    /// Bytes of data that it can hold.
    pub size_bytes: u64,
    /// Bytes that no segment holds and that are promised to none.
    pub free_bytes: u64,
    /// Segments that exist.
    pub segments: u64,
    /// Segments that can exist.
    pub segments_max: u64,
    /// Segments that are not served, because their blocks belong to others.
    pub quarantined: u64,
    /// A record of metadata failed: the volume changes nothing any more until it is opened again.
    pub latched: bool,
}

/// Figures of an open log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogCounters {
    /// The segment or file that it is in, as messages call it.
    pub name: String,
    /// How it stands, and what it has done since it was opened.
    pub usage: LogUsage,
    /// A write of it failed: nothing more is acknowledged until it is opened again.
    pub failed: bool,
}

impl Counters {
    /// Those of an engine without a core, such as a service of plain files has.
    #[must_use]
    pub fn of_engine(engine: &Engine) -> Counters {
        let measured = engine.measures().iter();
        Counters {
            engine: engine.stats(),
            requests: measured
                .map(|(op, caching, measured)| RequestCounters {
                    op,
                    mode: caching.name(),
                    completions: measured.completions,
                    errors: measured.errors,
                    bytes: measured.bytes,
                    latency: measured.latency.clone(),
                })
                .collect(),
            in_flight: (engine.in_flight() + engine.completed()) as u64,
            arena_bytes: engine.arena().size() as u64,
            arena_free_bytes: engine.arena().free_bytes() as u64,
            ..Counters::default()
        }
    }
}

impl Core {
    /// All counters as they are now. It reads nothing and costs no system call; it allocates, so it is for now and then.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let volume = self.table.volume.as_ref().map(|volume| {
            let bytes = |blocks: u64| blocks.saturating_mul(u64::from(volume.block_size()));
            let geometry = volume.superblock.geometry();
            VolumeCounters {
                size_bytes: bytes(geometry.data_blocks),
                free_bytes: bytes(volume.free.free_blocks()),
                segments: volume.accounts.segments(),
                segments_max: geometry.segments_max,
                quarantined: volume.quarantined.count() as u64,
                latched: volume.is_latched(),
            }
        });
        Counters {
            cache: self.cache_stats(),
            volume,
            logs: self.lane.log_counters(),
            in_flight: self.in_flight() as u64,
            ..Counters::of_engine(&self.lane.engine)
        }
    }
}
