//! Reads of what the kernel's cache holds, at random places of a small file: the price of a queue where nothing waits.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use baio_engine::{Caching, Choice, Open, Policy, Request, Wait};
use serde::{Deserialize, Serialize};

use super::queue::Queue;
use crate::figures::Measurement;
use crate::stress::pattern::Random;

const REQUEST: usize = 4096;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    pub(crate) reads: u64,
    /// So many submitted and awaited together by the engine; `None` is a loop of pread(2).
    pub(crate) batch: Option<u32>,
}

pub(super) fn run(job: &Job) -> Result<Measurement, String> {
    // Everything is in the cache from here on.
    let bytes = fs::read(&job.path).map_err(|error| format!("{}: {error}", job.path.display()))?;
    let places = Places {
        random: Random::new(u64::from(std::process::id())),
        blocks: (bytes.len() / REQUEST) as u64,
    };
    drop(bytes);
    if places.blocks == 0 {
        return Err("the file is too short".into());
    }
    let begun = Instant::now();
    let (errors, calls, backend) = match job.batch {
        None => (pread(job, places)?, job.reads, "pread"),
        Some(batch) => engine(job, batch.max(1), places)?,
    };
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Measurement {
        system_calls_per_request: Some(calls as f64 / job.reads as f64),
        in_flight_max: u64::from(job.batch.unwrap_or(1)),
        errors,
        backend: backend.into(),
        mode: "kernel".into(),
        ..Measurement::of(job.reads, REQUEST as u64, seconds)
    })
}

struct Places {
    random: Random,
    blocks: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        self.random.below(self.blocks) * REQUEST as u64
    }
}

fn pread(job: &Job, mut places: Places) -> Result<u64, String> {
    let file = fs::File::open(&job.path).map_err(|error| error.to_string())?;
    let mut buffer = vec![0; REQUEST];
    let mut errors = 0;
    for _ in 0..job.reads {
        let read = file.read_at(&mut buffer, places.next());
        errors += u64::from(!matches!(read, Ok(REQUEST)));
    }
    Ok(errors)
}

/// Returns failed requests, system calls, and the backend.
fn engine(job: &Job, batch: u32, mut places: Places) -> Result<(u64, u64, &'static str), String> {
    let opened = (Caching::Kernel, Open::read());
    let Queue {
        mut engine,
        file,
        mut memory,
    } = Queue::open(&job.path, Choice::Auto, opened, batch, REQUEST)?;
    let (mut left, mut errors) = (job.reads, 0);
    while left > 0 {
        let count = left.min(u64::from(batch)) as usize;
        for memory in memory.drain(..count) {
            let request = Request::read(&file, places.next(), memory, Policy::kernel());
            engine.submit(request).map_err(|_| "every slot is taken")?;
        }
        engine
            .turn(Wait::for_count(count as u32))
            .map_err(|error| error.to_string())?;
        while let Some(completion) = engine.next_completion() {
            errors += u64::from(completion.result != Ok(REQUEST as u32));
            memory.push(completion.memory);
            left -= 1;
        }
    }
    let stats = engine.stats();
    // A trial is one call, which the backend does not see.
    Ok((errors, stats.system_calls + stats.trials, engine.explain().backend))
}
