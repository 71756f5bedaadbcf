//! The snapshot in the text format of OpenMetrics, by prometheus-client's collector interface
//! (`docs/inside/decisions/0022-metrics-are-a-snapshot.md`): each figure with its name and its help. How a figure is written stands in
//! `text/page.rs`; those of a broker's users in `text/broker.rs`.

mod broker;
mod page;

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use page::{Page, counter, histogram};

use super::{LinkCounters, Metrics};
use baio_engine::Stats;
use baio_storage::cache::CacheStats;
use baio_storage::{LogCounters, RequestCounters, VolumeCounters};

impl Metrics {
    /// The snapshot in the text exposition format of Prometheus (OpenMetrics 1.0), as `serve` answers with. `docs/use/observing.md`
    /// lists the names.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut out = String::new();
        // Writing to a string does not fail, and no value of ours is refused.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut page = Page(encoder);
        page.requests(&self.requests)?;
        page.engine(&self.engine)?;
        if let Some(cache) = &self.cache {
            page.cache(cache)?;
        }
        if let Some(volume) = &self.volume {
            page.volume(volume)?;
        }
        page.logs(&self.logs)?;
        if let Some(broker) = &self.broker {
            page.broker(broker)?;
        }
        page.link(&self.link)
    }
}

/// A name, its help and its value, of one of several logs.
type LogFigure = (&'static str, &'static str, fn(&LogCounters) -> u64);

