//! What the letters mean: the same [`Job`] that `baio stress` runs, and the lines with which aio-stress began.

use std::path::PathBuf;

use baio_console::failure::Failure;
use baio_console::memory_limit::Room;
use baio_engine::Durability;

use super::args::AioStressArgs;
use crate::job::{Mode, Rw, Verify};
use crate::{
    Claim, Job, Kind, Lane, Objects, Place, STAMP_MIN, STAMPED_BLOCKS_MAX, Stage, Stream, Want, contexts, deal,
};

pub(super) const COMMAND: &str = "aio-stress";

/// Requests under way in one thread at most.
const DEPTH_MAX: u64 = 16_384;

/// Buffers are always aligned to this.
const ALIGN_MAX: u64 = 4096;

/// A job, what it needs first, and what is said before it.
pub(super) struct Plan {
    pub(super) job: Job,
    pub(super) wants: Vec<Want>,
    pub(super) claims: Vec<Claim>,
    /// The lines on standard error.
    pub(super) opening: Vec<String>,
}

/// The words of aio-stress for its stages.
pub(super) fn stage_name(rw: Rw) -> &'static str {
    match rw {
        Rw::Write => "write",
        Rw::Read => "read",
        Rw::RandomWrite => "random write",
        Rw::RandomRead | Rw::RandomMixed => "random read",
    }
}

/// The stages in the order in which they run, behind their numbers.
const STAGES: [Rw; 4] = [Rw::Write, Rw::Read, Rw::RandomWrite, Rw::RandomRead];

/// Makes the plan.
pub(super) fn plan(args: &AioStressArgs) -> Result<Plan, Failure> {
    let paths = args.files.iter().map(|typed| typed.path(COMMAND));
    let paths = paths.collect::<Result<Vec<PathBuf>, _>>()?;
    let mut opening = Vec::new();
    let figures = Figures::of(args, paths.len(), &mut opening)?;
    let stages = stages(args, &mut opening);
    figures.announce(args, &mut opening);
    let writes = stages.iter().any(|stage| stage.rw.writes());
    let places = paths.iter().map(|path| Place::look(COMMAND, path));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    let mut claims = Vec::new();
    for place in &places {
        fits(place, figures.size, writes)?;
        if writes {
            claims.push(place.claim(COMMAND, args.force)?);
        }
    }
    // The first stage writes each file from its beginning to its end, so nothing needs to be there before.
    let writes_itself = stages[0].rw == Rw::Write && figures.threads == 1 && args.contexts == 1;
    let wants = places.into_iter().map(|place| Want {
        size: if writes_itself { 0 } else { figures.size },
        place,
    });
    let wants = wants.collect();
    let job = Job {
        lanes: figures.lanes(args),
        stages,
        grain: if args.verify { args.record } else { figures.align },
        run_length: figures.iterations,
        mode: if args.direct { Mode::Direct } else { Mode::Kernel },
        durability: if args.durable {
            Durability::Full
        } else {
            Durability::None
        },
        backend: args.backend.into(),
        shared_memory: args.memory.is_some(),
        verify: args
            .verify
            .then_some(if writes { Verify::Own } else { Verify::Earlier }),
        stonewall: !args.no_stonewall,
        ..Job::new(COMMAND, Objects::Files(paths), args.record)
    };
    Ok(Plan {
        job,
        wants,
        claims,
        opening,
    })
}

/// The stages asked for, in their own order.
fn stages(args: &AioStressArgs, opening: &mut Vec<String>) -> Vec<Stage> {
    for &number in &args.stages {
        opening.push(format!("adding stage {}", stage_name(STAGES[usize::from(number)])));
    }
    let asked =
        |number: &usize| args.stages.is_empty() || args.stages.iter().any(|&stage| usize::from(stage) == *number);
    let stages: Vec<Stage> = (0..STAGES.len())
        .filter(asked)
        .map(|number| Stage {
            submissions: args.submissions,
            sync: (!args.no_sync).then_some(Durability::Full),
            ..Stage::of(STAGES[number])
        })
        .collect();
    if let (false, Some(first)) = (args.stages.is_empty(), stages.first()) {
        opening.push(format!("starting with {}", stage_name(first.rw)));
    }
    stages
}

/// The numbers as the program uses them, after its own corrections.
struct Figures {
    streams: Vec<Stream>,
    threads: u32,
    iterations: u32,
    max_io_submit: u64,
    align: u64,
    /// Bytes of each file, in whole records.
    size: u64,
}

