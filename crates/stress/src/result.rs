//! What came out of a run, and the one shape in which it is shown.

use std::path::Path;
use std::time::{Duration, Instant};

use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::interrupt::Interrupt;
use serde::Serialize;

use crate::cache_counts::CacheCounts;
use crate::costs::{Costs, status_of};
use crate::job::{Job, Rw};
use crate::measurement::{Measurement, Recorder};

/// The requests of one direction.
#[derive(Default)]
pub(crate) struct Tally {
    /// Completed, the failed ones among them.
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) latency: Recorder,
}

/// One lane in one stage.
pub(crate) struct LaneReport {
    /// Which.
    pub(crate) lane: usize,
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    /// One entry a submission.
    pub(crate) submits: Recorder,
    pub(crate) begun: Instant,
    /// The last completion.
    pub(crate) ended: Instant,
    /// How long the syncs after it took.
    pub(crate) sync: Duration,
    pub(crate) in_flight_max: u64,
    pub(crate) system_calls: u64,
    pub(crate) iterations: u64,
    /// What our own cache has done meanwhile, where requests went through it.
    pub(crate) cache: Option<CacheCounts>,
    /// Blocks whose stamp was found right.
    pub(crate) verified: u64,
    /// Blocks read of which nothing was known.
    pub(crate) unverified: u64,
    pub(crate) sync_errors: u64,
    pub(crate) first_error: Option<Failure>,
    /// What ended the whole run; what was measured until then counts.
    pub(crate) cut: Option<Failure>,
    /// The same, but nothing counts.
    pub(crate) fatal: Option<Failure>,
    pub(crate) backend: &'static str,
}

impl LaneReport {
    /// Of nothing yet.
    pub(super) fn new(index: usize, backend: &'static str) -> LaneReport {
        let begun = Instant::now();
        LaneReport {
            lane: index,
            reads: Tally::default(),
            writes: Tally::default(),
            submits: Recorder::new(),
            begun,
            ended: begun,
            sync: Duration::ZERO,
            in_flight_max: 0,
            system_calls: 0,
            iterations: 0,
            cache: None,
            verified: 0,
            unverified: 0,
            sync_errors: 0,
            first_error: None,
            cut: None,
            fatal: None,
            backend,
        }
    }
}

/// All lanes in one stage.
pub(crate) struct StageReport {
    pub(crate) rw: Rw,
    pub(crate) lanes: Vec<LaneReport>,
    /// Of the whole process, the syncs among them.
    pub(crate) costs: Costs,
    pub(crate) threads: u64,
    pub(crate) rss_bytes: Option<u64>,
}

impl StageReport {
    /// From the first lane's beginning to the last completion.
    pub(crate) fn elapsed(&self) -> Duration {
        let begun = self.lanes.iter().map(|lane| lane.begun).min();
        let ended = self.lanes.iter().map(|lane| lane.ended).max();
        match (begun, ended) {
            (Some(begun), Some(ended)) => ended.saturating_duration_since(begun),
            _ => Duration::ZERO,
        }
    }

    fn sync(&self) -> Duration {
        self.lanes.iter().map(|lane| lane.sync).max().unwrap_or_default()
    }
}

/// A whole run.
pub(crate) struct Report {
    pub(crate) stages: Vec<StageReport>,
    /// Of all lanes.
    pub(crate) backend: String,
    /// Why it ended before its end, if it did.
    pub(crate) cut: Option<Cut>,
}

/// What ends a run early. What was measured until then counts.
#[derive(Clone, Debug)]
pub(crate) enum Cut {
    /// A signal.
    Interrupt(Interrupt),
    /// The engine or the broker takes nothing any more.
    Failure(Failure),
}

impl Cut {
    /// In a word or two.
    pub(crate) fn said(&self) -> String {
        match self {
            Cut::Interrupt(interrupt) => interrupt.to_string(),
            Cut::Failure(failure) => failure.said().to_owned(),
        }
    }

    pub(crate) fn exit_status(&self) -> ExitStatus {
        match self {
            Cut::Interrupt(interrupt) => interrupt.exit_status(),
            Cut::Failure(failure) => failure.exit_status(),
        }
    }

    /// While a file was being filled: there is nothing to tell but that it is as it was.
    pub(crate) fn while_filling(self, command: &'static str, path: &Path) -> Failure {
        match self {
            Cut::Interrupt(interrupt) => interrupt
                .failure(
                    command,
                    "while the file was being filled: what was written is gone again",
                )
                .on(path.display().to_string())
                .needing("a file that is written to its end")
                .cured_by("begin again, or choose a smaller --size"),
            Cut::Failure(failure) => failure,
        }
    }
}

/// A measured section: the whole run, a stage, or one direction of a stage.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) part: String,
    /// From the first submission to the last completion; the syncs between stages are not in it.
    pub(crate) seconds: f64,
    /// What the syncs took.
    pub(crate) sync_seconds: f64,
    /// As `bytes_per_second`, but by `seconds` and `sync_seconds` together: what fio counts with `--end_fsync=1`.
    pub(crate) synced_bytes_per_second: f64,
    /// Blocks whose stamp was found right.
    pub(crate) verified: u64,
    /// Blocks read of which nothing was known.
    pub(crate) unverified: u64,
    /// What our own cache has done, where requests went through it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<CacheCounts>,
    #[serde(flatten)]
    pub(crate) measured: Measurement,
}

