//! Bare loops, for comparisons in which the drawing, stamping and counting of `stress` would be half of the figure.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use baio_engine::{Caching, Descriptions, Engine, EngineOptions, File, Memory, Open, Policy, Request, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{Core, Error, Pinning};
use baio_stress::{Measurement, Random};
use serde::{Deserialize, Serialize};

/// Bytes of a request.
const PAGE: usize = 4096;

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

impl BufferedReads {
    pub(super) fn run(&self) -> Result<Measurement, String> {
        // Everything is in the cache from here on.
        let len = fs::read(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?
            .len();
        let places = Places::new(len as u64);
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
        let (mut engine, file, mut memory) = self.queue(batch)?;
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

    /// An engine with the file, and the buffers of so many requests.
    fn queue(&self, requests: u32) -> Result<(Engine, File, Vec<Memory>), String> {
        let mut engine = Engine::new(&EngineOptions {
            slots: requests + 1,
            reserved_slots: 0,
            // Buffers are given out in words of this many bytes.
            arena_bytes: requests as usize * PAGE + (256 << 10),
            ..EngineOptions::default()
        })
        .map_err(|error| error.to_string())?;
        let open = Open {
            descriptions: Descriptions::Only(Caching::Kernel),
            ..Open::read()
        };
        let file = File::open(&self.path, &open).map_err(|error| error.to_string())?;
        engine.attach(&file);
        let buffer = |_| engine.buffer(PAGE).map(Memory::from);
        let memory = (0..requests).map(buffer).collect::<Option<_>>().ok_or("no buffer")?;
        Ok((engine, file, memory))
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
        let mut core = Core::new(&EngineOptions {
            arena_bytes: bytes + (8 << 20),
            ..EngineOptions::default()
        })?;
        core.use_cache(&CacheOptions {
            bytes,
            ..CacheOptions::default()
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
    fn new(len: u64) -> Places {
        Places {
            random: Random::new(u64::from(std::process::id())),
            pages: len / PAGE as u64,
        }
    }

    fn next(&mut self) -> u64 {
        self.random.below(self.pages) * PAGE as u64
    }
}
