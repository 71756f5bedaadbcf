//! What needs a core of the lane's own: a segment, past our page cache or through it, and plain files through it.

use std::sync::Arc;

use baio_console::failure::Failure;
use baio_engine::{Create, Descriptions, Durability, Memory, Open, Stats, Wait};
use baio_storage::cache::{CacheConfig, CacheStats};
use baio_storage::{Access, Core, Error, Fault, Handle, Mode, SegmentOp, SegmentRequest};

use super::{Ended, Target, config, op_of, told};
use crate::job::{Job, Lane, Mode as JobMode, Objects};
use crate::schedule::Piece;

/// The objects of one lane.
pub(crate) struct OnCore {
    core: Core,
    /// One an object; only those that the lane touches are open.
    handles: Vec<Option<Handle>>,
    mode: Mode,
    durability: Durability,
    command: &'static str,
    /// What a failure of all of it is about.
    whole: String,
}

impl Target for OnCore {
    type Shared = ();

    fn share(_: &Job) -> Result<(), Failure> {
        Ok(())
    }

    fn open(job: &Job, lane: usize, _: &Arc<()>) -> Result<OnCore, Failure> {
        let lane = &job.lanes[lane];
        let whole = match &job.objects {
            Objects::Files(_) => "the page cache",
            Objects::Segment(segment) => &segment.typed,
        };
        let failed = |error: Error| Failure::from_storage(job.command, whole, &error);
        let is_cached = job.mode == JobMode::Cached;
        let mut config = config(job, lane);
        config.arena_bytes += if is_cached { job.cache_bytes } else { 0 };
        let core = match &job.objects {
            Objects::Files(_) => Core::new(&config),
            Objects::Segment(segment) if job.writes() => Core::open(&segment.volume, &config),
            Objects::Segment(segment) => Core::open_to_read(&segment.volume, &config),
        };
        let mut core = core.map_err(failed)?;
        let cache = CacheConfig {
            bytes: job.cache_bytes,
            ..CacheConfig::default()
        };
        let cached = if is_cached { core.use_cache(&cache) } else { Ok(()) };
        match cached.map_err(failed).and_then(|()| handles(&mut core, job, lane)) {
            Ok(handles) => Ok(OnCore {
                core,
                handles,
                mode: if is_cached { Mode::Cached } else { Mode::Direct },
                durability: job.durability,
                command: job.command,
                whole: whole.to_owned(),
            }),
            Err(failure) => {
                // The first failure is the one to tell.
                let _ = core.close();
                Err(failure)
            }
        }
    }

    fn buffer(&mut self, len: usize) -> Option<Memory> {
        self.core.buffer(len).ok().map(Memory::Own)
    }

    fn start(&mut self, piece: &Piece, memory: Memory, tag: u64) -> Result<(), Memory> {
        let Some(&Some(handle)) = self.handles.get(piece.object) else {
            return Err(memory);
        };
        let (op, durability) = op_of(piece, self.durability);
        let request = SegmentRequest {
            mode: self.mode,
            durability,
            tag,
            ..SegmentRequest::new(handle, op, memory)
        };
        match self.core.start(request) {
            Ok(_) => Ok(()),
            Err(request) => Err(request.memory),
        }
    }

    fn turn(&mut self, wait: Wait) -> Result<(), Fault> {
        // What the cache had needs no turn, and of what it has not, many requests may end with one read or write.
        let wait = match wait {
            Wait::Until { .. } if self.mode == Mode::Cached && self.core.has_outcomes() => Wait::No,
            Wait::Until { .. } if self.mode == Mode::Cached => Wait::one(),
            wait => wait,
        };
        self.core.turn(wait).map(drop).map_err(Error::into_fault)
    }

    fn next(&mut self) -> Option<Ended> {
        let outcome = self.core.next_outcome()?;
        Some(Ended {
            tag: outcome.tag,
            memory: outcome.memory,
            result: outcome.result.map_err(Error::into_fault),
        })
    }

    fn sync(&mut self, object: usize, durability: Durability) -> Result<(), Fault> {
        let Some(&Some(handle)) = self.handles.get(object) else {
            return Ok(());
        };
        let request = SegmentRequest {
            mode: self.mode,
            durability,
            ..SegmentRequest::new(handle, SegmentOp::Sync, Memory::None)
        };
        let started = self.core.start(request);
        let ticket = started.map_err(|_| Fault::Io(baio_engine::Error::Full))?;
        match self.core.wait(ticket).map_err(Error::into_fault)? {
            Some(outcome) => outcome.result.map(drop).map_err(Error::into_fault),
            None => Ok(()),
        }
    }

    fn stats(&self) -> Stats {
        self.core.stats()
    }

    fn cache_stats(&self) -> Option<CacheStats> {
        self.core.cache_stats()
    }

    fn backend(&self) -> &'static str {
        self.core.engine().explain().backend
    }

    fn close(self) -> Result<(), Failure> {
        let closed = self.core.close();
        closed.map_err(|error| Failure::from_storage(self.command, self.whole, &error))
    }

    fn end(_: Arc<()>) -> Result<(), Failure> {
        Ok(())
    }
}

/// Opens what the lane touches.
fn handles(core: &mut Core, job: &Job, lane: &Lane) -> Result<Vec<Option<Handle>>, Failure> {
    let paths = match &job.objects {
        Objects::Files(paths) => paths,
        Objects::Segment(segment) => {
            let access = if job.writes() { Access::Write } else { Access::Read };
            let opened = core.open_segment(segment.identity, segment.owner_uid, &segment.name, access);
            let failed = |error| Failure::from_storage(job.command, &*segment.typed, &error);
            return opened.map(|(handle, _)| vec![Some(handle)]).map_err(failed);
        }
    };
    let options = Open {
        write: job.writes(),
        descriptions: Descriptions::Both,
        create: Create::Never,
        claim_device: false,
    };
    let mut open = |(object, path): (usize, &std::path::PathBuf)| {
        let is_touched = lane.streams.iter().any(|stream| stream.object == object);
        let opened = is_touched.then(|| core.open_file(path, &options)).transpose();
        opened.map_err(|error| told(job, path, error))
    };
    paths.iter().enumerate().map(&mut open).collect()
}
