//! Requests with processing behind each, as seed 004 §7 has them: while one is processed, the next ones are at the disk. By a core
//! of ours that is one thread with so many requests ahead; by threads that each block in a call and then process (KAIO in seed 004).
//!
//! The processing is a fixed number of turns of a loop. What it has cost is read on each thread's own clock and taken off the
//! processor time: what is left is the price of the requests. What it takes to stand ready, before the first of them, is told beside:
//! a cache's memory is made present once, whoever comes.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baio_engine::{Arena, Create, Descriptions, Durability, EngineOptions, Memory, Open, Wait};
use baio_storage::cache::window::Pattern;
use baio_storage::cache::{CacheOptions, CacheStats};
use baio_storage::{Core, Handle, Mode, SegmentOp, SegmentRequest};
use baio_stress::{CacheCounts, Measurement, Recorder, mix};
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

use crate::figures::command_line::Finished;
use crate::program::{joined, started};

/// Bytes of a request, as in the document.
pub(crate) const SIZE: u64 = 8 << 10;

/// Of the cache.
const PAGE: u64 = 4 << 10;

/// What every side does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    /// The working set: the file's first bytes.
    pub(crate) bytes: u64,
    pub(crate) write: bool,
    pub(crate) sequential: bool,
    /// Through a cache, or direct?
    pub(crate) cached: bool,
    /// Turns of the processing of each request.
    pub(crate) turns: u64,
    /// The end comes with the time or with so many requests, whichever is first.
    pub(crate) runtime_ms: u64,
    pub(crate) requests: u64,
    pub(crate) who: Who,
}

/// Who does it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Who {
    /// One thread on a core of ours, with so many requests beside the one that it processes.
    Stages(u32),
    /// The same on the cache's own pages, which nobody copies.
    Pinned(u32),
    /// So many threads, each in blocking calls.
    Threads(u32),
}

/// What a run prints.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ran {
    measurement: Measurement,
    /// Processor time of the processing itself.
    processing_seconds: f64,
    /// The same of all that came before the first request.
    start_seconds: f64,
}

type Told<T> = Result<T, Box<dyn std::error::Error>>;

/// What one thread has done.
#[derive(Default)]
struct Done {
    requests: u64,
    errors: u64,
    processing: Duration,
}

/// Which requests there are, in the order in which they begin.
struct Places<'a> {
    job: &'a Job,
    begun: AtomicU64,
    deadline: Instant,
    /// Processor time of the process when the first was about to begin.
    start: Duration,
}

impl Places<'_> {
    /// Where the next request is; `None` when there is none any more. The first is made however late it is: a side that had no
    /// processor until its time was over has figures too.
    fn next(&self) -> Option<u64> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        if number > 0 && Instant::now() >= self.deadline {
            return None;
        }
        let blocks = self.job.bytes / SIZE;
        let block = if self.job.sequential { number } else { mix(number + 1) };
        (number < self.job.requests).then(|| block % blocks * SIZE)
    }
}

/// So many requests of a pipeline are processed without a turn between: the next turn hands over as many by one call.
fn together(stages: u32) -> u32 {
    (stages / 2).max(1)
}

/// Pages that go on where the last ones end are one read with them.
fn join(wanted: &mut Vec<Range<u64>>, pages: &Range<u64>) {
    match wanted.last_mut() {
        Some(last) if last.end == pages.start => last.end = pages.end,
        _ => wanted.push(pages.clone()),
    }
}

/// The processing of what has been read, or is about to be written: all of it is looked at.
fn process(bytes: &[u8], turns: u64) {
    let words = bytes.as_chunks::<8>().0.iter();
    let sum = words.fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let sum = (0..turns).fold(sum, |sum, turn| mix(sum ^ turn));
    std::hint::black_box(sum);
}

/// Turns of the processing that take a microsecond here.
pub(crate) fn turns_a_microsecond() -> f64 {
    const TURNS: u64 = 1_000_000;
    let took = || {
        let begun = Instant::now();
        process(&[1], std::hint::black_box(TURNS));
        begun.elapsed()
    };
    // Whatever disturbed the others was not the processing.
    let least = (0..5).map(|_| took()).min().unwrap_or_default();
    TURNS as f64 / (least.as_secs_f64() * 1e6).max(1.0)
}

