//! Turns what was typed into a [`Job`] with every size known, or into the first error.
//!
//! Nothing is changed here: paths and segments are inspected, and a target that may not be overwritten is refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baio::{Access, Core, Identity, Link, Remote};
use baio_console::failure::Failure;
use baio_console::memory_limit::Room;
use baio_console::named::{NamedSegment, Volume};
use baio_console::size::format_size;
use baio_console::target::Target as Meant;

use super::args::StressArgs;
use crate::job::{Mode, Rw, SEGMENT_BLOCK, SegmentPath, Verify};
use crate::place::{is_empty, may_write_segment, too_small};
use crate::{
    Claim, Job, Kind, Objects, Place, STAMP_MIN, STAMPED_BLOCKS_MAX, Stage, Stream, Want, contexts, deal, shares,
};

pub(crate) const COMMAND: &str = "stress";

/// Memory of our own cache if none is asked for.
const CACHE_BYTES: u64 = 64 << 20;

/// Size of a missing file.
const SIZE_DEFAULT: u64 = 1 << 30;

/// How long a run without another end lasts.
const RUNTIME_DEFAULT: Duration = Duration::from_secs(5);

/// A job, and what it needs first.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) job: Job,
    /// Bytes of each object that are used.
    pub(crate) size: u64,
    pub(crate) wants: Vec<Want>,
    /// Held until the run has ended.
    pub(crate) claims: Vec<Claim>,
}

/// Makes the plan.
pub(crate) fn plan(args: &StressArgs) -> Result<Plan, Failure> {
    check(args)?;
    match args.target.meant(COMMAND)? {
        Meant::File(path) => plan_files(args, &path),
        Meant::Segment(named) => plan_segment(args, &named),
        Meant::Served(_) => Err(args.target.segment_expected(COMMAND)),
    }
}

/// What the command line alone can tell, and its parser cannot.
fn check(args: &StressArgs) -> Result<(), Failure> {
    check_cache(args)?;
    let request_size = args.request_size.bytes();
    // Memory is handed out in pages.
    let memory = u128::from(request_size.max(4096)) * u128::from(args.depth()) * u128::from(args.threads);
    let room = Room::here();
    let has_contexts = args.contexts > 1;
    let offset = args.offset.bytes();
    let rules = [
        (
            args.mode == Mode::Cached && args.threads > 1,
            format!("{0} threads would have {0} caches of one file", args.threads),
            "--threads",
            "--threads 1",
            "leave out --threads and take a larger --depth",
        ),
        (
            args.io_size.is_some_and(|size| size.bytes() < request_size),
            "not even one request".to_owned(),
            "--io-size",
            "at least --request-size",
            "choose a larger one, or smaller requests",
        ),
        (
            args.verify && request_size < STAMP_MIN,
            format!("a block of {request_size} bytes has no room for what --verify writes"),
            "--request-size (--bs)",
            "at least 32 bytes",
            "choose a larger one, or leave out --verify",
        ),
        (
            args.batch > args.depth(),
            format!(
                "{} requests at a time are more than the {} in flight",
                args.batch,
                args.depth()
            ),
            "--batch",
            "at most --depth",
            "choose a smaller --batch or a larger --depth",
        ),
        (
            memory > u128::from(room.bytes),
            format!("the buffers would take {memory} bytes"),
            "--request-size, --depth and --threads",
            &room.need(),
            "make one of them smaller",
        ),
        (
            args.interval.is_some() && (args.depth() > 1 || args.threads > 1),
            "a rest is between a request and the next".to_owned(),
            "--interval",
            "--depth 1 and --threads 1",
            "leave out --depth and --threads, or --interval",
        ),
        (
            has_contexts && args.once,
            "ranges that overlap touch blocks more than once".to_owned(),
            "--once",
            "--contexts 1",
            "leave out one of the two",
        ),
        (
            has_contexts && (offset == 0 || (args.verify && !offset.is_multiple_of(request_size))),
            "streams would not begin at blocks of their own".to_owned(),
            "--offset",
            "a multiple of --request-size",
            "choose another --offset",
        ),
    ];
    match rules.into_iter().find(|rule| rule.0) {
        Some((_, said, on, need, cure)) => Err(Failure::usage(COMMAND, said).on(on).needing(need).cured_by(cure)),
        None => Ok(()),
    }
}

