//! Writes through the kernel's cache at random places, many in flight: how long does the submitting call take, and how many
//! threads carry them? The file system refuses to try such writes without blocking, so somebody has to block.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use baio_engine::{Caching, Memory, Open, Policy, Request, Wait};
use serde::{Deserialize, Serialize};

use super::queue::Queue;
use crate::figures::{Measurement, Recorder, child};
use crate::stress::pattern::Random;

/// How many completions there are between two looks at the number of threads.
const LOOK_EVERY: u64 = 64;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    /// By name.
    pub(crate) backend: String,
    /// Of the file from its beginning.
    pub(crate) len: u64,
    pub(crate) request_size: u64,
    pub(crate) depth: u32,
    pub(crate) runtime_ms: u64,
}

pub(super) fn run(job: &Job) -> Result<Measurement, String> {
    let size = job.request_size as usize;
    let opened = (Caching::Kernel, Open::write());
    let queue = Queue::open(&job.path, job.backend.parse()?, opened, job.depth, size)?;
    let (mut engine, file) = (queue.engine, queue.file);
    let mut memory: Vec<(usize, Memory)> = queue.memory.into_iter().enumerate().collect();
    let mut random = Random::new(u64::from(std::process::id()));
    let blocks = (job.len / job.request_size).max(1);
    let (mut submit, mut latency) = (Recorder::new(), Recorder::new());
    let (mut requests, mut errors, mut threads_max) = (0, 0, 0);
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(job.runtime_ms);
    let mut posted = vec![begun; job.depth as usize];
    loop {
        while Instant::now() < deadline
            && let Some((index, memory)) = memory.pop()
        {
            let offset = random.below(blocks) * job.request_size;
            let request = Request::write(&file, offset, memory, Policy::kernel()).tagged(index as u64);
            posted[index] = Instant::now();
            engine.submit(request).map_err(|_| "every slot is taken")?;
            engine.turn(Wait::No).map_err(|error| error.to_string())?;
            submit.record(posted[index].elapsed());
        }
        if engine.in_flight() == 0 && engine.completed() == 0 {
            break;
        }
        engine.turn(Wait::one()).map_err(|error| error.to_string())?;
        let now = Instant::now();
        while let Some(completion) = engine.next_completion() {
            let index = completion.tag as usize;
            latency.record(now - posted[index]);
            errors += u64::from(completion.result != Ok(size as u32));
            memory.push((index, completion.memory));
            if requests % LOOK_EVERY == 0 {
                threads_max = threads_max.max(child::status_of("self", "Threads"));
            }
            requests += 1;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let stats = engine.stats();
    Ok(Measurement {
        latency_us: latency.latency(),
        submit_latency_us: Some(submit.latency()),
        system_calls_per_request: Some(stats.system_calls as f64 / requests.max(1) as f64),
        in_flight_max: stats.in_flight_max,
        threads_max: Some(threads_max),
        errors,
        backend: engine.explain().backend.into(),
        mode: "kernel".into(),
        ..Measurement::of(requests, job.request_size, seconds)
    })
}
