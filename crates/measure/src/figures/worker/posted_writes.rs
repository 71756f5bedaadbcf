//! Many direct writes posted one after the other, each by a call of its own, and each call timed: does posting block?
//!
//! Seed 003 posts a thousand with libaio and finds that "the enqueueing of writes seems to block every now and then although
//! the size of AIO queue was large enough to hold all the requests".

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use baio_engine::{Caching, Open, Policy, Request, Wait};
use serde::{Deserialize, Serialize};

use super::queue::Queue;
use crate::figures::{Measurement, Recorder, child};

const REQUEST: usize = 4096;

/// The round is over when all have ended; then the next begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Overwritten from its beginning on.
    pub(crate) path: PathBuf,
    /// By name.
    pub(crate) backend: String,
    pub(crate) writes: u32,
    pub(crate) rounds: u32,
}

pub(super) fn run(job: &Job) -> Result<Measurement, String> {
    let opened = (Caching::Direct, Open::write());
    let queue = Queue::open(&job.path, job.backend.parse()?, opened, job.writes, REQUEST)?;
    let (mut engine, file) = (queue.engine, queue.file);
    let mut memory = VecDeque::from(queue.memory);
    let mut posted = vec![Instant::now(); job.writes as usize];
    let (mut submit, mut latency) = (Recorder::new(), Recorder::new());
    let (mut errors, mut threads_max) = (0, 0);
    let begun = Instant::now();
    let before = (child::own_costs(), engine.stats());
    for _ in 0..job.rounds {
        for (index, at) in posted.iter_mut().enumerate() {
            let memory = memory.pop_front().ok_or("a buffer did not come back")?;
            let offset = (index * REQUEST) as u64;
            let request = Request::write(&file, offset, memory, Policy::direct()).tagged(index as u64);
            *at = Instant::now();
            engine.submit(request).map_err(|_| "every slot is taken")?;
            engine.turn(Wait::No).map_err(|error| error.to_string())?;
            submit.record(at.elapsed());
        }
        while memory.len() < job.writes as usize {
            engine.turn(Wait::one()).map_err(|error| error.to_string())?;
            let now = Instant::now();
            while let Some(completion) = engine.next_completion() {
                latency.record(now - posted[completion.tag as usize]);
                errors += u64::from(completion.result != Ok(REQUEST as u32));
                memory.push_back(completion.memory);
            }
        }
        threads_max = threads_max.max(child::status_of("self", "Threads"));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let costs = child::own_costs() - before.0;
    let stats = engine.stats();
    let requests = u64::from(job.writes) * u64::from(job.rounds);
    let per = |count: f64| count / requests as f64;
    Ok(Measurement {
        latency_us: latency.latency(),
        submit_latency_us: Some(submit.latency()),
        cpu_us_per_request: per(costs.cpu.as_secs_f64() * 1e6),
        context_switches_per_request: per(costs.context_switches as f64),
        system_calls_per_request: Some(per((stats.system_calls - before.1.system_calls) as f64)),
        in_flight_max: stats.in_flight_max,
        threads_max: Some(threads_max),
        errors,
        iterations_per_request: Some(per((stats.iterations - before.1.iterations) as f64)),
        backend: engine.explain().backend.into(),
        mode: "direct".into(),
        ..Measurement::of(requests, REQUEST as u64, seconds)
    })
}