/// What is said of a cache goes with the mode that has it.
fn check_cache(args: &StressArgs) -> Result<(), Failure> {
    for (is_given, on, mode, said) in [
        (
            args.cache.is_some(),
            "--cache",
            Mode::Cached,
            "only baio's own cache has a size to choose",
        ),
        (
            args.warm.is_some(),
            "--warm",
            Mode::Cached,
            "only baio's own cache can be filled before",
        ),
        (
            args.cold,
            "--cold",
            Mode::Kernel,
            "only the kernel's cache can be emptied of a file",
        ),
    ] {
        if is_given && args.mode != mode {
            let mode = format!("--mode {}", mode.name());
            let cure = format!("leave out {on}, or take {mode}");
            return Err(Failure::usage(COMMAND, said).on(on).needing(mode).cured_by(cure));
        }
    }
    Ok(())
}

fn plan_files(args: &StressArgs, path: &Path) -> Result<Plan, Failure> {
    if args.service {
        return Err(Failure::usage(COMMAND, "a service has segments, and this is none")
            .on(path.display().to_string())
            .needing("PATH#[UID/]SEGMENT")
            .cured_by("leave out --service, or name a segment"));
    }
    let paths = names(path, args.files);
    let stages = stages(args);
    let writes = stages.iter().any(|stage| stage.rw.writes());
    let places = paths.iter().map(|path| Place::look(COMMAND, path));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    if let Some(missing) = places.iter().find(|place| place.kind == Kind::Missing && !writes) {
        return Err(nothing_to_read(&missing.path));
    }
    let size = common_size(args, &places, writes)?;
    let mut claims = Vec::new();
    if writes {
        for place in &places {
            claims.push(place.claim(COMMAND, args.force)?);
        }
    }
    let job = job(args, Objects::Files(paths), size, stages)?;
    let wants = places.into_iter().map(|place| Want { place, size }).collect();
    Ok(Plan {
        job,
        size,
        wants,
        claims,
    })
}

fn plan_segment(args: &StressArgs, named: &NamedSegment) -> Result<Plan, Failure> {
    check_for_segment(args, named)?;
    let stages = stages(args);
    let writes = stages.iter().any(|stage| stage.rw.writes());
    // Who may open it to write is for its volume to say, here or behind a broker; what of others is overwritten only by `--force` is the same.
    let may_write = |who: Identity| match writes {
        true => may_write_segment(COMMAND, &named.typed, named.owner_uid(who), who, args.force),
        false => Ok(()),
    };
    let (who, info) = match &named.volume {
        Volume::Here(path) => {
            let who = Identity::effective();
            may_write(who)?;
            (who, Core::inspect_segment(path, who, named.owner_uid(who), &named.name))
        }
        Volume::Served(socket) => {
            let link = named.told(COMMAND, Remote::connect(socket))?;
            let who = link.identity();
            may_write(who)?;
            let opened = link.open_segment_of(named.owner_uid(who), &named.name, Access::Read);
            (who, opened.wait().map(|opened| opened.info().clone()))
        }
    };
    let info = named.told(COMMAND, info)?;
    on_segment(args, SegmentPath::of_named(named, who), info.size_bytes, stages)
}

