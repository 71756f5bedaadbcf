//! A program that knows what it will read: with a policy of its own, with LRU, or through the kernel's cache.
//!
//! Two patterns from the literature that seed 004 builds on (Cao, Felten, Karlin and Li 1996):
//!
//! - a **cyclic scan** over somewhat more than the cache: LRU throws each page out just before it is read again; whoever knows
//!   throws out what it has just read (MRU), has what is missing brought in ahead, and looks at the pages where they lie;
//! - **scattered blocks** in an order that the program knows: it has them brought in ahead, where everybody else waits for each.
//!
//! The kernel's side runs in a memory cgroup, which this process joins.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use baio_engine::{Config, Descriptions, Memory, Open, Wait};
use baio_measure::program::{self, CacheCounts, Measurement, Permutation, words};
use baio_storage::cache::CacheConfig;
use baio_storage::cache::eviction::{Eviction, Hint};
use baio_storage::cache::window;
use baio_storage::{Core, Handle, Mode, SegmentOp, SegmentRequest};
use serde::{Deserialize, Serialize};

const PAGE: u64 = 4096;

/// Bytes of a request of the scan.
const SCAN: u64 = 64 << 10;

/// Requests that are brought in ahead by whoever knows them, but no more than an eighth of the cache.
const SCAN_AHEAD: u64 = 48;
const BLOCKS_AHEAD: u64 = 32;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) who: Who,
    pub(crate) pattern: Pattern,
    /// How often each page is added up.
    pub(crate) work: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Who {
    Own,
    Lru,
    /// The kernel's cache, in this memory cgroup.
    Kernel {
        cgroup: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Pattern {
    /// The whole file, so often.
    Cyclic { passes: u64 },
    /// So many blocks, none twice.
    Scattered { blocks: u64 },
}

impl Pattern {
    /// Bytes of one request, and how many there are.
    fn requests(self, bytes: u64) -> (u64, u64) {
        match self {
            Pattern::Cyclic { passes } => (SCAN, bytes / SCAN * passes),
            Pattern::Scattered { blocks } => (PAGE, blocks.min(bytes / PAGE)),
        }
    }
}

/// Where the requests are.
struct Places {
    pattern: Pattern,
    per_pass: u64,
    scattered: Permutation,
}

impl Places {
    fn at(&self, number: u64) -> u64 {
        match self.pattern {
            Pattern::Cyclic { .. } => number % self.per_pass * SCAN,
            Pattern::Scattered { .. } => self.scattered.at(number) * PAGE,
        }
    }
}

/// Five scans of a file that is a quarter larger than the cache.
fn main() -> ExitCode {
    program::tell(words("own_policy FILE [lru]").and_then(|(path, words)| {
        let bytes = fs::metadata(&path).map_err(|error| error.to_string())?.len();
        run(&Job {
            path,
            bytes,
            cache_bytes: bytes / 5 * 4,
            who: if words.is_empty() { Who::Own } else { Who::Lru },
            pattern: Pattern::Cyclic { passes: 5 },
            work: 1,
        })
    }))
}

pub(crate) fn run(job: &Job) -> Result<Measurement, String> {
    let (size, requests) = job.pattern.requests(job.bytes);
    if requests == 0 {
        return Err("the file is too small".into());
    }
    let places = Places {
        pattern: job.pattern,
        per_pass: (job.bytes / SCAN).max(1),
        scattered: Permutation::new(job.bytes / PAGE, 7),
    };
    let (begun, errors, cache) = match &job.who {
        Who::Kernel { cgroup } => through_the_kernel(job, cgroup, size, requests, &places)?,
        who => {
            let program = Program::start(job, matches!(who, Who::Own), size, requests, &places);
            program.and_then(Program::run).map_err(|error| error.to_string())?
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Measurement {
        in_flight_max: 1,
        errors,
        backend: "own policy".into(),
        mode: if cache.is_some() { "cached" } else { "kernel" }.into(),
        cache,
        ..Measurement::of(requests, size, seconds)
    })
}

/// What the program does with what it has read: it adds it up.
fn work(bytes: &[u8], times: u32) {
    for _ in 0..times {
        let words = bytes.as_chunks::<8>().0.iter();
        let sum = words.fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        std::hint::black_box(sum);
    }
}

type Ran = (Instant, u64, Option<CacheCounts>);

fn through_the_kernel(job: &Job, cgroup: &Path, size: u64, requests: u64, places: &Places) -> Result<Ran, String> {
    let procs = cgroup.join("cgroup.procs");
    fs::write(&procs, std::process::id().to_string()).map_err(|error| format!("{}: {error}", procs.display()))?;
    let told = |error: std::io::Error| format!("{}: {error}", job.path.display());
    let file = fs::File::open(&job.path).map_err(told)?;
    let advice = match job.pattern {
        Pattern::Cyclic { .. } => rustix::fs::Advice::Sequential,
        Pattern::Scattered { .. } => rustix::fs::Advice::Random,
    };
    rustix::fs::fadvise(&file, 0, None, advice).map_err(|error| told(error.into()))?;
    let mut buffer = vec![0; size as usize];
    let begun = Instant::now();
    for number in 0..requests {
        file.read_exact_at(&mut buffer, places.at(number)).map_err(told)?;
        work(&buffer, job.work);
    }
    Ok((begun, 0, None))
}

type Told<T> = Result<T, Box<dyn std::error::Error>>;

/// The program on a cache of ours.
struct Program<'a> {
    job: &'a Job,
    places: &'a Places,
    core: Core,
    file: Handle,
    is_own: bool,
    /// Bytes of a request, and how many there are.
    size: u64,
    requests: u64,
    /// Requests that are told ahead at most, and how many were told so far.
    ahead: u64,
    shown: u64,
    errors: u64,
}

impl<'a> Program<'a> {
    fn start(job: &'a Job, is_own: bool, size: u64, requests: u64, places: &'a Places) -> Told<Program<'a>> {
        let frames = (job.cache_bytes / PAGE) as usize;
        let is_scan = matches!(job.pattern, Pattern::Cyclic { .. });
        let most = if is_scan { SCAN_AHEAD } else { BLOCKS_AHEAD };
        let ahead = most.min(job.cache_bytes / size / 8).max(1);
        let eviction: Box<dyn Eviction> = if is_own && is_scan {
            // Each page that is on its way is used once or twice before those behind it: they must outlive that.
            let coming = 4 * (ahead + 1) * SCAN / PAGE;
            Box::new(Recency::mru(frames, coming as usize))
        } else {
            Box::new(Recency::lru(frames))
        };
        let bytes = job.cache_bytes as usize;
        let mut core = Core::new(&Config {
            arena_bytes: bytes + (5 << 20),
            ..Config::default()
        })?;
        let config = CacheConfig {
            bytes,
            ..CacheConfig::default()
        };
        core.use_cache_with(&config, eviction)?;
        let open = Open {
            descriptions: Descriptions::Both,
            ..Open::read()
        };
        let file = core.open_file(&job.path, &open)?;
        if is_own || !is_scan {
            core.read_pattern(file, window::Pattern::Random)?;
        }
        Ok(Program {
            job,
            places,
            core,
            file,
            is_own,
            size,
            requests,
            ahead,
            shown: 0,
            errors: 0,
        })
    }

    fn run(mut self) -> Told<Ran> {
        let mut memory = self.core.buffer(self.size as usize)?.into();
        let before = self.core.cache_stats().unwrap_or_default();
        let begun = Instant::now();
        for number in 0..self.requests {
            if self.is_own {
                self.show(number)?;
                self.look(number)?;
            } else {
                memory = self.read(number, memory)?;
            }
        }
        let cache = CacheCounts::between(&before, &self.core.cache_stats().unwrap_or_default());
        Ok((begun, self.errors, Some(cache)))
    }

    /// Has the next requests brought in, when half of those that were told have been made.
    fn show(&mut self, number: u64) -> Told<()> {
        self.shown = self.shown.max(number);
        let end = self.requests.min(number + self.ahead);
        if self.shown >= end || self.shown > number + self.ahead / 2 {
            return Ok(());
        }
        let ranges: Vec<_> = (self.shown..end).map(|later| self.pages(later)).collect();
        // Of a request that it stopped in, the rest is told again.
        self.shown += self.core.prefetch(self.file, &ranges)? / (self.size / PAGE);
        self.core.turn(Wait::No)?;
        Ok(())
    }

    /// Works on the pages of a request where they lie.
    fn look(&mut self, number: u64) -> Told<()> {
        for page in self.pages(number) {
            let pin = self.core.pin_now(self.file, page)?;
            work(self.core.page(&pin)?, self.job.work);
            self.core.unpin(pin);
        }
        Ok(())
    }

    /// Works on a copy of them.
    fn read(&mut self, number: u64, memory: Memory) -> Told<Memory> {
        let offset = self.places.at(number);
        let request = SegmentRequest {
            mode: Mode::Cached,
            ..SegmentRequest::new(self.file, SegmentOp::Read { offset }, memory)
        };
        let ticket = self.core.start(request).map_err(|_| "every slot is taken")?;
        let outcome = self.core.wait(ticket)?.ok_or("an outcome was lost")?;
        self.errors += u64::from(outcome.result.ok() != Some(self.size as u32));
        if let Memory::Own(buffer) = &outcome.memory {
            work(buffer, self.job.work);
        }
        Ok(outcome.memory)
    }

    fn pages(&self, number: u64) -> std::ops::Range<u64> {
        let first = self.places.at(number) / PAGE;
        first..first + self.size / PAGE
    }
}

/// Frames by when they were last used or filled; entries that were overtaken are thrown away when they are met.
#[derive(Debug)]
struct Recency {
    /// By frame: its last use; 0 for none.
    last: Vec<u64>,
    now: u64,
    /// Oldest first.
    queue: VecDeque<(u32, u64)>,
    /// Of a policy that throws out the newest: all that are older than the `lag` newest uses, newest last.
    settled: Option<Vec<(u32, u64)>>,
    lag: usize,
    /// Asked for and could not go; back at the next call.
    aside: Vec<(u32, u64)>,
}

impl Recency {
    fn lru(frames: usize) -> Recency {
        Recency {
            last: vec![0; frames],
            now: 0,
            queue: VecDeque::new(),
            settled: None,
            lag: 0,
            aside: Vec::new(),
        }
    }

    /// Throws out the newest, but not the last `lag` uses: what is read ahead is still to be used.
    fn mru(frames: usize, lag: usize) -> Recency {
        Recency {
            settled: Some(Vec::new()),
            lag: lag.min(frames / 2),
            ..Recency::lru(frames)
        }
    }

    fn touch(&mut self, frame: u32) {
        self.now += 1;
        self.last[frame as usize] = self.now;
        self.queue.push_back((frame, self.now));
        if let Some(settled) = &mut self.settled {
            while self.queue.len() > self.lag {
                settled.extend(self.queue.pop_front());
            }
        } else if self.queue.len() > 4 * self.last.len() {
            let last = &self.last;
            self.queue.retain(|&(frame, at)| last[frame as usize] == at);
        }
    }

    fn next(&mut self) -> Option<(u32, u64)> {
        let newest = self.settled.as_mut().and_then(Vec::pop);
        newest.or_else(|| self.queue.pop_front())
    }
}

impl Eviction for Recency {
    fn inserted(&mut self, frame: u32, _: u64, _: Hint) {
        self.touch(frame);
    }

    fn hit(&mut self, frame: u32) {
        self.touch(frame);
    }

    fn removed(&mut self, frame: u32) {
        self.last[frame as usize] = 0;
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let found = loop {
            let Some((frame, at)) = self.next() else { break None };
            if self.last[frame as usize] != at {
                continue;
            }
            if may_go(frame) {
                self.last[frame as usize] = 0;
                break Some(frame);
            }
            self.aside.push((frame, at));
        };
        while let Some(entry) = self.aside.pop() {
            match &mut self.settled {
                Some(settled) => settled.push(entry),
                None => self.queue.push_front(entry),
            }
        }
        found
    }

    fn name(&self) -> &'static str {
        if self.settled.is_some() { "mru" } else { "lru" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(mut policy: Recency, frames: u32) -> Recency {
        (0..frames).for_each(|frame| policy.inserted(frame, 0, Hint::Normal));
        policy
    }

    #[test]
    fn the_oldest_goes_or_the_newest() {
        let mut lru = filled(Recency::lru(4), 4);
        lru.hit(0);
        assert_eq!(lru.victim(&mut |_| true), Some(1));
        assert_eq!(lru.victim(&mut |frame| frame != 2), Some(3));
        assert_eq!(lru.victim(&mut |_| true), Some(2), "it was only set aside");
        let mut mru = filled(Recency::mru(8, 2), 8);
        // 6 and 7 are too new.
        assert_eq!(mru.victim(&mut |_| true), Some(5));
        mru.hit(1);
        assert_eq!(mru.victim(&mut |_| true), Some(6), "the newest two are 7 and 1");
    }

    #[test]
    fn whoever_is_removed_is_no_victim() {
        for mut policy in [filled(Recency::lru(3), 3), filled(Recency::mru(3, 1), 3)] {
            policy.removed(1);
            let mut left: Vec<_> = std::iter::from_fn(|| policy.victim(&mut |_| true)).collect();
            left.sort_unstable();
            assert_eq!(left, [0, 2]);
        }
    }
}
