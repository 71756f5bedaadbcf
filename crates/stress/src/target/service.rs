//! A segment, through a service thread that owns the volume, or through a broker: all lanes share one link to it.
//!
//! The link has one queue of outcomes for whoever takes from it, and tags that it only carries. So a request's tag says
//! whose it is, and a lane that takes another one's outcome puts it into that one's inbox. Nobody oversleeps: a turn ends
//! with every outcome that comes, whoever's it is, and at once when nothing is in flight.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baio::{Access, Link, Mode, Options, Outcome, Remote, Segment, SegmentRequest};
use baio_console::failure::Failure;
use baio_engine::{Durability, Memory, Stats, Wait};
use baio_storage::{Error, Fault};

use super::{ARENA_SPARE, Ended, Target, config, op_of};
use crate::job::{Job, Lane, Mode as JobMode, Objects};
use crate::schedule::Piece;

/// The service, and what lanes hold for each other.
pub(crate) struct Service {
    volume: Remote,
    segment: Segment<Remote>,
    inboxes: Vec<Mutex<VecDeque<Outcome>>>,
    command: &'static str,
    typed: String,
}

/// One lane's side of it.
pub(crate) struct Served {
    service: Arc<Service>,
    lane: usize,
    durability: Durability,
}

impl Target for Served {
    type Shared = Service;

    fn share(job: &Job) -> Result<Service, Failure> {
        let Objects::Segment(path) = &job.objects else {
            return Err(Failure::new(job.command, "EINVAL", "a plain file is no segment"));
        };
        let told = |error: baio::Error| Failure::from_storage(job.command, &*path.typed, &error);
        let options = Options {
            identity: path.identity,
            config: for_all(job),
            ..Options::default()
        };
        let volume = match path.is_served {
            true => Remote::connect_with(&path.volume, "", &options),
            false => Remote::open_with(&path.volume, &options),
        };
        let volume = volume.map_err(told)?;
        let access = if job.writes() { Access::Write } else { Access::Read };
        match volume.open_segment_of(path.owner_uid, &path.name, access).wait() {
            Ok(segment) => Ok(Service {
                volume,
                segment: match job.mode {
                    JobMode::Cached => segment.with_mode(Mode::Cached),
                    _ => segment,
                },
                inboxes: job.lanes.iter().map(|_| Mutex::default()).collect(),
                command: job.command,
                typed: path.typed.clone(),
            }),
            Err(error) => {
                // The first failure is the one to tell.
                let _ = volume.close();
                Err(told(error))
            }
        }
    }

    fn open(job: &Job, lane: usize, service: &Arc<Service>) -> Result<Served, Failure> {
        Ok(Served {
            service: Arc::clone(service),
            lane,
            durability: job.durability,
        })
    }

    fn buffer(&mut self, len: usize) -> Option<Memory> {
        self.service.segment.buffer(len).ok().map(Memory::Own)
    }

    fn start(&mut self, piece: &Piece, memory: Memory, tag: u64) -> Result<(), Memory> {
        let (op, durability) = op_of(piece, self.durability);
        let segment = &self.service.segment;
        let request = SegmentRequest {
            durability,
            tag: address(self.lane, tag),
            ..segment.request(op, memory)
        };
        match segment.submit(request) {
            Ok(_) => Ok(()),
            Err(request) => Err(request.memory),
        }
    }

    fn refusal(&self) -> Option<Fault> {
        self.service.volume.refusal()
    }

    fn turn(&mut self, wait: Wait) -> Result<(), Fault> {
        self.service.volume.turn(wait).map(drop).map_err(Error::into_fault)
    }

    fn next(&mut self) -> Option<Ended> {
        let inboxes = &self.service.inboxes;
        if inboxes.len() > 1
            && let Some(own) = lock(&inboxes[self.lane]).pop_front()
        {
            return Some(ended(own));
        }
        while let Some(outcome) = self.service.volume.next_outcome() {
            let whose = lane_of(outcome.tag);
            if whose == self.lane {
                return Some(ended(outcome));
            }
            if let Some(inbox) = inboxes.get(whose) {
                lock(inbox).push_back(outcome);
            }
        }
        None
    }

    fn sync(&mut self, _: usize, durability: Durability) -> Result<(), Fault> {
        let synced = self.service.segment.sync(durability).wait();
        synced.map(drop).map_err(|failed| failed.error.into_fault())
    }

    /// There is one engine for all lanes; the first one tells of it.
    fn stats(&self) -> Stats {
        if self.lane == 0 {
            self.service.volume.stats().wait().unwrap_or_default()
        } else {
            Stats::default()
        }
    }

    /// A broker does not say which one it has.
    fn backend(&self) -> &'static str {
        self.service.volume.backend().wait().unwrap_or("broker")
    }

    fn close(self) -> Result<(), Failure> {
        Ok(())
    }

    fn end(service: Arc<Service>) -> Result<(), Failure> {
        // The lanes have ended, so nobody else holds it.
        let Some(service) = Arc::into_inner(service) else {
            return Ok(());
        };
        let Service {
            volume,
            segment,
            command,
            typed,
            inboxes,
        } = service;
        // What a lane that failed left there holds memory of the arena.
        drop(inboxes);
        drop(segment);
        volume
            .close()
            .map_err(|error| Failure::from_storage(command, typed, &error))
    }
}

/// An engine as large as all lanes together.
fn for_all(job: &Job) -> baio_engine::Config {
    let all = Lane {
        depth: job.lanes.iter().map(|lane| lane.depth).sum(),
        batch: 1,
        streams: Vec::new(),
    };
    let each = |lane: &Lane| config(job, lane).arena_bytes - ARENA_SPARE;
    let arena_bytes = ARENA_SPARE + job.lanes.iter().map(each).sum::<usize>();
    baio_engine::Config {
        arena_bytes,
        register_arena: arena_bytes <= super::REGISTERED_MAX,
        ..config(job, &all)
    }
}

/// The loop's tags are places, of which there are fewer than 2^32.
fn address(lane: usize, tag: u64) -> u64 {
    (lane as u64) << 32 | tag
}

fn lane_of(tag: u64) -> usize {
    (tag >> 32) as usize
}

fn ended(outcome: Outcome) -> Ended {
    Ended {
        tag: outcome.tag & u64::from(u32::MAX),
        memory: outcome.memory,
        result: outcome.result.map_err(Error::into_fault),
    }
}

/// A thread that panicked has left nothing half-done behind an inbox.
fn lock(inbox: &Mutex<VecDeque<Outcome>>) -> MutexGuard<'_, VecDeque<Outcome>> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_whose_it_is() {
        let tag = address(255, 16_383);
        assert_eq!((lane_of(tag), tag & u64::from(u32::MAX)), (255, 16_383));
    }
}