/// What a segment cannot have, here or behind a broker.
fn check_for_segment(args: &StressArgs, named: &NamedSegment) -> Result<(), Failure> {
    let is_served = named.volume.is_served();
    let past_ours = matches!(args.mode, Mode::Kernel | Mode::Uncached);
    let (threads, request_size) = (args.threads, args.request_size.bytes());
    let rules = [
        (
            is_served && (past_ours || args.warm.is_some()),
            "a broker has one page cache for all".to_owned(),
            "--mode direct or cached, without --warm",
            "leave the option out",
        ),
        (
            past_ours,
            "a segment does not go through the kernel's cache".to_owned(),
            "--mode direct or cached",
            "leave out --mode, or name a file",
        ),
        (
            !is_served && args.mode == Mode::Cached && args.service,
            "what the cache of a service has done cannot be shown yet".to_owned(),
            "--mode direct, or no --service",
            "leave out --service",
        ),
        (
            !is_served && threads > 1 && !args.service,
            format!("a segment has one owner, and {threads} threads are {threads} of them"),
            "--threads 1, or --service",
            "leave out --threads and take a larger --depth, or let the threads share one owner by --service",
        ),
        (
            args.files > 1,
            "a segment is not several files".to_owned(),
            "--files 1",
            "leave out --files",
        ),
        (
            !is_served && !request_size.is_multiple_of(SEGMENT_BLOCK),
            format!("requests of {request_size} bytes are not whole blocks"),
            "a multiple of 4096 bytes",
            "choose another --request-size (--bs)",
        ),
    ];
    match rules.into_iter().find(|rule| rule.0) {
        Some((_, said, need, cure)) => Err(Failure::usage(COMMAND, said)
            .on(&*named.typed)
            .needing(need)
            .cured_by(cure)),
        None => Ok(()),
    }
}

fn on_segment(args: &StressArgs, segment: SegmentPath, has: u64, stages: Vec<Stage>) -> Result<Plan, Failure> {
    let size = args.size.map_or(has, |size| size.bytes());
    if size > has {
        return Err(too_small(COMMAND, &segment.typed, has, size));
    }
    let size = whole_requests(args, size, &segment.typed)?;
    Ok(Plan {
        job: job(args, Objects::Segment(segment), size, stages)?,
        size,
        wants: Vec::new(),
        claims: Vec::new(),
    })
}

/// A name that was mistyped shall not become a file.
fn nothing_to_read(path: &Path) -> Failure {
    let path = path.display().to_string();
    let cure = format!("check the path, or make the file first: `baio stress {path} --size 1G --rw write --once`");
    Failure::new(COMMAND, "ENOENT", "there is nothing to read")
        .on(path)
        .needing("a file, a device or a segment that exists, or a run that writes")
        .cured_by(cure)
}

fn names(path: &Path, files: u32) -> Vec<PathBuf> {
    if files == 1 {
        return vec![path.to_owned()];
    }
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    (0..files).map(numbered).collect()
}

/// The bytes of each file that are used.
fn common_size(args: &StressArgs, places: &[Place], writes: bool) -> Result<u64, Failure> {
    let asked = args.size.map(|size| size.bytes());
    let mut size = asked.unwrap_or(u64::MAX);
    for place in places {
        match (place.kind, asked) {
            (Kind::Missing, None) => size = size.min(SIZE_DEFAULT),
            (Kind::Missing, Some(_)) => {}
            (Kind::File | Kind::Device, None) if place.size == 0 => return Err(is_empty(COMMAND, &place.path)),
            (Kind::File | Kind::Device, None) => size = size.min(place.size),
            (Kind::File | Kind::Device, Some(asked)) if asked <= place.size => {}
            (Kind::File, Some(_)) if writes => {}
            (Kind::File | Kind::Device, Some(asked)) => {
                let shown = place.path.display().to_string();
                return Err(too_small(COMMAND, &shown, place.size, asked));
            }
        }
    }
    whole_requests(args, size, &args.target.to_string())
}

