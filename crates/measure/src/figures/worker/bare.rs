//! Bare loops, for comparisons in which the drawing, stamping and counting of `stress` would be half of the figure.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baio_engine::{Arena, Caching, Choice, Config, Descriptions, Engine, File, Memory, Open, Policy, Request, Wait};
use baio_storage::cache::CacheConfig;
use baio_storage::{Core, Error, Pinning};
use baio_stress::costs::status_of;
use baio_stress::{Measurement, Random, Recorder};
use serde::{Deserialize, Serialize};

use crate::program::{joined, started};

/// Bytes of a request.
const PAGE: usize = 4096;

/// Random direct reads of a byte range by blocking threads: what people do without asynchronous I/O.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pread {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) threads: u32,
    pub(crate) runtime_ms: u64,
}

/// Reads at random places of a small file, all of which is in the kernel's cache: the price of a queue where nothing waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BufferedReads {
    pub(crate) path: PathBuf,
    pub(crate) reads: u64,
    /// So many submitted and awaited together by the engine; `None` is a loop of pread(2).
    pub(crate) batch: Option<u32>,
}

/// Pages of a core's buffer pool, all in memory: pinned, looked at and given back, at random places of a small file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PinnedHits {
    pub(crate) path: PathBuf,
    pub(crate) reads: u64,
}

/// Direct writes to the beginning of a device, posted one after the other by a call each, and each call timed: seed 003 posts a
/// thousand with libaio and finds that "the enqueueing of writes seems to block every now and then". When all have ended, the
/// next round begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PostedWrites {
    pub(crate) path: PathBuf,
    /// By name.
    pub(crate) backend: String,
    pub(crate) writes: u32,
    pub(crate) rounds: u32,
}

impl Pread {
    pub(super) fn run(&self) -> Result<Measurement, String> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&self.path);
        let file = opened.map_err(|error| format!("{}: {error}", self.path.display()))?;
        let arena = Arena::new(self.threads as usize * PAGE).map_err(|error| error.to_string())?;
        let begun = Instant::now();
        let deadline = begun + Duration::from_millis(self.runtime_ms);
        let read = |seed: u32| -> Result<Recorder, String> {
            let mut buffer = arena.buffer(PAGE).ok_or("no buffer")?;
            let mut places = Places::new(u64::from(seed) << 32, self.len);
            let (mut latency, mut now) = (Recorder::new(), Instant::now());
            while now < deadline {
                let read = file.read_exact_at(&mut buffer, self.offset + places.next());
                read.map_err(|error| format!("pread: {error}"))?;
                let after = Instant::now();
                latency.record(after - now);
                now = after;
            }
            Ok(latency)
        };
        let mut latency = Recorder::new();
        std::thread::scope(|scope| {
            let threads = started(scope, (0..self.threads).map(|seed| move || read(seed)))?;
            let mut all = threads.into_iter().map(|thread| joined(thread.join()));
            all.try_for_each(|one| one.map(|one| latency.merge(&one)))
        })?;
        Ok(Measurement {
            latency_us: latency.latency(),
            system_calls_per_request: Some(1.0),
            threads_max: Some(u64::from(self.threads) + 1),
            ..measured(latency.count(), 0, begun, self.threads, "pread", "direct")
        })
    }
}