impl Done {
    fn process(&mut self, bytes: &[u8], turns: u64) {
        if turns > 0 {
            self.time(|| process(bytes, turns));
        }
    }

    /// Counts what is done there as processing.
    fn time<T>(&mut self, processing: impl FnOnce() -> T) -> T {
        let before = thread_time();
        let done = processing();
        self.processing += thread_time().saturating_sub(before);
        done
    }

    fn add(&mut self, other: &Done) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.processing += other.processing;
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    processor_time(ClockId::ThreadCPUTime)
}

fn processor_time(of: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(of);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Job {
    pub(super) fn run(&self) -> Result<Ran, String> {
        if self.bytes < SIZE {
            return Err("the working set is smaller than a request".into());
        }
        match self.who {
            Who::Stages(stages) => self.stages(stages.max(1)).map_err(|error| error.to_string()),
            Who::Pinned(stages) => self.pinned(stages.max(1)).map_err(|error| error.to_string()),
            Who::Threads(threads) => self.threads(threads.max(1)),
        }
    }

    fn places(&self) -> Places<'_> {
        Places {
            job: self,
            begun: AtomicU64::new(0),
            deadline: Instant::now() + Duration::from_millis(self.runtime_ms),
            start: processor_time(ClockId::ProcessCPUTime),
        }
    }

    fn ran(&self, done: &Done, (start, seconds): (Duration, f64), under_way: u32, backend: &str) -> Ran {
        let mode = match (self.cached, self.who) {
            (false, _) => "direct",
            (true, Who::Threads(_)) => "kernel",
            (true, _) => "cached",
        };
        Ran {
            measurement: Measurement {
                in_flight_max: under_way.into(),
                errors: done.errors,
                backend: backend.into(),
                mode: mode.into(),
                ..Measurement::of(done.requests, SIZE, seconds)
            },
            processing_seconds: done.processing.as_secs_f64(),
            start_seconds: start.as_secs_f64(),
        }
    }

    fn threads(&self, threads: u32) -> Result<Ran, String> {
        let told = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(self.write);
        if !self.cached {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(&self.path).map_err(told)?;
        let arena = Arena::new(threads as usize * SIZE as usize).map_err(|error| error.to_string())?;
        let (begun, places) = (Instant::now(), self.places());
        let work = || -> Result<(Done, Recorder), String> {
            let mut buffer = arena.buffer(SIZE as usize).ok_or("no buffer")?;
            buffer.fill(b'D');
            let (mut done, mut latency) = (Done::default(), Recorder::new());
            while let Some(place) = places.next() {
                let asked = (self.turns == 0).then(Instant::now);
                let ended = if self.write {
                    file.write_all_at(&buffer, place)
                } else {
                    file.read_exact_at(&mut buffer, place)
                };
                if let Some(asked) = asked {
                    latency.record(asked.elapsed());
                }
                done.errors += u64::from(ended.is_err());
                done.requests += 1;
                done.process(&buffer, self.turns);
            }
            Ok((done, latency))
        };
        let (mut all, mut latency) = (Done::default(), Recorder::new());
        std::thread::scope(|scope| {
            let work = &work;
            let others = started(scope, (1..threads).map(|_| work))?;
            let own = work();
            let others = others.into_iter().map(|thread| joined(thread.join()));
            std::iter::once(own).chain(others).try_for_each(|one| {
                let (done, times) = one?;
                all.add(&done);
                latency.merge(&times);
                Ok::<(), String>(())
            })
        })?;
        if self.write {
            file.sync_data().map_err(told)?;
        }
        let took = (places.start, begun.elapsed().as_secs_f64());
        let mut ran = self.ran(&all, took, threads, "blocking calls");
        ran.measurement.latency_us = latency.latency();
        Ok(ran)
    }

    /// A core, with a cache that holds the working set and what may be read ahead behind it, if it is to go through one; and the file.
    /// A cache with no room for the latter would lose, in order, each page just before it is wanted again.
    fn open(&self, buffers: u32) -> Told<(Core, Handle)> {
        let behind = if self.sequential { self.bytes / 4 + (4 << 20) } else { 0 };
        let cache_bytes = if self.cached { (self.bytes + behind) as usize } else { 0 };
        let mut core = Core::new(&EngineOptions {
            arena_bytes: cache_bytes + buffers as usize * SIZE as usize + (1 << 20),
            // All of it will be used.
            register_arena: true,
            ..EngineOptions::default()
        })?;
        if self.cached {
            core.use_cache(&CacheOptions {
                bytes: cache_bytes,
                ..CacheOptions::default()
            })?;
        }
        let open = Open {
            write: self.write,
            descriptions: Descriptions::Both,
            create: Create::Never,
            claim_device: false,
        };
        let file = core.open_file(&self.path, &open)?;
        Ok((core, file))
    }

    fn stages(&self, stages: u32) -> Told<Ran> {
        let together = together(stages);
        let (mut core, file) = self.open(stages + together)?;
        let mut free = Vec::new();
        for _ in 0..stages + together {
            let mut buffer = core.buffer(SIZE as usize)?;
            buffer.fill(b'D');
            free.push(Memory::Own(buffer));
        }
        let before = (core.cache_stats().unwrap_or_default(), core.stats().system_calls);
        let (begun, places) = (Instant::now(), self.places());
        let mut done = Done::default();
        let mut ended = VecDeque::new();
        loop {
            while let Some(memory) = free.pop() {
                let Some(place) = places.next() else { break };
                let started = core.start(self.request(file, place, memory));
                started.map_err(|_| "every slot is taken")?;
                done.requests += 1;
            }
            let under_way = core.in_flight() > 0 || core.has_outcomes();
            if !under_way && ended.is_empty() {
                break;
            }
            let is_idle = ended.is_empty() && !core.has_outcomes();
            core.turn(if is_idle { Wait::one() } else { Wait::No })?;
            while let Some(outcome) = core.next_outcome() {
                done.errors += u64::from(outcome.result.ok() != Some(SIZE as u32));
                ended.push_back(outcome.memory);
            }
            for _ in 0..together {
                let Some(memory) = ended.pop_front() else { break };
                if let Memory::Own(buffer) = &memory {
                    done.process(buffer, self.turns);
                }
                free.push(memory);
            }
        }
        if self.write {
            let mut sync = self.request(file, 0, Memory::None);
            (sync.op, sync.durability) = (SegmentOp::Sync, Durability::Data);
            let ticket = core.start(sync).map_err(|_| "every slot is taken")?;
            core.wait(ticket)?.ok_or("an outcome was lost")?.result?;
        }
        let took = (places.start, begun.elapsed().as_secs_f64());
        drop((free, ended));
        self.close(core, before, &done, took, stages)
    }

    /// The cache is told what will be wanted, and its pages are processed where they lie, in order.
    fn pinned(&self, stages: u32) -> Told<Ran> {
        if self.write || !self.cached {
            return Err("pages are pinned to be read, in a cache".into());
        }
        let (mut core, file) = self.open(0)?;
        if !self.sequential {
            core.read_pattern(file, Pattern::Random)?;
        }
        let before = (core.cache_stats().unwrap_or_default(), core.stats().system_calls);
        let (begun, places) = (Instant::now(), self.places());
        let mut done = Done::default();
        let (mut ahead, mut wanted, mut pins) = (VecDeque::new(), Vec::new(), Vec::new());
        let together = together(stages);
        loop {
            while ahead.len() < (stages + together) as usize {
                let Some(place) = places.next() else { break };
                let pages = place / PAGE..(place + SIZE) / PAGE;
                join(&mut wanted, &pages);
                ahead.push_back(pages);
            }
            if ahead.is_empty() {
                break;
            }
            if !wanted.is_empty() {
                core.prefetch(file, &wanted)?;
                core.turn(Wait::No)?;
                wanted.clear();
            }
            for _ in 0..together {
                let Some(pages) = ahead.pop_front() else { break };
                done.requests += 1;
                for page in pages {
                    pins.push(core.pin_now(file, page)?);
                }
                // Each page has its share.
                let look = |pin| core.page(pin).map(|page| process(page, self.turns * PAGE / SIZE));
                done.time(|| pins.iter().try_for_each(look))?;
                pins.drain(..).for_each(|pin| core.unpin(pin));
            }
        }
        let took = (places.start, begun.elapsed().as_secs_f64());
        self.close(core, before, &done, took, stages)
    }

    fn close(
        &self,
        core: Core,
        (cache, calls): (CacheStats, u64),
        done: &Done,
        took: (Duration, f64),
        stages: u32,
    ) -> Told<Ran> {
        let mut ran = self.ran(done, took, stages + together(stages), core.engine().explain().backend);
        let calls = core.stats().system_calls - calls;
        ran.measurement.system_calls_per_request = Some(calls as f64 / done.requests.max(1) as f64);
        ran.measurement.cache = core.cache_stats().map(|after| CacheCounts::between(&cache, &after));
        core.close()?;
        Ok(ran)
    }

    fn request(&self, file: Handle, offset: u64, memory: Memory) -> SegmentRequest {
        let op = if self.write {
            SegmentOp::Write { offset }
        } else {
            SegmentOp::Read { offset }
        };
        SegmentRequest {
            mode: if self.cached { Mode::Cached } else { Mode::Direct },
            ..SegmentRequest::new(file, op, memory)
        }
    }
}

/// What a run has printed. Its processor time is less that of the processing.
pub(super) fn measured(finished: &Finished) -> Result<Measurement, String> {
    let Ran {
        mut measurement,
        processing_seconds,
        start_seconds,
    } = super::parse(finished)?;
    finished.charge(&mut measurement, Some(Duration::from_secs_f64(start_seconds)));
    let processing = processing_seconds * 1e6 / measurement.requests.max(1) as f64;
    let less_start = measurement.cpu_less_start_us_per_request.as_mut();
    for cpu in std::iter::once(&mut measurement.cpu_us_per_request).chain(less_start) {
        *cpu = (*cpu - processing).max(0.0);
    }
    measurement.rss_bytes = Some(finished.ended.memory_bytes);
    Ok(measurement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(path: PathBuf, who: Who) -> Job {
        Job {
            path,
            bytes: 64 * SIZE,
            write: false,
            sequential: false,
            cached: false,
            turns: 1000,
            runtime_ms: 60_000,
            requests: 200,
            who,
        }
    }

    #[test]
    fn every_side_makes_each_request_and_processes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 64 * SIZE as usize]).unwrap();
        for who in [Who::Threads(1), Who::Threads(3), Who::Stages(1), Who::Stages(9)] {
            for (write, cached) in [(false, false), (false, true), (true, false), (true, true)] {
                let ran = Job {
                    write,
                    cached,
                    ..job(path.clone(), who)
                }
                .run();
                let ran = ran.unwrap();
                assert_eq!((ran.measurement.requests, ran.measurement.errors), (200, 0), "{who:?}");
                assert!(ran.processing_seconds > 0.0);
            }
        }
        let pinned = Job {
            cached: true,
            ..job(path.clone(), Who::Pinned(5))
        };
        let ran = pinned.run().unwrap().measurement;
        assert_eq!((ran.requests, ran.errors), (200, 0));
        // Whatever is read ahead is among what is wanted.
        assert!(ran.cache.unwrap().pages_read <= 128);
        assert!(job(path.clone(), Who::Pinned(5)).run().is_err(), "there is no cache");
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.contains(&b'D'), "the writes came to the file");
    }

    #[test]
    fn a_cache_holds_the_working_set_also_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        // The file goes on behind the working set: what is read ahead there drives nothing out.
        std::fs::write(&path, vec![1; 2048 * SIZE as usize]).unwrap();
        let twice = Job {
            bytes: 1024 * SIZE,
            requests: 2048,
            cached: true,
            sequential: true,
            turns: 1,
            ..job(path, Who::Stages(9))
        };
        let cache = twice.run().unwrap().measurement.cache.unwrap();
        assert!(
            cache.pages_read < 3000,
            "the second time nothing was there: {}",
            cache.pages_read
        );
    }

    #[test]
    fn neighbours_are_brought_in_together() {
        let mut wanted = Vec::new();
        [0..2, 2..4, 6..8].iter().for_each(|pages| join(&mut wanted, pages));
        assert_eq!(wanted, [0..4, 6..8]);
    }

    #[test]
    fn requests_stay_within_the_working_set_and_end() {
        let job = Job {
            requests: 500,
            ..job("none".into(), Who::Threads(1))
        };
        let places = job.places();
        let all: Vec<u64> = std::iter::from_fn(|| places.next()).collect();
        assert_eq!(all.len(), 500);
        assert!(all.iter().all(|place| place % SIZE == 0 && *place < job.bytes));
        let in_order = Job {
            sequential: true,
            ..job
        };
        let places = in_order.places();
        assert_eq!([places.next(), places.next()], [Some(0), Some(SIZE)]);
    }
}
