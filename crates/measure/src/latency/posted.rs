//! Seed 003's test: writes of one small block, direct, posted as fast as possible into a queue that holds all of them. Each is stamped
//! before it is enqueued and when it is known complete, and the two times are matched by the request's tag.
//!
//! The document stamps completions in a thread of its own, in the order in which they come. Here one thread does both: each
//! posting call also learns of what has completed meanwhile, and when all are posted the thread sleeps until more have. What one call
//! learns of is a *batch*.
//!
//! The document's text says that the data are written "in a linear manner"; its code writes the same block again and again. Linear is
//! the default here, the other is `--same-block`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use baio_console::failure::Failure;
use baio_console::interrupt::{self, Interrupt};
use baio_console::named::{NamedSegment, Volume};
use baio_console::output::wrapped;
use baio_console::size::format_size;
use baio_console::target::{Target, TypedTarget};
use baio_engine::{Durability, Wait};
use baio_stress::{Ground, Latency, Manner, Recorder, Subject, Wish};
use serde::Serialize;
use serde_json::Value;

use super::args::LatencyArgs;
use super::below::{self, Below};
use super::schedulers::Schedulers;
use super::sheet::Sheet;
use super::show::{self, Bucket};
use super::{COMMAND, SIZE_DEFAULT};

/// What came out.
#[derive(Serialize)]
pub(crate) struct Told {
    target: String,
    writes: u32,
    request_size: u64,
    same_block: bool,
    mode: &'static str,
    durability: &'static str,
    durability_because: &'static str,
    backend: &'static str,
    below: Below,
    /// One, or one with each scheduler.
    runs: Vec<Run>,
    pub(super) errors: u64,
    /// The signal that ended it before all were posted.
    pub(super) ended_early: Option<Interrupt>,
    first_error: Option<Value>,
    files: Written,
}

/// The files that were written.
#[derive(Default, Serialize)]
struct Written {
    csv: Option<String>,
}

/// All writes once.
#[derive(Serialize)]
struct Run {
    scheduler: Option<String>,
    /// Writes that were posted.
    posted: usize,
    /// From the first stamp to the last.
    seconds: f64,
    /// The part of it in which writes were posted.
    post_seconds: f64,
    /// From the stamp before the enqueuing call to the one at which the completion was known.
    latency_us: Latency,
    /// Time in the enqueuing call.
    enqueue_us: Latency,
    /// Calls that have learnt of completions.
    batches: u64,
    batch_size_mean: f64,
    batch_size_max: u32,
    /// Of the write of each batch that was enqueued first.
    first_of_batch_latency_us: Latency,
    histogram: Vec<Bucket>,
    errors: u64,
    #[serde(skip)]
    times: Vec<Times>,
}

/// What is known of one write; the times are since the first one's enqueuing.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    offset: u64,
    enqueued: Duration,
    /// When the enqueuing call had returned.
    posted: Duration,
    known: Duration,
    /// The call that has learnt of it, counted from 0.
    batch: u32,
    failed: bool,
}

impl Times {
    fn latency(&self) -> Duration {
        self.known.saturating_sub(self.enqueued)
    }
}

/// The file, device or volume that is written to.
fn path_of(target: &TypedTarget) -> Result<PathBuf, Failure> {
    Ok(match target.meant(COMMAND)? {
        Target::File(path) | Target::Served(path) => path,
        Target::Segment(NamedSegment {
            volume: Volume::Here(path) | Volume::Served(path),
            ..
        }) => path,
    })
}

