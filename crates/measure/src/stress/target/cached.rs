//! Files and devices through our own page cache, on a core of the lane's own.

use std::sync::Arc;

use baio_console::failure::Failure;
use baio_engine::{Create, Descriptions, Durability, Memory, Open, Stats, Wait};
use baio_storage::cache::{CacheConfig, CacheStats};
use baio_storage::{Core, Error, Fault, Handle, Mode, SegmentOp, SegmentRequest};

use super::{Ended, Target, config, told};
use crate::stress::job::{Job, Objects};
use crate::stress::schedule::Piece;

/// The files of one lane, and their cache.
pub(crate) struct Cached {
    core: Core,
    /// One an object; only those that the lane touches are open.
    files: Vec<Option<Handle>>,
    durability: Durability,
    command: &'static str,
}

impl Target for Cached {
    type Shared = ();

    fn share(_: &Job) -> Result<(), Failure> {
        Ok(())
    }

    fn open(job: &Job, lane: usize, _: &Arc<()>) -> Result<Cached, Failure> {
        let lane = &job.lanes[lane];
        let Objects::Files(paths) = &job.objects else {
            return Err(Failure::new(job.command, "EINVAL", "a segment is no plain file"));
        };
        let cannot = |error: Error| Failure::from_storage(job.command, "the page cache", &error);
        let mut config = config(job, lane);
        config.arena_bytes += job.cache_bytes;
        let cache = CacheConfig {
            bytes: job.cache_bytes,
            ..CacheConfig::default()
        };
        let mut core = Core::new(&config).map_err(cannot)?;
        core.use_cache(&cache).map_err(cannot)?;
        let options = Open {
            write: job.writes(),
            descriptions: Descriptions::Both,
            create: Create::Never,
            claim_device: false,
        };
        let touched = |object: usize| lane.streams.iter().any(|stream| stream.object == object);
        let mut files = Vec::with_capacity(paths.len());
        for (object, path) in paths.iter().enumerate() {
            let mut open = || core.open_file(path, &options).map_err(|error| told(job, path, error));
            files.push(touched(object).then(&mut open).transpose()?);
        }
        Ok(Cached {
            core,
            files,
            durability: job.durability,
            command: job.command,
        })
    }

    fn buffer(&mut self, len: usize) -> Option<Memory> {
        self.core.buffer(len).ok().map(Memory::Own)
    }

    fn start(&mut self, piece: &Piece, memory: Memory, tag: u64) -> Result<(), Memory> {
        let Some(&Some(file)) = self.files.get(piece.object) else {
            return Err(memory);
        };
        let offset = piece.offset;
        let (op, durability) = if piece.write {
            (SegmentOp::Write { offset }, self.durability)
        } else {
            (SegmentOp::Read { offset }, Durability::None)
        };
        let request = SegmentRequest {
            mode: Mode::Cached,
            durability,
            tag,
            ..SegmentRequest::new(file, op, memory)
        };
        match self.core.start(request) {
            Ok(_) => Ok(()),
            Err(request) => Err(request.memory),
        }
    }

    fn turn(&mut self, wait: Wait) -> Result<(), Fault> {
        // What the cache had needs no turn; and of what it has not, many requests may end with one read or write.
        let wait = match wait {
            Wait::Until { .. } if !self.core.has_outcomes() => Wait::one(),
            _ => Wait::No,
        };
        self.core.turn(wait).map(drop).map_err(|error| error.fault)
    }

    fn next(&mut self) -> Option<Ended> {
        let outcome = self.core.next_outcome()?;
        Some(Ended {
            tag: outcome.tag,
            memory: outcome.memory,
            result: outcome.result.map_err(|error| error.fault),
        })
    }

    fn sync(&mut self, object: usize, durability: Durability) -> Result<(), Fault> {
        let Some(&Some(file)) = self.files.get(object) else {
            return Ok(());
        };
        let request = SegmentRequest {
            mode: Mode::Cached,
            durability,
            ..SegmentRequest::new(file, SegmentOp::Sync, Memory::None)
        };
        let ticket = self
            .core
            .start(request)
            .map_err(|_| Fault::Io(baio_engine::Error::Full))?;
        match self.core.wait(ticket).map_err(|error| error.fault)? {
            Some(outcome) => outcome.result.map(drop).map_err(|error| error.fault),
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
        let command = self.command;
        let closed = self.core.close();
        closed.map_err(|error| Failure::from_storage(command, "the page cache", &error))
    }

    fn end(_: Arc<()>) -> Result<(), Failure> {
        Ok(())
    }
}
