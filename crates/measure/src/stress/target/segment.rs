//! A segment, through the library that everybody uses.

use std::sync::Arc;

use baio::{Access, Local, Mode, Options, Segment, SegmentOp, SegmentRequest};
use baio_console::failure::Failure;
use baio_engine::{Durability, Memory, Stats, Wait};
use baio_storage::Fault;
use baio_storage::cache::{CacheConfig, CacheStats};

use super::{Ended, Target, config};
use crate::stress::job::{Job, Mode as JobMode, Objects};
use crate::stress::schedule::Piece;

/// One segment on a core of this thread's own.
pub(crate) struct Segmented {
    segment: Segment<Local>,
    volume: Local,
    durability: Durability,
    mode: Mode,
    command: &'static str,
    typed: String,
}

impl Segmented {
    fn told(command: &'static str, typed: &str, error: &baio::Error) -> Failure {
        Failure::from_storage(command, typed, error)
    }
}

impl Target for Segmented {
    type Shared = ();

    fn share(_: &Job) -> Result<(), Failure> {
        Ok(())
    }

    fn open(job: &Job, lane: usize, _: &Arc<()>) -> Result<Segmented, Failure> {
        let lane = &job.lanes[lane];
        let Objects::Segment(path) = &job.objects else {
            return Err(Failure::new(job.command, "EINVAL", "a plain file is no segment"));
        };
        let told = |error: baio::Error| Segmented::told(job.command, &path.typed, &error);
        let is_cached = job.mode == JobMode::Cached;
        let options = Options {
            identity: path.identity,
            config: config(job, lane),
            cache: is_cached.then(|| CacheConfig {
                bytes: job.cache_bytes,
                ..CacheConfig::default()
            }),
        };
        let (volume, access) = if job.writes() {
            (Local::open_with(&path.volume, &options), Access::Write)
        } else {
            (Local::open_to_read(&path.volume, &options), Access::Read)
        };
        let volume = volume.map_err(told)?;
        let segment = match volume.open_segment_of(path.owner_uid, &path.name, access) {
            Ok(segment) => segment,
            Err(error) => {
                // The first failure is the one to tell.
                let _ = volume.close();
                return Err(told(error));
            }
        };
        Ok(Segmented {
            segment,
            volume,
            durability: job.durability,
            mode: if is_cached { Mode::Cached } else { Mode::Direct },
            command: job.command,
            typed: path.typed.clone(),
        })
    }

    fn buffer(&mut self, len: usize) -> Option<Memory> {
        self.segment.buffer(len).ok().map(Memory::Own)
    }

    fn start(&mut self, piece: &Piece, memory: Memory, tag: u64) -> Result<(), Memory> {
        let offset = piece.offset;
        let (op, durability) = if piece.write {
            (SegmentOp::Write { offset }, self.durability)
        } else {
            (SegmentOp::Read { offset }, Durability::None)
        };
        let request = SegmentRequest {
            mode: self.mode,
            durability,
            tag,
            ..self.segment.request(op, memory)
        };
        match self.segment.submit(request) {
            Ok(_) => Ok(()),
            Err(request) => Err(request.memory),
        }
    }

    fn turn(&mut self, wait: Wait) -> Result<(), Fault> {
        // What the cache had needs no turn, and of what it has not, many requests may end with one read or write.
        let wait = match wait {
            Wait::Until { .. } if self.mode == Mode::Cached && self.volume.has_outcomes() => Wait::No,
            Wait::Until { .. } if self.mode == Mode::Cached => Wait::one(),
            wait => wait,
        };
        self.volume.turn(wait).map(drop).map_err(|error| error.fault)
    }

    fn next(&mut self) -> Option<Ended> {
        let outcome = self.volume.next_outcome()?;
        Some(Ended {
            tag: outcome.tag,
            memory: outcome.memory,
            result: outcome.result.map_err(|error| error.fault),
        })
    }

    fn sync(&mut self, _: usize, durability: Durability) -> Result<(), Fault> {
        let outcome = self.volume.block_on(self.segment.sync(durability));
        let outcome = outcome.map_err(|error| error.fault)?;
        outcome.result.map(drop).map_err(|error| error.fault)
    }

    fn stats(&self) -> Stats {
        self.volume.stats()
    }

    fn cache_stats(&self) -> Option<CacheStats> {
        self.volume.cache_stats()
    }

    fn backend(&self) -> &'static str {
        self.volume.backend()
    }

    fn close(self) -> Result<(), Failure> {
        let Segmented {
            segment,
            volume,
            command,
            typed,
            ..
        } = self;
        drop(segment);
        volume.close().map_err(|error| Segmented::told(command, &typed, &error))
    }

    fn end(_: Arc<()>) -> Result<(), Failure> {
        Ok(())
    }
}
