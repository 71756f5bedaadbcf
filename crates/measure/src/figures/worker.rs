//! Sides of a comparison that no command of ours has, each in a process of its own: `baio` starts itself as `baio worker JOB` and
//! reads the measurement that it prints. No help names that command, but whoever is shown it can run it.

use std::process::ExitCode;

use baio_stress::Measurement;
use baio_stress::costs::own_memory_max;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figures::command_line::{CommandLine, Finished, Measures};
use crate::figures::{job, runner};
use crate::latency::schedulers;
use crate::program;

pub(crate) mod appender;
pub(crate) mod bare;
pub(crate) mod pipelining;

/// Programs of their own, under `examples/`.
macro_rules! programs {
    ($($name:ident: $path:literal)*) => {
        $(
            #[allow(clippy::disallowed_methods, reason = "written as a program of its own, whose threads may hear its signals")]
            #[path = $path]
            #[allow(dead_code, reason = "its command line is run as a program")]
            pub(crate) mod $name;
        )*
    };
}

programs! {
    many_segments: "../../examples/many_segments.rs"
    one_queue: "../../examples/one_queue.rs"
    page_cleaners: "../../examples/page_cleaners/main.rs"
}

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    BufferedReads(bare::BufferedReads),
    PinnedHits(bare::PinnedHits),
    /// Transactions on a buffer pool, and who writes its pages.
    PageCleaners(page_cleaners::Job),
    /// Requests with processing behind each; it prints what that has cost too.
    Pipelining(pipelining::Job),
    /// Messages through a pipe beside reads of a disk.
    OneQueue(one_queue::Job),
    /// A volume of many segments, filled or used; it prints findings of its own.
    VolumeScale(many_segments::Job),
    /// Appends to a log until it is killed.
    Appender(appender::Appender),
    /// Runs another program, and tells what that has cost.
    Runner,
    /// Puts the I/O scheduler of a device back when its parent is gone.
    SchedulerGuard(schedulers::Guard),
}

/// The job of this process, if it is a worker.
pub(crate) fn job_of_self() -> Option<Result<Job, String>> {
    let job = job::of_self()?;
    Some(serde_json::from_str(&job).map_err(|error| format!("the job of a {}: {error}", job::COMMAND)))
}

/// All that a worker process does.
pub(crate) fn main(job: Result<Job, String>) -> ExitCode {
    program::tell(job.and_then(work))
}

/// Runs a job in this process: its measurement, or findings of its own.
fn work(job: Job) -> Result<Value, String> {
    let mut measurement = match job {
        Job::BufferedReads(job) => job.run()?,
        Job::PinnedHits(job) => job.run()?,
        Job::PageCleaners(job) => page_cleaners::run(&job)?,
        Job::OneQueue(job) => one_queue::run(&job)?,
        Job::Pipelining(job) => return serde_json::to_value(job.run()?).map_err(|error| error.to_string()),
        Job::VolumeScale(job) => return many_segments::run(&job),
        Job::Appender(job) => return job.run(),
        Job::Runner => return runner::run(),
        Job::SchedulerGuard(guard) => return guard.run(),
    };
    measurement.rss_bytes = own_memory_max();
    serde_json::to_value(&measurement).map_err(|error| error.to_string())
}

/// In a process of its own; the costs are the whole process's.
impl Measures for Job {
    fn line(&self) -> CommandLine {
        let json = serde_json::to_string(self).unwrap_or_default();
        CommandLine::own([job::COMMAND.to_owned(), json])
    }

    fn run(&self) -> Result<Measurement, String> {
        let finished = self.line().finish()?;
        if let Job::Pipelining(_) = self {
            return pipelining::measured(&finished);
        }
        let mut measurement: Measurement = parse(&finished)?;
        finished.charge(&mut measurement, None);
        Ok(measurement)
    }
}

/// Runs a job that prints findings of its own.
pub(crate) fn ask<T: DeserializeOwned>(job: &Job) -> Result<T, String> {
    parse(&job.line().finish()?)
}

fn parse<T: DeserializeOwned>(finished: &Finished) -> Result<T, String> {
    serde_json::from_str(finished.stdout.trim()).map_err(|error| format!("a worker's output: {error}"))
}