/// Cuts a size to whole requests; there must be one for every thread.
fn whole_requests(args: &StressArgs, size: u64, shown: &str) -> Result<u64, Failure> {
    let request_size = args.request_size.bytes();
    let size = size / request_size * request_size;
    let blocks = size / request_size;
    let threads = if args.contexts > 1 { 1 } else { u64::from(args.threads) };
    let narrow = u64::from(2 * (args.contexts - 1)).saturating_mul(args.offset.bytes());
    let refused = |said: String, need: String| {
        Err(Failure::usage(COMMAND, said)
            .on(shown)
            .needing(need)
            .cured_by("choose a larger --size, or smaller requests, offsets or fewer threads"))
    };
    if blocks < threads || size < narrow.saturating_add(request_size) {
        let said = format!("{} leave no room for a request of each stream", format_size(size));
        let need = threads
            .saturating_mul(request_size)
            .max(narrow.saturating_add(request_size));
        return refused(said, format!("at least {need} bytes"));
    }
    let stamped = blocks.saturating_mul(args.files.into());
    if args.verify && stamped > STAMPED_BLOCKS_MAX {
        let said = format!("{stamped} blocks are more than --verify can keep in mind");
        return Err(Failure::usage(COMMAND, said)
            .on(shown)
            .needing(format!("at most {STAMPED_BLOCKS_MAX} blocks in all files together"))
            .cured_by("choose a smaller --size, larger requests or fewer files, or leave out --verify"));
    }
    Ok(size)
}

fn stages(args: &StressArgs) -> Vec<Stage> {
    let several = args.stages.len() > 1;
    let given = if args.stages.is_empty() {
        &[args.rw][..]
    } else {
        &args.stages
    };
    // With neither an end nor a number of requests asked for, a single pattern goes on for a while.
    let timed = args.runtime.is_some() || args.stages.is_empty();
    let counted = args.io_size.map(|size| {
        let requests = size.bytes() / args.request_size.bytes().max(1);
        requests.div_ceil(u64::from(args.threads))
    });
    let stage = |&rw: &Rw| Stage {
        once: args.once,
        endless: (timed || counted.is_some()) && !args.once,
        runtime: args
            .runtime
            .or((timed && !args.once && counted.is_none()).then_some(RUNTIME_DEFAULT)),
        requests: counted,
        sync: ((several || args.end_sync) && rw.writes()).then_some(baio_engine::Durability::Full),
        ..Stage::of(rw)
    };
    given.iter().map(stage).collect()
}

fn job(args: &StressArgs, objects: Objects, size: u64, stages: Vec<Stage>) -> Result<Job, Failure> {
    let request_size = args.request_size.bytes();
    let mut lanes = deal(&streams(args, objects.count(), size)?, args.threads as usize);
    for lane in &mut lanes {
        (lane.depth, lane.batch) = (args.depth(), args.batch);
    }
    let writes = stages.iter().any(|stage| stage.rw.writes());
    Ok(Job {
        lanes,
        stages,
        run_length: args.iterations,
        mode: args.mode,
        cache_bytes: args
            .cache
            .map_or_else(|| CACHE_BYTES.min(Room::here().bytes), |size| size.bytes()) as usize,
        durability: args.durability.into(),
        backend: args.backend.into(),
        shared_memory: args.shared_memory,
        one_turn: args.one_turn,
        interval: args.interval,
        service: args.service,
        cold: args.cold,
        read_percent: args.read_percent,
        warm_percent: args.warm,
        verify: args
            .verify
            .then_some(if writes { Verify::Own } else { Verify::Earlier }),
        seed: args.seed,
        ..Job::new(COMMAND, objects, request_size)
    })
}

/// Each thread has an equal share of every file; or aio-stress's contexts, given to the threads in turn.
fn streams(args: &StressArgs, objects: usize, size: u64) -> Result<Vec<Stream>, Failure> {
    if args.contexts == 1 {
        return Ok(shares(objects, args.threads, args.request_size.bytes(), size));
    }
    let streams = contexts(objects, args.contexts, args.offset.bytes(), size);
    if streams.len() >= args.threads as usize {
        return Ok(streams);
    }
    let said = format!("{} threads have only {} streams", args.threads, streams.len());
    Err(Failure::usage(COMMAND, said)
        .on("--threads")
        .needing("at most files times contexts")
        .cured_by("choose fewer threads or more contexts"))
}