impl Figures {
    fn of(args: &AioStressArgs, files: usize, opening: &mut Vec<String>) -> Result<Figures, Failure> {
        let refused = |said: String, on: &str, need: String, cure: &str| {
            Err(Failure::usage(COMMAND, said).on(on).needing(need).cured_by(cure))
        };
        if let Some(word) = &args.memory {
            let word = if word == "shm" {
                "ipc shm"
            } else {
                "/dev/shm for buffers"
            };
            opening.push(format!("using {word}"));
        }
        let align = args.align.unwrap_or(ALIGN_MAX);
        if !align.is_power_of_two() || !(512..=ALIGN_MAX).contains(&align) {
            let said = format!("buffers are not aligned to {align} bytes");
            return refused(said, "-a", "512, 1k, 2k or 4k bytes".to_owned(), "leave out -a");
        }
        if args.record == 0 || args.record > args.size {
            let said = format!("records of {} bytes do not fit into {}", args.record, args.size);
            return refused(
                said,
                "-r",
                "one byte to the file's size".to_owned(),
                "choose another -r or -s",
            );
        }
        if args.verify && args.record < STAMP_MIN {
            let said = format!("a record of {} bytes has no room for a stamp", args.record);
            return refused(said, "-r", format!("at least {STAMP_MIN} bytes"), "leave out -v");
        }
        let narrow = u64::from(args.contexts).saturating_mul(args.context_offset);
        let inner = u64::from(2 * (args.contexts - 1)).saturating_mul(args.context_offset);
        if args.contexts > 1 && (args.size < narrow || args.size < inner.saturating_add(args.record)) {
            let said = format!("file size {} too small for {} contexts", args.size, args.contexts);
            return refused(
                said,
                "-s",
                "room for a record in each context".to_owned(),
                "choose a smaller -c or -C",
            );
        }
        if args.contexts > 1 && args.verify && !args.context_offset.is_multiple_of(args.record) {
            let said = "contexts would not begin at records of their own".to_owned();
            return refused(
                said,
                "-C",
                "a multiple of -r".to_owned(),
                "choose another -C, or leave out -v",
            );
        }
        let size = args.size / args.record * args.record;
        if args.verify && size / args.record > STAMPED_BLOCKS_MAX {
            let said = format!("{} records are more than -v can keep in mind", size / args.record);
            return refused(
                said,
                "-v",
                format!("at most {STAMPED_BLOCKS_MAX}"),
                "choose larger records",
            );
        }
        let mut iterations = args.iterations;
        if args.depth < iterations {
            iterations = args.depth;
            opening.push(format!("dropping io_iter to {iterations}"));
        }
        let streams = contexts(files, args.contexts, args.context_offset, size);
        let count = u32::try_from(streams.len()).unwrap_or(u32::MAX);
        let threads = args.threads.min(count);
        if threads < args.threads {
            opening.push(format!("dropping thread count to the number of contexts {threads}"));
        }
        let max_io_submit = match args.batch {
            Some(batch) => u64::from(batch),
            None => u64::from(count) * u64::from(iterations),
        };
        if max_io_submit < u64::from(iterations) {
            iterations = args.batch.unwrap_or(iterations);
            opening.push(format!("dropping io_iter to {iterations}"));
        }
        let streams_each = u64::from(count.div_ceil(threads));
        let memory = u128::from(args.record.max(4096)) * u128::from(args.depth) * u128::from(count);
        let room = Room::here();
        if memory > u128::from(room.bytes) || streams_each * u64::from(args.depth) > DEPTH_MAX {
            let said = format!(
                "{} requests of {} bytes for each of {count} streams are too many",
                args.depth, args.record
            );
            let need = format!("at most {DEPTH_MAX} requests a thread; for the buffers {}", room.need());
            return refused(said, "-d", need, "choose a smaller -d, -r or -c, or fewer files");
        }
        Ok(Figures {
            streams,
            threads,
            iterations,
            max_io_submit,
            align,
            size,
        })
    }

    fn announce(&self, args: &AioStressArgs, opening: &mut Vec<String>) {
        opening.push(format!(
            "file size {}MB, record size {}KB, depth {}, I/O per iteration {}",
            args.size >> 20,
            args.record >> 10,
            args.depth,
            self.iterations
        ));
        opening.push(format!(
            "max io_submit {}, buffer alignment set to {}KB",
            self.max_io_submit,
            self.align >> 10
        ));
        opening.push(format!(
            "threads {} files {} contexts {} context offset {}MB verification {}",
            self.threads,
            args.files.len(),
            args.contexts,
            args.context_offset >> 20,
            if args.verify { "on" } else { "off" }
        ));
    }

    /// Streams are dealt to the threads in turn. Those of a thread share their depths, and a submission has some whole runs:
    /// no more than there are streams.
    fn lanes(&self, args: &AioStressArgs) -> Vec<Lane> {
        let mut lanes = deal(&self.streams, self.threads as usize);
        for lane in &mut lanes {
            let streams = lane.streams.len() as u64;
            let runs = (self.max_io_submit / u64::from(self.iterations)).clamp(1, streams.max(1));
            lane.depth = args.depth * streams as u32;
            lane.batch = (runs * u64::from(self.iterations)) as u32;
        }
        lanes
    }
}

/// A file grows where it is written; one that is only read, and every device, is as large as it is.
fn fits(place: &Place, size: u64, writes: bool) -> Result<(), Failure> {
    let grows = place.kind == Kind::Missing || (place.kind == Kind::File && writes);
    if grows || place.size >= size {
        return Ok(());
    }
    Err(
        Failure::usage(COMMAND, format!("it has {} bytes, and -s asks for {size}", place.size))
            .on(place.path.display().to_string())
            .needing("a -s that fits")
            .cured_by("choose a smaller -s, or begin with -o 0"),
    )
}
