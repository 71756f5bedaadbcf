//! A volume of many segments: filling it, and using it. Each in a process of its own, so that memory is what the open
//! volume takes and nothing that was there before.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use baio_engine::{Caching, EngineOptions, Wait};
use baio_measure::program::{self, Random, status_of, words};
use baio_storage::{Access, Core, CreateOptions, Identity, OperationId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Creates under way at a time while a volume is filled.
const UNDER_WAY: usize = 64;
/// A table of pairs of 4 KiB images.
const PAIR_BYTES: u64 = 8192;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Makes segments of one block, real ones, many at a time.
    Fill { path: PathBuf, segments: u64 },
    /// Opens the volume, looks around in it, and ends.
    Use(Use),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) path: PathBuf,
    /// Segments that there are.
    pub(crate) segments: u64,
    /// Opens by name that are counted.
    pub(crate) names: u64,
    /// Handles opened and closed again, for what they leave behind.
    pub(crate) opens: u64,
    /// Durable creates, one at a time; the segments go again.
    pub(crate) creates: u64,
    /// Close it, or leave it as a crash does?
    pub(crate) close: bool,
}

/// What it took to fill a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Filled {
    pub(crate) seconds: f64,
}

/// What was seen of a volume in use.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) segments: u64,
    pub(crate) open_seconds: f64,
    pub(crate) open_bytes_read: u64,
    pub(crate) close_seconds: Option<f64>,
    /// Requests of the engine, and bucket pairs that they read, for each open by name.
    pub(crate) requests_per_name: f64,
    pub(crate) pairs_per_name: f64,
    /// For each durable create: requests, times at which some were submitted, and reads, writes, syncs.
    pub(crate) create_requests: f64,
    pub(crate) create_rounds: f64,
    pub(crate) create_kinds: [f64; 3],
    pub(crate) create_us: f64,
    /// Resident memory of an engine alone, of the open volume, after the opens by name, and after the handles were opened
    /// and closed.
    pub(crate) engine_rss: u64,
    pub(crate) open_rss: u64,
    pub(crate) used_rss: u64,
    pub(crate) later_rss: u64,
}

pub(crate) fn run(job: &Job) -> Result<Value, String> {
    let found = match job {
        Job::Fill { path, segments } => serde_json::to_value(fill(path, *segments)?),
        Job::Use(job) => serde_json::to_value(look(job)?),
    };
    found.map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let usage = "many_segments VOLUME [SEGMENTS, to which it is filled]";
    program::tell(words(usage).and_then(|(path, words)| {
        let segments = words.first().map(|number| number.parse()).transpose();
        match segments.map_err(|_| "how many segments?")? {
            Some(segments) => run(&Job::Fill { path, segments }),
            None => run(&Job::Use(Use {
                segments: Core::inspect_volume(&path).map_err(told)?.segments,
                path,
                names: 20_000,
                opens: 100_000,
                creates: 200,
                close: true,
            })),
        }
    }))
}

fn fill(path: &Path, segments: u64) -> Result<Filled, String> {
    let who = Identity::effective();
    let begun = Instant::now();
    let mut core = Core::open(path, &EngineOptions::default()).map_err(told)?;
    let mut under_way: Vec<OperationId> = Vec::new();
    let mut next = core.volume_info().map_err(told)?.segments;
    let mut shown = Instant::now();
    while next < segments || !under_way.is_empty() {
        while next < segments && under_way.len() < UNDER_WAY {
            let options = CreateOptions::of_size(1);
            let id = core
                .begin_create(who, who.uid, &name_of(next), &options)
                .map_err(told)?;
            under_way.push(id);
            next += 1;
        }
        core.turn(Wait::one()).map_err(told)?;
        let mut failed = None;
        under_way.retain(|id| match core.take_answer(id) {
            None => true,
            Some(answer) => {
                failed = failed.take().or(answer.err());
                false
            }
        });
        if let Some(error) = failed {
            return Err(error.to_string());
        }
        if shown.elapsed() > Duration::from_secs(30) {
            shown = Instant::now();
            program::say(&format!("filled {next} of {segments} segments"));
        }
    }
    core.close().map_err(told)?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Filled { seconds })
}

