//! The lines that aio-stress 0.21 prints, word for word.
//!
//! All but two of them go to standard error, where the old program has them; so `--json` has standard output for itself.

use std::io::{self, Write};
use std::time::Duration;

use baio_console::exit_status::ExitStatus;
use baio_console::output::Answer;
use baio_console::printable::Printable;
use serde::Serialize;
use serde_json::Value;

use super::args::AioStressArgs;
use super::plan::stage_name;
use crate::Job;
use crate::measurement::Recorder;
use crate::result::{Cut, LaneReport, Section, StageReport};

/// What `aio-stress` has to say at its end.
#[derive(Serialize)]
pub(crate) struct Ended {
    #[serde(flatten)]
    pub(super) total: Section,
    pub(super) parts: Vec<Section>,
    /// Why it ended before its end: a signal, or what it was measured on is gone.
    pub(super) ended_early: Option<String>,
    #[serde(skip)]
    pub(super) cut: Option<Cut>,
    /// What ended it, or the first request that failed, as an error object.
    pub(super) first_error: Option<Value>,
    pub(super) threads: usize,
    /// The files that were unlinked.
    pub(super) unlinked: Vec<String>,
}

impl Answer for Ended {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        // The blanks at the end of two lines are the old program's.
        if self.threads > 1 {
            writeln!(out, "Running multi thread version num_threads:{}", self.threads)?;
        } else {
            writeln!(out, "Running single thread version ")?;
        }
        for file in &self.unlinked {
            writeln!(out, "Cleaning up file {file} ")?;
        }
        Ok(())
    }

    fn exit_status(&self) -> ExitStatus {
        if let Some(cut) = &self.cut {
            cut.exit_status()
        } else if self.total.measured.errors > 0 {
            ExitStatus::Failed
        } else {
            ExitStatus::Success
        }
    }
}

/// All that is printed after a stage.
pub(super) fn after_stage(args: &AioStressArgs, job: &Job, stage: &StageReport) -> Vec<String> {
    let name = stage_name(stage.rw);
    let mut lines = Vec::new();
    for (thread, lane) in stage.lanes.iter().enumerate() {
        if args.submit_latency {
            lines.extend(latency("latency", &[&lane.submits]));
        }
        if args.completion_latency {
            lines.extend(latency(
                "completion latency",
                &[&lane.reads.latency, &lane.writes.latency],
            ));
        }
        for stream in lane.streams.iter().filter(|stream| stream.requests > 0) {
            let megabytes = megabytes(stream.requests * job.request_size);
            let time = stream.ended.saturating_duration_since(stream.begun);
            let file = job.objects.name(stream.object);
            lines.push(format!("{name} on {} {}", Printable(&file), rate(megabytes, time)));
        }
        let megabytes = megabytes(lane.bytes(job.request_size));
        if megabytes > 0.0 {
            lines.push(format!(
                "thread {thread} {name} totals {}",
                rate(megabytes, with_sync(lane))
            ));
        }
    }
    if stage.lanes.len() > 1 {
        lines.extend(throughput(args, job, stage, name));
    }
    lines
}

fn throughput(args: &AioStressArgs, job: &Job, stage: &StageReport, name: &str) -> Option<String> {
    let each = || stage.lanes.iter().map(|lane| megabytes(lane.bytes(job.request_size)));
    let total: f64 = each().sum();
    let begun = stage.lanes.iter().map(|lane| lane.begun).min()?;
    let ended = stage.lanes.iter().map(|lane| lane.ended + lane.sync).max()?;
    let line = format!(
        "{name} throughput {}",
        rate(total, ended.saturating_duration_since(begun))
    );
    let least = each().fold(f64::INFINITY, f64::min);
    (total > 0.0).then(|| match args.no_stonewall {
        true => line,
        false => format!("{line} min transfer {least:.2}MB"),
    })
}

fn with_sync(lane: &LaneReport) -> Duration {
    lane.ended.saturating_duration_since(lane.begun) + lane.sync
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// `(41.00 MB/s) 8.00 MB in 0.20s`
fn rate(megabytes: f64, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-9);
    format!("({:.2} MB/s) {megabytes:.2} MB in {seconds:.2}s", megabytes / seconds)
}

/// Milliseconds below which latencies are counted.
const DEVIATIONS: [u32; 6] = [100, 250, 500, 1000, 5000, 10_000];

/// Least, mean and greatest latency in milliseconds, and how many lie between the bounds.
fn latency(what: &str, recorders: &[&Recorder]) -> [String; 2] {
    let mut all = Recorder::new();
    recorders.iter().for_each(|recorder| all.merge(recorder));
    let spread = all.latency();
    let ms = |us: Option<f64>| us.unwrap_or(0.0) / 1000.0;
    let first = format!(
        "{what} min {:.2} avg {:.2} max {:.2}",
        ms(all.least_us()),
        ms(spread.mean),
        ms(spread.max)
    );
    let mut second = "\t".to_owned();
    let mut counted = 0;
    for bound in DEVIATIONS {
        let below = all.count_below(Duration::from_millis(bound.into()));
        second.push_str(&format!(" {} < {bound}", below - counted));
        counted = below;
    }
    let beyond = all.count() - counted;
    if counted > 0 && beyond > 0 {
        second.push_str(&format!(" < {beyond}"));
    }
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_between_the_bounds() {
        let mut recorder = Recorder::new();
        for ms in [1, 20, 99, 150, 600, 4000, 20_000] {
            recorder.record(Duration::from_millis(ms));
        }
        let [first, second] = latency("completion latency", &[&recorder]);
        assert!(first.starts_with("completion latency min 1.00 avg 35"), "{first}");
        assert_eq!(second, "\t 3 < 100 1 < 250 0 < 500 1 < 1000 1 < 5000 0 < 10000 < 1");
    }

    #[test]
    fn without_any_latency_nothing_is_divided_by_nothing() {
        let [first, second] = latency("latency", &[&Recorder::new()]);
        assert_eq!(first, "latency min 0.00 avg 0.00 max 0.00");
        assert_eq!(second, "\t 0 < 100 0 < 250 0 < 500 0 < 1000 0 < 5000 0 < 10000");
    }

    #[test]
    fn a_rate_is_told_as_it_always_was() {
        assert_eq!(rate(8.0, Duration::from_millis(200)), "(40.00 MB/s) 8.00 MB in 0.20s");
    }
}