impl BufferedReads {
    pub(super) fn run(&self) -> Result<Measurement, String> {
        // Everything is in the cache from here on.
        let len = fs::read(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?
            .len();
        let places = Places::new(0, len as u64);
        let begun = Instant::now();
        let (errors, calls, backend) = match self.batch {
            None => (self.pread(places)?, self.reads, "pread"),
            Some(batch) => self.engine(batch.max(1), places)?,
        };
        Ok(Measurement {
            system_calls_per_request: Some(calls as f64 / self.reads as f64),
            ..measured(self.reads, errors, begun, self.batch.unwrap_or(1), backend, "kernel")
        })
    }

    fn pread(&self, mut places: Places) -> Result<u64, String> {
        let file = fs::File::open(&self.path).map_err(|error| error.to_string())?;
        let mut buffer = vec![0; PAGE];
        let mut errors = 0;
        for _ in 0..self.reads {
            let read = file.read_at(&mut buffer, places.next());
            errors += u64::from(!matches!(read, Ok(PAGE)));
        }
        Ok(errors)
    }

    /// Returns failed requests, system calls, and the backend.
    fn engine(&self, batch: u32, mut places: Places) -> Result<(u64, u64, &'static str), String> {
        let (mut engine, file, mut memory) = queue(&self.path, Choice::Auto, (Caching::Kernel, Open::read()), batch)?;
        let (mut left, mut errors) = (self.reads, 0);
        while left > 0 {
            let count = left.min(u64::from(batch)) as usize;
            for memory in memory.drain(..count) {
                let request = Request::read(&file, places.next(), memory, Policy::kernel());
                engine.submit(request).map_err(|_| "every slot is taken")?;
            }
            let turned = engine.turn(Wait::for_count(count as u32));
            turned.map_err(|error| error.to_string())?;
            while let Some(completion) = engine.next_completion() {
                errors += u64::from(completion.result != Ok(PAGE as u32));
                memory.push(completion.memory);
                left -= 1;
            }
        }
        let stats = engine.stats();
        // A trial is one call, which the backend does not see.
        Ok((errors, stats.system_calls + stats.trials, engine.explain().backend))
    }
}

impl PinnedHits {
    pub(super) fn run(&self) -> Result<Measurement, String> {
        let len = fs::metadata(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?
            .len();
        self.pin(len).map_err(|error| error.to_string())
    }

    fn pin(&self, len: u64) -> Result<Measurement, Error> {
        // Nothing has to leave.
        let bytes = len as usize + 64 * PAGE;
        let mut core = Core::new(&Config {
            arena_bytes: bytes + (8 << 20),
            ..Config::default()
        })?;
        core.use_cache(&CacheConfig {
            bytes,
            ..CacheConfig::default()
        })?;
        let open = Open {
            descriptions: Descriptions::Both,
            ..Open::read()
        };
        let file = core.open_file(&self.path, &open)?;
        let pages = len / PAGE as u64;
        for page in 0..pages {
            let pin = core.pin_now(file, page)?;
            core.unpin(pin);
        }
        let mut random = Random::new(u64::from(std::process::id()));
        let mut errors = 0;
        let begun = Instant::now();
        for _ in 0..self.reads {
            let Ok(Pinning::Held(pin)) = core.pin(file, random.below(pages)) else {
                errors += 1;
                continue;
            };
            match core.page(&pin) {
                Ok(bytes) => _ = std::hint::black_box(bytes.first()),
                Err(_) => errors += 1,
            }
            core.unpin(pin);
        }
        let measured = measured(self.reads, errors, begun, 1, "buffer pool", "cached");
        core.close()?;
        Ok(Measurement {
            system_calls_per_request: Some(0.0),
            ..measured
        })
    }
}

impl PostedWrites {
    pub(super) fn run(&self) -> Result<Measurement, String> {
        let opened = (Caching::Direct, Open::write());
        let (mut engine, file, mut memory) = queue(&self.path, self.backend.parse()?, opened, self.writes)?;
        let mut posted = vec![Instant::now(); self.writes as usize];
        let (mut submit, mut latency) = (Recorder::new(), Recorder::new());
        let (mut errors, mut threads_max) = (0, 0);
        let (begun, before) = (Instant::now(), engine.stats());
        for _ in 0..self.rounds {
            for (index, memory) in memory.drain(..).enumerate() {
                let offset = (index * PAGE) as u64;
                let request = Request::write(&file, offset, memory, Policy::direct()).tagged(index as u64);
                posted[index] = Instant::now();
                engine.submit(request).map_err(|_| "every slot is taken")?;
                engine.turn(Wait::No).map_err(|error| error.to_string())?;
                submit.record(posted[index].elapsed());
            }
            while memory.len() < self.writes as usize {
                engine.turn(Wait::one()).map_err(|error| error.to_string())?;
                let now = Instant::now();
                while let Some(completion) = engine.next_completion() {
                    latency.record(now - posted[completion.tag as usize]);
                    errors += u64::from(completion.result != Ok(PAGE as u32));
                    memory.push(completion.memory);
                }
            }
            threads_max = threads_max.max(status_of("self", "Threads"));
        }
        let stats = engine.stats();
        let requests = u64::from(self.writes) * u64::from(self.rounds);
        let each = |count: u64| Some(count as f64 / requests as f64);
        Ok(Measurement {
            latency_us: latency.latency(),
            submit_latency_us: Some(submit.latency()),
            system_calls_per_request: each(stats.system_calls - before.system_calls),
            iterations_per_request: each(stats.iterations - before.iterations),
            threads_max: Some(threads_max),
            in_flight_max: stats.in_flight_max,
            ..measured(requests, errors, begun, 0, engine.explain().backend, "direct")
        })
    }
}

/// What all of them tell.
fn measured(requests: u64, errors: u64, begun: Instant, in_flight: u32, backend: &str, mode: &str) -> Measurement {
    Measurement {
        in_flight_max: in_flight.into(),
        errors,
        backend: backend.into(),
        mode: mode.into(),
        ..Measurement::of(requests, PAGE as u64, begun.elapsed().as_secs_f64())
    }
}

/// Random places for requests in a range of bytes.
struct Places {
    random: Random,
    pages: u64,
}

impl Places {
    fn new(seed: u64, len: u64) -> Places {
        Places {
            random: Random::new(seed | u64::from(std::process::id())),
            pages: len / PAGE as u64,
        }
    }

    fn next(&mut self) -> u64 {
        self.random.below(self.pages) * PAGE as u64
    }
}

/// An engine with one file, and the buffers of so many requests, filled with a letter.
fn queue(
    path: &Path,
    backend: Choice,
    (caching, open): (Caching, Open),
    requests: u32,
) -> Result<(Engine, File, Vec<Memory>), String> {
    let mut engine = Engine::new(&Config {
        backend,
        slots: requests + 1,
        reserved_slots: 0,
        // Buffers are given out in words of this many bytes.
        arena_bytes: requests as usize * PAGE + (256 << 10),
        ..Config::default()
    })
    .map_err(|error| error.to_string())?;
    let open = Open {
        descriptions: Descriptions::Only(caching),
        ..open
    };
    let file = File::open(path, &open).map_err(|error| error.to_string())?;
    engine.attach(&file);
    let buffer = |_| {
        let mut buffer = engine.buffer(PAGE)?;
        buffer.fill(b'D');
        Some(buffer.into())
    };
    let memory = (0..requests).map(buffer).collect::<Option<_>>().ok_or("no buffer")?;
    Ok((engine, file, memory))
}