impl Page<'_> {
    fn requests(&mut self, all: &[RequestCounters]) -> Result<(), Error> {
        let mut family = self.family("baio_requests", "Requests that have ended", MetricType::Counter)?;
        for one in all {
            for (outcome, count) in [
                ("ok", one.completions.saturating_sub(one.errors)),
                ("error", one.errors),
            ] {
                let labels = [("op", one.op), ("mode", one.mode), ("outcome", outcome)];
                counter(family.encode_family(&labels)?, count)?;
            }
        }
        let mut family = self.family("baio_request_bytes", "Bytes that requests moved", MetricType::Counter)?;
        for one in all {
            counter(family.encode_family(&labels_of(one))?, one.bytes)?;
        }
        let help = "How long requests took in the engine";
        let mut family = self.family("baio_request_seconds", help, MetricType::Histogram)?;
        for one in all {
            histogram(family.encode_family(&labels_of(one))?, &one.latency)?;
        }
        Ok(())
    }

    fn engine(&mut self, stats: &Stats) -> Result<(), Error> {
        self.counters(&[
            ("baio_engine_requests", "Requests accepted", stats.requests),
            ("baio_engine_completions", "Completions delivered", stats.completions),
            ("baio_engine_errors", "Completions that were errors", stats.errors),
            (
                "baio_engine_iterations",
                "Iterations run by the backend",
                stats.iterations,
            ),
            ("baio_engine_trials", "Cached reads tried at once", stats.trials),
            (
                "baio_engine_trial_hits",
                "Cached reads that ended at once",
                stats.trial_hits,
            ),
            (
                "baio_engine_memory_reads",
                "Reads of files that lie in memory (tmpfs)",
                stats.memory_reads,
            ),
            ("baio_engine_batches", "Batches handed to the backend", stats.batches),
            ("baio_engine_read_bytes", "Bytes read", stats.bytes_read),
            ("baio_engine_written_bytes", "Bytes written", stats.bytes_written),
            (
                "baio_engine_durable_by_sync",
                "Durable requests that needed a sync",
                stats.durable_by_sync,
            ),
            (
                "baio_engine_abandoned",
                "Requests given up on while they ran",
                stats.abandoned,
            ),
            (
                "baio_engine_system_calls",
                "System calls of the backend",
                stats.system_calls,
            ),
        ])?;
        let help = "Most requests in flight at a time";
        self.gauges(&[("baio_engine_in_flight_max", help, stats.in_flight_max)])
    }

    fn cache(&mut self, stats: &CacheStats) -> Result<(), Error> {
        self.counters(&[
            ("baio_cache_requests", "Cached requests that have ended", stats.requests),
            (
                "baio_cache_iterations",
                "Iterations of cached requests",
                stats.iterations,
            ),
            (
                "baio_cache_spurious_wakeups",
                "Iterations that could do nothing",
                stats.spurious_wakeups,
            ),
            (
                "baio_cache_parked",
                "Waits for a frame, for room or for a reserved range",
                stats.parked,
            ),
            ("baio_cache_waits_for_frame", "Waits for a frame", stats.waits_for_frame),
            (
                "baio_cache_waits_for_room",
                "Waits at the dirty limit",
                stats.waits_for_room,
            ),
            (
                "baio_cache_pages_hit",
                "Page uses answered from the cache",
                stats.pages_hit,
            ),
            (
                "baio_cache_pages_missed",
                "Page uses that had to wait for a read",
                stats.pages_missed,
            ),
            ("baio_cache_pins_hit", "Pages pinned at once", stats.pins_hit),
            (
                "baio_cache_pages_lent",
                "Uses of pages that were lent",
                stats.pages_lent,
            ),
            (
                "baio_cache_lent_copied",
                "Lent pages that were copied",
                stats.lent_copied,
            ),
            ("baio_cache_fills", "Reads of the device", stats.fills),
            (
                "baio_cache_bypasses",
                "Reads that bypassed the page cache",
                stats.bypasses,
            ),
            ("baio_cache_pages_filled", "Pages read", stats.pages_filled),
            (
                "baio_cache_failed_fills",
                "Pages that could not be read",
                stats.failed_fills,
            ),
            ("baio_cache_pages_ahead", "Pages read ahead", stats.pages_ahead),
            (
                "baio_cache_ahead_hit",
                "Pages read ahead that were used",
                stats.ahead_hit,
            ),
            (
                "baio_cache_ahead_wasted",
                "Pages read ahead that were not used",
                stats.ahead_wasted,
            ),
            (
                "baio_cache_pages_prefetched",
                "Pages prefetched",
                stats.pages_prefetched,
            ),
            (
                "baio_cache_pages_dropped",
                "Pages dropped by a hint",
                stats.pages_dropped,
            ),
            ("baio_cache_writes", "Writes to the device", stats.writes),
            (
                "baio_cache_durable_writes",
                "Durable writes to the device",
                stats.durable_writes,
            ),
            (
                "baio_cache_writes_through",
                "Writes from their callers' memory",
                stats.writes_through,
            ),
            ("baio_cache_pages_written", "Pages written", stats.pages_written),
            (
                "baio_cache_failed_writes",
                "Pages that could not be written",
                stats.failed_writes,
            ),
            (
                "baio_cache_cleaner_writes",
                "Writes that the cleaner began",
                stats.cleaner_writes,
            ),
            (
                "baio_cache_foreground_writes",
                "Writes that a request waited for",
                stats.foreground_writes,
            ),
            ("baio_cache_pages_gone_over", "Pages gone over", stats.pages_gone_over),
            (
                "baio_cache_objects_looked_at",
                "Objects looked at",
                stats.objects_looked_at,
            ),
            ("baio_cache_flushes", "Flushes of the device", stats.flushes),
            ("baio_cache_failed_flushes", "Flushes that failed", stats.failed_flushes),
            ("baio_cache_evictions", "Pages evicted to make room", stats.evictions),
            (
                "baio_cache_victims_refused",
                "Pages chosen for eviction that could not be evicted",
                stats.victims_refused,
            ),
        ])?;
        let states = [
            ("free", stats.frames_free),
            ("clean", stats.frames_clean),
            ("filling", stats.frames_filling),
            ("dirty", stats.frames_dirty),
            ("failed", stats.frames_failed),
            ("gated", stats.frames_gated),
            ("write_back", stats.frames_write_back),
            ("unflushed", stats.frames_unflushed),
            ("lost", stats.frames_lost),
            ("lent", stats.frames_lent),
        ];
        self.gauges(&[("baio_cache_frames_all", "Frames in all", stats.frames.into())])?;
        let mut family = self.family("baio_cache_frames", "Frames by their state", MetricType::Gauge)?;
        for (state, frames) in states {
            family.encode_family(&[("state", state)])?.encode_gauge(&frames)?;
        }
        Ok(())
    }

    fn volume(&mut self, volume: &VolumeCounters) -> Result<(), Error> {
        self.gauges(&[
            (
                "baio_volume_size_bytes",
                "Bytes of data that the volume can hold",
                volume.size_bytes,
            ),
            (
                "baio_volume_free_bytes",
                "Bytes that no segment holds",
                volume.free_bytes,
            ),
            ("baio_volume_segments", "Segments that exist", volume.segments),
            (
                "baio_volume_segments_max",
                "Segments that can exist",
                volume.segments_max,
            ),
            (
                "baio_volume_quarantined",
                "Segments that are not served",
                volume.quarantined,
            ),
            (
                "baio_volume_latched",
                "1 if the volume refuses changes after a failed metadata write",
                u64::from(volume.latched),
            ),
        ])
    }

    fn logs(&mut self, logs: &[LogCounters]) -> Result<(), Error> {
        if logs.is_empty() {
            return Ok(());
        }
        const COUNTERS: &[LogFigure] = &[
            ("baio_log_appends", "Records appended", |log| log.usage.appends),
            (
                "baio_log_append_bytes",
                "Bytes of records appended, with their headers",
                |log| log.usage.append_bytes,
            ),
            ("baio_log_would_block", "Appends that found no room", |log| {
                log.usage.would_block
            }),
            ("baio_log_batches", "Batches that became durable", |log| {
                log.usage.batches
            }),
            ("baio_log_batch_bytes", "Bytes of the batches, with padding", |log| {
                log.usage.batch_bytes
            }),
            ("baio_log_batch_records", "Records in the batches", |log| {
                log.usage.batch_records
            }),
            (
                "baio_log_bells",
                "Times that an append woke the thread that writes the log",
                |log| log.usage.bells,
            ),
            ("baio_log_headers", "Headers written", |log| log.usage.headers),
            ("baio_log_reads_recent", "Reads answered from memory", |log| {
                log.usage.reads_recent
            }),
            ("baio_log_reads_device", "Reads of the device", |log| {
                log.usage.reads_device
            }),
        ];
        const GAUGES: &[LogFigure] = &[
            ("baio_log_size_bytes", "Size of the log in bytes", |log| {
                log.usage.size_bytes
            }),
            ("baio_log_used_bytes", "Bytes of the log's data area in use", |log| {
                log.usage.used_bytes
            }),
            (
                "baio_log_free_bytes",
                "Bytes of the log's data area that are free",
                |log| log.usage.free_bytes,
            ),
            (
                "baio_log_pending_bytes",
                "Bytes appended that are not durable yet",
                |log| log.usage.pending_bytes,
            ),
            ("baio_log_head_lsn", "The oldest LSN that is kept", |log| {
                log.usage.head.0
            }),
            ("baio_log_durable_lsn", "Every record below is durable", |log| {
                log.usage.durable.0
            }),
            ("baio_log_epoch", "How often the log was opened", |log| log.usage.epoch),
            (
                "baio_log_in_flight_max",
                "Most batches at the device at a time",
                |log| log.usage.in_flight_max.into(),
            ),
            (
                "baio_log_failed",
                "1 if a write failed: nothing more becomes durable",
                |log| log.failed.into(),
            ),
        ];
        for &(name, help, figure) in COUNTERS {
            let mut family = self.family(name, help, MetricType::Counter)?;
            for log in logs {
                counter(family.encode_family(&label_of(log))?, figure(log))?;
            }
        }
        for &(name, help, figure) in GAUGES {
            let mut family = self.family(name, help, MetricType::Gauge)?;
            for log in logs {
                family.encode_family(&label_of(log))?.encode_gauge(&figure(log))?;
            }
        }
        let help = "Batches that became durable, by their size";
        let mut family = self.family("baio_log_batch_size_bytes", help, MetricType::Histogram)?;
        for log in logs {
            batch_sizes(family.encode_family(&label_of(log))?, log)?;
        }
        Ok(())
    }

    fn link(&mut self, link: &LinkCounters) -> Result<(), Error> {
        let &LinkCounters {
            in_flight,
            arena_bytes,
            arena_free_bytes,
            bounced_requests,
            bounced_bytes,
        } = link;
        self.gauges(&[
            ("baio_requests_in_flight", "Requests that have not ended", in_flight),
            ("baio_arena_size_bytes", "Bytes of the arena", arena_bytes),
            (
                "baio_arena_free_bytes",
                "Bytes of the arena that are free",
                arena_free_bytes,
            ),
        ])?;
        let help = "Requests copied through the arena for their alignment";
        self.counters(&[
            ("baio_bounced_requests", help, bounced_requests),
            ("baio_bounced_bytes", "Bytes of these", bounced_bytes),
        ])
    }
}