fn look(job: &Use) -> Result<Used, String> {
    let who = Identity::effective();
    let mut random = Random::new(u64::from(std::process::id()));
    let engine_rss = {
        let _core = Core::new(&EngineOptions::default()).map_err(told)?;
        resident()
    };
    let begun = Instant::now();
    let mut core = Core::open(&job.path, &EngineOptions::default()).map_err(told)?;
    let open_seconds = begun.elapsed().as_secs_f64();
    let open_bytes_read = core.stats().bytes_read;
    let open_rss = resident();
    let segments = core.volume_info().map_err(told)?.segments;
    let before = core.stats();
    for _ in 0..job.names {
        open_one(&mut core, who, random.below(job.segments))?;
    }
    let after = core.stats();
    let used_rss = resident();
    for _ in 0..job.opens {
        open_one(&mut core, who, random.below(job.segments))?;
    }
    let later_rss = resident();
    let creates = create_some(&mut core, who, job.creates)?;
    let close_seconds = if job.close {
        let begun = Instant::now();
        core.close().map_err(told)?;
        Some(begun.elapsed().as_secs_f64())
    } else {
        drop(core);
        None
    };
    let names = job.names.max(1) as f64;
    Ok(Used {
        segments,
        open_seconds,
        open_bytes_read,
        close_seconds,
        requests_per_name: (after.requests - before.requests) as f64 / names,
        pairs_per_name: (after.bytes_read - before.bytes_read) as f64 / PAIR_BYTES as f64 / names,
        engine_rss,
        open_rss,
        used_rss,
        later_rss,
        ..creates
    })
}

fn open_one(core: &mut Core, who: Identity, number: u64) -> Result<(), String> {
    let (handle, _) = core
        .open_segment(who, who.uid, &name_of(number), Access::Read)
        .map_err(told)?;
    core.close_handle(handle);
    Ok(())
}

/// Durable creates, one at a time, of segments that go again.
fn create_some(core: &mut Core, who: Identity, creates: u64) -> Result<Used, String> {
    let (mut requests, mut rounds, mut kinds) = (0, 0, [0; 3]);
    let mut took = Duration::ZERO;
    for number in 0..creates {
        let name = format!("extra-{number}");
        let (before, kinds_before) = (core.stats(), kinds_of(core));
        let begun = Instant::now();
        core.create(who, who.uid, &name, &CreateOptions::of_size(1))
            .map_err(told)?;
        took += begun.elapsed();
        let (after, kinds_after) = (core.stats(), kinds_of(core));
        requests += after.requests - before.requests;
        rounds += after.batches - before.batches;
        for kind in 0..3 {
            kinds[kind] += kinds_after[kind] - kinds_before[kind];
        }
        core.delete(who, who.uid, &name).map_err(told)?;
    }
    let each = |count: u64| count as f64 / creates.max(1) as f64;
    Ok(Used {
        create_requests: each(requests),
        create_rounds: each(rounds),
        create_kinds: kinds.map(each),
        create_us: took.as_secs_f64() * 1e6 / creates.max(1) as f64,
        ..Used::default()
    })
}

fn kinds_of(core: &Core) -> [u64; 3] {
    let measures = core.engine().measures();
    ["read", "write", "sync"].map(|kind| {
        let of = |caching| measures.of(kind, caching).map_or(0, |measured| measured.completions);
        of(Caching::Direct) + of(Caching::Kernel)
    })
}

fn name_of(number: u64) -> String {
    format!("segment-{number}")
}

fn told(error: baio_storage::Error) -> String {
    error.to_string()
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    status_of("self", "VmRSS") << 10
}