/// Which requests of a stage are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Both,
    Reads,
    Writes,
}

impl Direction {
    fn of(self, lane: &LaneReport) -> impl Iterator<Item = &Tally> {
        let reads = (self != Direction::Writes).then_some(&lane.reads);
        let writes = (self != Direction::Reads).then_some(&lane.writes);
        reads.into_iter().chain(writes)
    }
}

impl Report {
    /// What ended it, or else the first request that failed.
    pub(crate) fn first_error(&self) -> Option<&Failure> {
        if let Some(Cut::Failure(failure)) = &self.cut {
            return Some(failure);
        }
        let lanes = self.stages.iter().flat_map(|stage| &stage.lanes);
        lanes.filter_map(|lane| lane.first_error.as_ref()).next()
    }

    /// Everything in one.
    pub(crate) fn total(&self, job: &Job) -> Section {
        let stages: Vec<&StageReport> = self.stages.iter().collect();
        section("all", &stages, Direction::Both, job, &self.backend)
    }

    /// One for each stage; of a stage that reads and writes, one for each direction.
    pub(crate) fn parts(&self, job: &Job) -> Vec<Section> {
        let several = self.stages.len() > 1;
        let of_stage = |stage: &StageReport| -> Vec<Section> {
            let name = stage.rw.name();
            let part = |part: &str, direction| section(part, &[stage], direction, job, &self.backend);
            match (stage.rw, several) {
                (Rw::RandomMixed, false) => vec![part("read", Direction::Reads), part("write", Direction::Writes)],
                (Rw::RandomMixed, true) => vec![
                    part("randrw read", Direction::Reads),
                    part("randrw write", Direction::Writes),
                ],
                _ => vec![part(name, Direction::Both)],
            }
        };
        self.stages.iter().flat_map(of_stage).collect()
    }
}

fn section(part: &str, stages: &[&StageReport], direction: Direction, job: &Job, backend: &str) -> Section {
    let lanes = || stages.iter().flat_map(|stage| &stage.lanes);
    let sum = |of: &dyn Fn(&LaneReport) -> u64| lanes().map(of).sum::<u64>();
    let (mut latency, mut submits) = (Recorder::new(), Recorder::new());
    for lane in lanes() {
        submits.merge(&lane.submits);
        direction.of(lane).for_each(|tally| latency.merge(&tally.latency));
    }
    let requests = sum(&|lane| direction.of(lane).map(|tally| tally.requests).sum());
    let failed = sum(&|lane| direction.of(lane).map(|tally| tally.errors).sum());
    // What cannot be told apart by direction is told of all requests of the section.
    let all = sum(&|lane| lane.reads.requests + lane.writes.requests).max(1) as f64;
    let seconds = seconds_of(stages.iter().map(|stage| stage.elapsed()));
    let sync_seconds = seconds_of(stages.iter().map(|stage| stage.sync()));
    let rate_over = |count: u64, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let rate = |count: u64| rate_over(count, seconds);
    let costs = |of: &dyn Fn(&Costs) -> f64| stages.iter().fold(0.0, |sum, stage| sum + of(&stage.costs)) / all;
    let most = |of: &dyn Fn(&StageReport) -> u64| stages.iter().map(|stage| of(stage)).max().unwrap_or(0);
    Section {
        part: part.to_owned(),
        seconds,
        sync_seconds,
        synced_bytes_per_second: rate_over((requests - failed) * job.request_size, seconds + sync_seconds),
        verified: sum(&|lane| lane.verified),
        unverified: sum(&|lane| lane.unverified),
        cache: lanes()
            .filter_map(|lane| lane.cache)
            .reduce(CacheCounts::and)
            .map(|counts| counts.per_request(all)),
        measured: Measurement {
            iops: rate(requests - failed),
            bytes_per_second: rate((requests - failed) * job.request_size),
            latency_us: latency.latency(),
            submit_latency_us: (!job.one_turn).then(|| submits.latency()),
            cpu_us_per_request: costs(&|costs| costs.cpu.as_secs_f64() * 1e6),
            context_switches_per_request: costs(&|costs| costs.context_switches as f64),
            system_calls_per_request: Some(sum(&|lane| lane.system_calls) as f64 / all),
            in_flight_max: most(&|stage| stage.lanes.iter().map(|lane| lane.in_flight_max).sum()),
            threads_max: Some(most(&|stage| stage.threads)),
            rss_bytes: stages.iter().filter_map(|stage| stage.rss_bytes).max(),
            requests,
            errors: failed + sum(&|lane| lane.sync_errors),
            iterations_per_request: Some(sum(&|lane| lane.iterations) as f64 / all),
            backend: backend.to_owned(),
            mode: job.mode.name().to_owned(),
            // A section tells of its cache and its syncs itself.
            ..Measurement::default()
        },
    }
}

/// All of them together. (The sum of no floating-point numbers is -0.0.)
fn seconds_of(times: impl Iterator<Item = Duration>) -> f64 {
    times.sum::<Duration>().as_secs_f64()
}

/// The threads of this process now, the kernel's workers among them.
pub(super) fn threads_now() -> u64 {
    status_of("self", "Threads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_shown_without_a_sign() {
        assert_eq!(format!("{:.2}", seconds_of([].into_iter())), "0.00");
        let two = [Duration::from_millis(1500), Duration::from_millis(250)];
        assert_eq!(seconds_of(two.into_iter()), 1.75);
    }
}
