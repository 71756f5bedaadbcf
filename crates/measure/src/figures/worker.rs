//! Sides of a comparison that no command of ours has, each in a process of its own: `baio` starts itself with a job and
//! reads the measurement that it prints.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figures::child::{self, Finished};
use crate::figures::{Measurement, Recorder, quoted};
use crate::program::{self, joined};
use crate::stress::pattern::Random;

pub(crate) mod buffered_reads;
pub(crate) mod buffered_writes;
pub(crate) mod pinned_hits;
pub(crate) mod posted_writes;
mod queue;

/// Programs of their own, under `examples/`.
macro_rules! programs {
    ($($name:ident: $path:literal)*) => {
        $(
            #[path = $path]
            #[allow(dead_code, reason = "its command line is run as a program")]
            pub(crate) mod $name;
        )*
    };
}

programs! {
    many_segments: "../../examples/many_segments.rs"
    one_queue: "../../examples/one_queue.rs"
    own_policy: "../../examples/own_policy.rs"
    page_cleaners: "../../examples/page_cleaners/main.rs"
    request_traces: "../../examples/request_traces.rs"
}

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Random direct reads of a byte range by blocking threads: what people do without asynchronous I/O.
    Pread {
        path: PathBuf,
        offset: u64,
        len: u64,
        request_size: u64,
        threads: u32,
        runtime_ms: u64,
    },
    /// Direct writes posted one by one, each call timed.
    PostedWrites(posted_writes::Job),
    /// Writes through the kernel's cache, each submitting call timed.
    BufferedWrites(buffered_writes::Job),
    /// Reads of what the kernel's cache holds.
    BufferedReads(buffered_reads::Job),
    /// Pages of a buffer pool, all in memory.
    PinnedHits(pinned_hits::Job),
    /// A program that knows what it will read.
    OwnPolicy(own_policy::Job),
    /// Transactions on a buffer pool, and who writes its pages.
    PageCleaners(page_cleaners::Job),
    /// Messages through a pipe beside reads of a disk.
    OneQueue(one_queue::Job),
    /// A volume of many segments, filled or used; it prints findings of its own.
    VolumeScale(many_segments::Job),
}

/// The environment variable by which the program knows that it is a worker.
const JOB: &str = "BAIO_WORKER_JOB";

/// The job of this process, if it is a worker.
pub(crate) fn job_of_self() -> Option<Result<Job, String>> {
    let job = std::env::var(JOB).ok()?;
    Some(serde_json::from_str(&job).map_err(|error| format!("{JOB}: {error}")))
}

/// All that a worker process does.
pub(crate) fn main(job: Result<Job, String>) -> ExitCode {
    program::tell(job.and_then(work))
}

/// Runs a job in this process: its measurement, or findings of its own.
fn work(job: Job) -> Result<Value, String> {
    let mut measurement = match job {
        Job::Pread {
            path,
            offset,
            len,
            request_size,
            threads,
            runtime_ms,
        } => pread(&path, offset, len, request_size, threads, runtime_ms)?,
        Job::PostedWrites(job) => posted_writes::run(&job)?,
        Job::BufferedWrites(job) => buffered_writes::run(&job)?,
        Job::BufferedReads(job) => buffered_reads::run(&job)?,
        Job::PinnedHits(job) => pinned_hits::run(&job)?,
        Job::OwnPolicy(job) => own_policy::run(&job)?,
        Job::PageCleaners(job) => page_cleaners::run(&job)?,
        Job::OneQueue(job) => one_queue::run(&job)?,
        Job::VolumeScale(job) => return many_segments::run(&job),
    };
    measurement.rss_bytes = child::memory_max("self");
    serde_json::to_value(&measurement).map_err(|error| error.to_string())
}

/// The command that [`run`] gives, as a shell would be given it.
pub(crate) fn command_line(job: &Job) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "baio".into());
    let json = serde_json::to_string(job).unwrap_or_default();
    format!("{JOB}={} {}", quoted(&json), quoted(&program.to_string_lossy()))
}

/// Runs a job in a process of its own; its costs are the whole process's.
pub(crate) fn run(job: &Job) -> Result<Measurement, String> {
    let finished = finish(job)?;
    let mut measurement: Measurement = parse(&finished)?;
    let requests = measurement.requests.max(1) as f64;
    measurement.cpu_us_per_request = finished.cpu.as_secs_f64() * 1e6 / requests;
    measurement.context_switches_per_request = finished.context_switches as f64 / requests;
    Ok(measurement)
}

/// Runs a job that prints findings of its own.
pub(crate) fn ask<T: DeserializeOwned>(job: &Job) -> Result<T, String> {
    parse(&finish(job)?)
}

fn finish(job: &Job) -> Result<Finished, String> {
    let program = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    let json = serde_json::to_string(job).map_err(|error| error.to_string())?;
    let finished =
        child::run(Command::new(program).env(JOB, json)).map_err(|error| format!("start a worker: {error}"))?;
    if finished.success {
        Ok(finished)
    } else {
        Err(finished.stderr.trim().to_owned())
    }
}

fn parse<T: DeserializeOwned>(finished: &Finished) -> Result<T, String> {
    serde_json::from_str(finished.stdout.trim()).map_err(|error| format!("a worker's output: {error}"))
}

fn pread(path: &Path, offset: u64, len: u64, size: u64, threads: u32, runtime_ms: u64) -> Result<Measurement, String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .map_err(|error| format!("open {}: {error}", path.display()))?;
    let arena = baio_engine::Arena::new(threads as usize * size as usize).map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(runtime_ms);
    let read = |seed: u32| -> Result<(u64, Recorder), String> {
        let mut buffer = arena.buffer(size as usize).ok_or("no buffer")?;
        let mut random = Random::new(u64::from(seed) << 32 | u64::from(std::process::id()));
        let (mut requests, mut latency) = (0, Recorder::new());
        let mut now = Instant::now();
        while now < deadline {
            let at = offset + random.below(len / size) * size;
            file.read_exact_at(&mut buffer, at)
                .map_err(|error| format!("pread: {error}"))?;
            let after = Instant::now();
            latency.record(after - now);
            now = after;
            requests += 1;
        }
        Ok((requests, latency))
    };
    let results = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|seed| scope.spawn(move || read(seed))).collect();
        handles
            .into_iter()
            .map(|handle| joined(handle.join()))
            .collect::<Result<Vec<_>, String>>()
    })?;
    let elapsed = begun.elapsed();
    let mut latency = Recorder::new();
    results.iter().for_each(|(_, one)| latency.merge(one));
    let requests: u64 = results.iter().map(|(requests, _)| requests).sum();
    Ok(Measurement {
        latency_us: latency.latency(),
        system_calls_per_request: Some(1.0),
        in_flight_max: u64::from(threads),
        threads_max: Some(u64::from(threads) + 1),
        backend: "pread".into(),
        mode: "direct".into(),
        ..Measurement::of(requests, size, elapsed.as_secs_f64())
    })
}