pub(super) fn run(args: &LatencyArgs, writes: u32) -> Result<Told, Failure> {
    // Before a file is made for writes whose times cannot be kept.
    let sheet = match &args.csv {
        Some(path) => Some(Sheet::open("--csv", path, &path_of(&args.target)?)?),
        None => None,
    };
    let ground = Ground::prepare(&Wish {
        command: COMMAND,
        target: &args.target,
        force: args.force,
        request_size: args.request_size.map(|size| size.bytes()),
        requests: if args.same_block { 1 } else { writes.into() },
        bytes_min: 0,
        size: args.size.map(|size| size.bytes()),
        size_default: SIZE_DEFAULT,
    })?;
    let below = Below::look(&ground);
    let (durability, durability_because) = match below.durability(&ground) {
        (Durability::None, _) if args.durable => (Durability::Data, "it was asked for"),
        known => known,
    };
    let manner = Manner {
        backend: args.backend,
        durability,
        depth: writes,
    };
    let (mut backend, mut first_error, mut runs) = ("", None, Vec::new());
    let mut once = |scheduler: Option<String>| -> Result<(), Failure> {
        if interrupt::came().is_some() {
            return Ok(());
        }
        let (run, by, failure) = all_writes(&ground, manner, args.same_block, scheduler)?;
        backend = by;
        first_error = first_error.take().or(failure);
        runs.push(run);
        Ok(())
    };
    if args.schedulers {
        let schedulers = Schedulers::take(&args.target.to_string(), &below)?;
        schedulers.each(|name| once(Some(name.to_owned())))?;
    } else {
        once(below.scheduler.clone())?;
    }
    let mut told = Told {
        target: args.target.to_string(),
        writes,
        request_size: ground.request_size,
        same_block: args.same_block,
        mode: ground.mode(),
        durability: below::name(durability),
        durability_because,
        backend,
        below,
        errors: runs.iter().map(|run| run.errors).sum(),
        ended_early: interrupt::came(),
        runs,
        first_error: first_error.map(|failure| {
            failure.tell();
            failure.to_json()["error"].take()
        }),
        files: Written::default(),
    };
    told.files.csv = sheet.map(|sheet| sheet.write(&told.csv())).transpose()?;
    Ok(told)
}

/// Opens the target, posts all writes or those until a signal comes, waits for them, and closes it. Also the backend, and the first write that failed.
fn all_writes(
    ground: &Ground,
    manner: Manner,
    same_block: bool,
    scheduler: Option<String>,
) -> Result<(Run, &'static str, Option<Failure>), Failure> {
    let mut subject = ground.open(manner)?;
    let backend = subject.backend();
    let step = if same_block { 0 } else { ground.request_size };
    let times = (0..u64::from(manner.depth)).map(|index| Times {
        offset: index * step,
        ..Times::default()
    });
    let mut posting = Posting {
        begun: Instant::now(),
        times: times.collect(),
        left: manner.depth,
        batches: 0,
        failure: None,
    };
    let ended = posting.run(&mut subject);
    let closed = subject.close();
    ended?;
    closed?;
    Ok((Run::of(posting.times, scheduler), backend, posting.failure))
}

struct Posting {
    begun: Instant,
    times: Vec<Times>,
    /// Not known complete.
    left: u32,
    batches: u32,
    failure: Option<Failure>,
}

impl Posting {
    fn run(&mut self, subject: &mut Subject) -> Result<(), Failure> {
        self.begun = Instant::now();
        for index in 0..self.times.len() {
            if interrupt::came().is_some() {
                self.left -= (self.times.len() - index) as u32;
                self.times.truncate(index);
                break;
            }
            let Some(memory) = subject.buffer() else {
                return Err(Failure::new(COMMAND, "ENOMEM", "there is no buffer for each write"));
            };
            self.times[index].enqueued = self.begun.elapsed();
            let started = subject.start(self.times[index].offset, memory, index as u64);
            if started.is_err() {
                return Err(Failure::new(COMMAND, "EAGAIN", "the queue does not hold all writes"));
            }
            subject.turn(Wait::No)?;
            let now = self.begun.elapsed();
            self.times[index].posted = now;
            self.learn(subject, now);
        }
        while self.left > 0 {
            subject.turn(Wait::one())?;
            self.learn(subject, self.begun.elapsed());
        }
        Ok(())
    }

    /// Stamps what the last call has learnt of. Buffers are kept back: each write has its own.
    fn learn(&mut self, subject: &mut Subject, now: Duration) {
        let before = self.left;
        while let Some(reply) = subject.next_reply() {
            let times = &mut self.times[reply.tag as usize];
            times.known = now;
            times.batch = self.batches;
            self.left -= 1;
            if let Some(failure) = subject.failure_of(times.offset, reply.result) {
                times.failed = true;
                self.failure.get_or_insert(failure);
            }
        }
        self.batches += u32::from(self.left < before);
    }
}