fn labels_of(one: &RequestCounters) -> impl EncodeLabelSet + use<> {
    [("op", one.op), ("mode", one.mode)]
}

fn label_of(log: &LogCounters) -> impl EncodeLabelSet + use<'_> {
    [("log", log.name.as_str())]
}

fn batch_sizes(mut encoder: MetricEncoder<'_>, log: &LogCounters) -> Result<(), Error> {
    let sizes = log.usage.batch_sizes.iter().zip(0..);
    let mut buckets: Vec<(f64, u64)> = sizes
        .map(|(count, class)| (f64::from(512_u32 << class), *count))
        .collect();
    buckets.push((f64::INFINITY, 0));
    encoder.encode_histogram::<NoLabelSet>(log.usage.batch_bytes as f64, log.usage.batches, &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a scraper needs to be able to read: each name described once before its values, and the end.
    fn is_well_formed(text: &str) {
        let mut described = std::collections::BTreeSet::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                current = help.split(' ').next().unwrap().to_owned();
                assert!(described.insert(current.clone()), "{current} is described twice");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                assert!(kind.starts_with(&current), "{line}");
            } else if line != "# EOF" {
                assert!(line.starts_with(&current), "{line} stands under {current}");
                let value = line.rsplit(' ').next().unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn a_snapshot_of_nothing_is_a_text_too() {
        let text = Metrics::default().prometheus();
        is_well_formed(&text);
        assert!(text.contains("\nbaio_engine_requests_total 0\n"), "{text}");
        assert!(
            !text.contains("baio_cache_") && !text.contains("baio_volume_") && !text.contains("baio_log_"),
            "{text}"
        );
    }

    #[test]
    fn every_part_has_its_names() {
        let engine = Stats {
            requests: 7,
            bytes_read: 1 << 40,
            ..Stats::default()
        };
        let core = baio_storage::Core::new(&baio_engine::EngineOptions::default()).unwrap();
        let mut metrics = Metrics {
            engine,
            cache: Some(CacheStats::default()),
            volume: Some(VolumeCounters::default()),
            ..Metrics::from(core.counters())
        };
        metrics.link.bounced_requests = 3;
        let text = metrics.prometheus();
        is_well_formed(&text);
        for line in [
            "# TYPE baio_requests counter",
            "# TYPE baio_request_seconds histogram",
            "baio_engine_requests_total 7",
            "baio_engine_read_bytes_total 1099511627776",
            "baio_cache_pages_hit_total 0",
            "baio_cache_frames{state=\"dirty\"} 0",
            "baio_volume_latched 0",
            "baio_bounced_requests_total 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn each_open_log_has_its_figures() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        use crate::Link;

        let place = tempfile::tempdir().unwrap();
        let link = crate::Local::new().unwrap();
        // They differ in bytes that are no text.
        let logs = [&b"stock\xfe"[..], b"stock\xff"].map(|name| {
            let path = place.path().join(OsStr::from_bytes(name));
            std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
            let file = crate::File::options().write().open(&link, &path).wait().unwrap();
            let log = file.create_log(&crate::LogOptions::default()).wait().unwrap();
            log.append_durable(name).wait().unwrap();
            log
        });
        let all = link.metrics().wait().unwrap();
        let text = all.prometheus();
        is_well_formed(&text);
        assert_ne!(logs[0].name(), logs[1].name());
        for (log, figures) in logs.iter().zip(&all.logs) {
            let (name, bytes) = (log.name().replace('\\', "\\\\"), figures.usage.batch_bytes);
            for line in [
                format!("baio_log_appends_total{{log=\"{name}\"}} 1"),
                format!("baio_log_durable_lsn{{log=\"{name}\"}} {}", log.durable_lsn()),
                format!("baio_log_pending_bytes{{log=\"{name}\"}} 0"),
                format!("baio_log_failed{{log=\"{name}\"}} 0"),
                format!("baio_log_batch_size_bytes_bucket{{le=\"4096.0\",log=\"{name}\"}} 1"),
                format!("baio_log_batch_size_bytes_count{{log=\"{name}\"}} 1"),
                format!("baio_log_batch_size_bytes_sum{{log=\"{name}\"}} {bytes}.0"),
            ] {
                assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
            }
        }
    }

    #[test]
    fn requests_are_told_apart_and_their_times_add_up() {
        let place = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(place.path(), [0; 8192]).unwrap();
        let mut core = baio_storage::Core::new(&baio_engine::EngineOptions::default()).unwrap();
        let file = baio_engine::File::open(place.path(), &baio_engine::Open::write()).unwrap();
        let policy = baio_engine::Policy {
            caching: baio_engine::Caching::Kernel,
            ..baio_engine::Policy::default()
        };
        for _ in 0..3 {
            let buffer = core.buffer(4096).unwrap();
            let write = baio_engine::Request::write(&file, 0, buffer, policy);
            core.engine_mut().run(write).result.unwrap();
        }
        let text = Metrics::from(core.counters()).prometheus();
        is_well_formed(&text);
        for line in [
            r#"baio_requests_total{op="write",mode="kernel",outcome="ok"} 3"#,
            r#"baio_requests_total{op="write",mode="kernel",outcome="error"} 0"#,
            r#"baio_request_bytes_total{op="write",mode="kernel"} 12288"#,
            r#"baio_request_seconds_count{op="write",mode="kernel"} 3"#,
            r#"baio_request_seconds_bucket{le="+Inf",op="write",mode="kernel"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