impl Run {
    fn of(times: Vec<Times>, scheduler: Option<String>) -> Run {
        let succeeded = || times.iter().filter(|times| !times.failed);
        let recorded = |durations: &mut dyn Iterator<Item = Duration>| {
            let mut recorder = Recorder::new();
            durations.for_each(|duration| recorder.record(duration));
            recorder
        };
        let batches = times.iter().map(|times| times.batch + 1).max().unwrap_or(0);
        let mut sizes = vec![0_u32; batches as usize];
        // Writes are in the order of their enqueuing: the first that a batch has is its first.
        let mut firsts = vec![None; batches as usize];
        for times in &times {
            sizes[times.batch as usize] += 1;
            firsts[times.batch as usize].get_or_insert(times.latency());
        }
        let latency = recorded(&mut succeeded().map(Times::latency));
        let seconds = |at: Option<Duration>| at.unwrap_or_default().as_secs_f64();
        Run {
            scheduler,
            posted: times.len(),
            seconds: seconds(times.iter().map(|times| times.known).max()),
            post_seconds: seconds(times.iter().map(|times| times.posted).max()),
            latency_us: latency.latency(),
            enqueue_us: recorded(&mut times.iter().map(|times| times.posted - times.enqueued)).latency(),
            batches: batches.into(),
            batch_size_mean: times.len() as f64 / f64::from(batches.max(1)),
            batch_size_max: sizes.into_iter().max().unwrap_or(0),
            first_of_batch_latency_us: recorded(&mut firsts.into_iter().flatten()).latency(),
            histogram: show::histogram(&latency),
            errors: times.iter().filter(|times| times.failed).count() as u64,
            times,
        }
    }
}

impl Told {
    /// `f: 1000 writes of 512 B, linear, direct, uring (vda, scheduler none, cache write back)`.
    fn headline(&self) -> String {
        format!(
            "{}: {} writes of {}, {}, {}, {} ({})",
            self.target,
            self.writes,
            format_size(self.request_size),
            if self.same_block { "the same block" } else { "linear" },
            super::mode(self.mode),
            self.backend,
            self.below.sentence(),
        )
    }

    /// A line a write: both times, in microseconds since the first write of its run was enqueued.
    fn csv(&self) -> String {
        let mut text = "scheduler,write,offset,enqueued_us,posted_us,known_us,latency_us,batch,failed\n".to_owned();
        for run in &self.runs {
            let scheduler = run.scheduler.as_deref().unwrap_or("");
            for (index, times) in run.times.iter().enumerate() {
                let us = |time: Duration| time.as_nanos() as f64 / 1000.0;
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{scheduler},{index},{},{:.3},{:.3},{:.3},{:.3},{},{}",
                    times.offset,
                    us(times.enqueued),
                    us(times.posted),
                    us(times.known),
                    us(times.latency()),
                    times.batch,
                    u8::from(times.failed),
                );
            }
        }
        text
    }

    /// What each write has made safe, and why that was asked for.
    fn durability_sentence(&self) -> String {
        match self.durability {
            "none" => format!("no flag of durability: {}", self.durability_because),
            level => format!("each {level}-durable: {}", self.durability_because),
        }
    }
}

impl Run {
    /// What a run has to say: a name and a value each.
    fn lines(&self) -> [(&'static str, String); 4] {
        [
            ("latency", show::points(&self.latency_us)),
            ("enqueuing call", show::points(&self.enqueue_us)),
            ("first of a batch", show::points(&self.first_of_batch_latency_us)),
            (
                "batches",
                format!(
                    "{} of {:.1} on average, {} at most; {} until all were posted, {} until all were complete",
                    self.batches,
                    self.batch_size_mean,
                    self.batch_size_max,
                    show::shown(self.post_seconds * 1e6),
                    show::shown(self.seconds * 1e6),
                ),
            ),
        ]
    }
}

impl Told {
    pub(super) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", wrapped(&self.headline()))?;
        writeln!(out, "{}", wrapped(&self.durability_sentence()))?;
        for run in &self.runs {
            if let (Some(scheduler), true) = (&run.scheduler, self.runs.len() > 1) {
                writeln!(out, "scheduler {scheduler}")?;
            }
            if run.posted < self.writes as usize {
                writeln!(out, "{} of {} writes were posted", run.posted, self.writes)?;
            }
            for (name, said) in run.lines() {
                writeln!(out, "{}", wrapped(&format!("{name}: {said}")))?;
            }
            show::write_histogram(&run.histogram, out)?;
        }
        if self.errors > 0 {
            writeln!(out, "{} writes failed", self.errors)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_batch_is_the_one_enqueued_first() {
        let us = Duration::from_micros;
        let write = |enqueued, known, batch| Times {
            enqueued: us(enqueued),
            posted: us(enqueued + 1),
            known: us(known),
            batch,
            ..Times::default()
        };
        let run = Run::of(
            vec![write(0, 100, 0), write(1, 200, 1), write(2, 100, 0), write(3, 200, 1)],
            None,
        );
        assert_eq!((run.batches, run.batch_size_max), (2, 2));
        let first = run.first_of_batch_latency_us;
        assert!(first.max.unwrap() > 195.0 && first.mean.unwrap() > 145.0, "{first:?}");
        assert_eq!(run.seconds, 0.0002);
        assert_eq!(run.errors, 0);
    }
}
