//! A rotating disk: one arm, platters that turn, a queue from which the nearest request is served first.
//!
//! A place on the disk is a track (`offset / track_bytes`) and an angle (the rest). To serve a request the arm moves to the
//! track (`track_seek + b * sqrt(distance)`, Ruemmler and Wilkes 1994, so that random seeks take `average_seek` in the
//! mean), waits until the angle comes round, and moves bytes at the rate at which they pass. The skew between tracks is
//! taken for perfect: bytes that follow each other are read without a pause.
//!
//! - *Queue*: of the first `queue` requests the one with the shortest way is served, unless the oldest has waited a second.
//! - *Reading on*: behind a read the disk fills its buffer until the arm is wanted elsewhere, so that sequential reads one at
//!   a time stream, though each comes a little late.
//! - *Write cache on*: a write ends in the cache at the speed of the interface; the arm puts it away when it has nothing
//!   else to do, when a flush waits, or when the cache is half full. *Off*: a write ends on the platter.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::sim::faults::Kind;
use crate::backend::sim::job::Job;
use crate::backend::sim::profile::flash::transfer_ns;
use crate::backend::sim::profile::{Busy, Mechanism};
use crate::backend::sim::random::Random;
use crate::policy::Time;

/// A rotating disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotating {
    /// Turns per minute.
    pub rpm: u32,
    /// A seek to the next track.
    pub track_seek: Duration,
    /// A seek between two random places, in the mean.
    pub average_seek: Duration,
    /// At which bytes pass under the head.
    pub bytes_per_second: u64,
    /// At which bytes go into the cache.
    pub interface_bytes_per_second: u64,
    /// Requests from which the nearest is chosen.
    pub queue: usize,
    /// Bytes of the write cache; 0: off.
    pub write_cache_bytes: u64,
}

impl Default for Rotating {
    /// A 7200 rpm disk with its write cache off, as a database would have it.
    fn default() -> Rotating {
        Rotating {
            rpm: 7200,
            track_seek: Duration::from_micros(800),
            average_seek: Duration::from_micros(8500),
            bytes_per_second: 160_000_000,
            interface_bytes_per_second: 550_000_000,
            queue: 32,
            write_cache_bytes: 0,
        }
    }
}

impl Rotating {
    /// One turn of the platters.
    #[must_use]
    pub fn turn(&self) -> Duration {
        Duration::from_nanos(60_000_000_000 / u64::from(self.rpm.max(1)))
    }

    /// The same disk with its write cache on.
    #[must_use]
    pub fn cached(mut self, bytes: u64) -> Rotating {
        self.write_cache_bytes = bytes;
        self
    }
}

/// Who has waited so long is served next.
const WAIT_MAX_NS: u64 = 1_000_000_000;

/// How far the disk reads on behind a read, in bytes.
const READ_ON: u64 = 4 << 20;

/// Roundings: an angle missed by so little is not missed.
const SLACK_NS: u64 = 2_000;

/// What a flush costs by itself.
const FLUSH_NS: u64 = 50_000;

pub(crate) struct RotatingState {
    disk: Rotating,
    turn_ns: u64,
    track_bytes: u64,
    tracks: u64,
    /// Where the arm is, as an offset.
    arm: u64,
    arm_is_busy: bool,
    /// The end of the last read, and when it passed: from there the disk reads on.
    read_on: Option<(u64, Time)>,
    /// What the write cache holds, oldest first.
    dirty: VecDeque<Dirty>,
    dirty_bytes: u64,
    next_mark: u64,
    /// The entry that the arm is putting away.
    destaging: Option<u64>,
}

struct Dirty {
    mark: u64,
    offset: u64,
    len: u64,
}

/// What the arm could do next.
#[derive(Clone, Copy)]
enum Candidate {
    Queued(usize),
    Destage(usize),
}

impl RotatingState {
    pub(crate) fn new(disk: Rotating, disk_bytes: u64) -> RotatingState {
        let turn_ns = (disk.turn().as_nanos() as u64).max(1);
        let track_bytes = (u128::from(disk.bytes_per_second) * u128::from(turn_ns) / 1_000_000_000) as u64;
        let track_bytes = track_bytes.max(1);
        RotatingState {
            disk,
            turn_ns,
            track_bytes,
            tracks: disk_bytes.div_ceil(track_bytes).max(1),
            arm: 0,
            arm_is_busy: false,
            read_on: None,
            dirty: VecDeque::new(),
            dirty_bytes: 0,
            next_mark: 0,
            destaging: None,
        }
    }

    fn seek_ns(&self, from: u64, to: u64) -> u64 {
        let distance = (from / self.track_bytes).abs_diff(to / self.track_bytes);
        if distance == 0 {
            return 0;
        }
        let track = self.disk.track_seek.as_nanos() as f64;
        let average = self.disk.average_seek.as_nanos() as f64;
        // The mean of the square root of the distance between two random places is 8/15.
        let slope = (average - track).max(0.0) * 15.0 / 8.0;
        let fraction = distance as f64 / self.tracks as f64;
        (track + slope * fraction.sqrt()) as u64
    }

    /// The time at which `offset` passes under the head of an arm that is at its track from `at` on.
    fn passes(&self, offset: u64, at: u64) -> u64 {
        let angle = self.ns_of(offset % self.track_bytes);
        let wait = (angle + self.turn_ns - at % self.turn_ns) % self.turn_ns;
        let is_just_missed = self.turn_ns - wait <= SLACK_NS;
        at + if is_just_missed { 0 } else { wait }
    }

    fn ns_of(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.turn_ns) / u128::from(self.track_bytes)) as u64
    }

    /// When the arm, free now, has moved these bytes.
    fn arm_ends(&self, offset: u64, len: u64, now: Time) -> u64 {
        let arrives = if self.arm == offset {
            now.0
        } else {
            now.0 + self.seek_ns(self.arm, offset)
        };
        self.passes(offset, arrives).saturating_add(self.ns_of(len))
    }

    /// When a read ends that goes on where the last one stopped.
    fn read_on_ends(&self, job: &Job) -> Option<u64> {
        let (end, at) = self.read_on?;
        let behind = job.offset.saturating_add(job.len).checked_sub(end)?;
        let follows = job.kind == Kind::Read && job.offset == end && behind <= READ_ON;
        follows.then(|| at.0 + self.ns_of(behind))
    }

    fn ends(&self, job: &Job, now: Time) -> u64 {
        match self.read_on_ends(job) {
            Some(end) => end.max(now.0),
            None => self.arm_ends(job.offset, job.moved(), now),
        }
    }

    fn is_cached(&self, job: &Job) -> bool {
        job.kind == Kind::Write && !job.durable && job.len <= self.disk.write_cache_bytes
    }

    /// What needs no arm: writes that the cache has room for, flushes with nothing left to put away, and what moves nothing.
    fn without_arm(&mut self, queue: &mut VecDeque<Job>, now: Time) -> Option<(Busy, Time)> {
        let oldest = self.oldest_dirty();
        let room = self.disk.write_cache_bytes.saturating_sub(self.dirty_bytes);
        let at = queue.iter().take(self.depth()).position(|job| match job.kind {
            Kind::Write => self.is_cached(job) && job.len <= room,
            Kind::Flush => oldest.is_none_or(|mark| mark >= job.mark),
            Kind::Allocate | Kind::Truncate | Kind::Other => true,
            Kind::Read => false,
        })?;
        let job = queue.remove(at)?;
        let ns = match job.kind {
            Kind::Write => {
                self.dirty_bytes += job.len;
                self.dirty.push_back(Dirty {
                    mark: self.next_mark,
                    offset: job.offset,
                    len: job.len,
                });
                self.next_mark += 1;
                transfer_ns(job.len, self.disk.interface_bytes_per_second)
            }
            _ => FLUSH_NS,
        };
        Some((Busy::Job(job), Time(now.0.saturating_add(ns))))
    }

    fn depth(&self) -> usize {
        self.disk.queue.max(1)
    }

    fn oldest_dirty(&self) -> Option<u64> {
        let waiting = self.dirty.iter().map(|dirty| dirty.mark).min();
        [waiting, self.destaging].into_iter().flatten().min()
    }

    fn with_arm(&mut self, queue: &mut VecDeque<Job>, now: Time) -> Option<(Busy, Time)> {
        let waits_for_cache = |job: &Job| job.kind == Kind::Flush || self.is_cached(job);
        let depth = self.depth();
        let jobs = || {
            queue
                .iter()
                .enumerate()
                .take(depth)
                .filter(|(_, job)| !waits_for_cache(job))
        };
        let flush_waits = queue.iter().take(depth).any(waits_for_cache);
        let destages = flush_waits || jobs().next().is_none() || self.dirty_bytes * 2 > self.disk.write_cache_bytes;
        let of_jobs = jobs().map(|(at, job)| {
            let is_old = now.0.saturating_sub(job.arrived.0) > WAIT_MAX_NS;
            let ends = self.ends(job, now);
            (!is_old, ends, self.ns_of(job.moved()), Candidate::Queued(at))
        });
        let of_dirty = self.dirty.iter().enumerate().take(if destages { depth } else { 0 });
        let of_dirty = of_dirty.map(|(at, dirty)| {
            let ends = self.arm_ends(dirty.offset, dirty.len, now);
            (true, ends, self.ns_of(dirty.len), Candidate::Destage(at))
        });
        // The shortest way, not the shortest request.
        let (_, end, _, nearest) = of_jobs
            .chain(of_dirty)
            .min_by_key(|&(is_young, ends, moving, _)| (is_young, ends.saturating_sub(moving)))?;
        let (work, reads_to) = match nearest {
            Candidate::Queued(at) => {
                let job = queue.remove(at)?;
                self.arm = job.offset.saturating_add(job.moved());
                // What the disk has read on is there before anybody asks for it; it passed at its own time.
                let passed = self.read_on_ends(&job).unwrap_or(end);
                let reads_to = (job.kind == Kind::Read).then_some((self.arm, Time(passed)));
                (Busy::Job(job), reads_to)
            }
            Candidate::Destage(at) => {
                let dirty = self.dirty.remove(at)?;
                self.arm = dirty.offset.saturating_add(dirty.len);
                self.destaging = Some(dirty.mark);
                (Busy::Own(dirty.len), None)
            }
        };
        self.read_on = reads_to;
        self.arm_is_busy = true;
        Some((work, Time(end)))
    }

    fn used_arm(&self, work: &Busy) -> bool {
        match work {
            Busy::Own(_) => true,
            Busy::Job(job) => match job.kind {
                Kind::Read => true,
                Kind::Write => !self.is_cached(job),
                Kind::Flush | Kind::Allocate | Kind::Truncate | Kind::Other => false,
            },
        }
    }
}

impl Mechanism for RotatingState {
    fn arrived(&mut self, job: &mut Job) {
        job.mark = self.next_mark;
    }

    fn next(&mut self, queue: &mut VecDeque<Job>, now: Time, _: &mut Random) -> Option<(Busy, Time)> {
        if let Some(begun) = self.without_arm(queue, now) {
            return Some(begun);
        }
        if self.arm_is_busy {
            return None;
        }
        self.with_arm(queue, now)
    }

    fn ended(&mut self, work: &Busy) {
        if self.used_arm(work) {
            self.arm_is_busy = false;
        }
        if let Busy::Own(bytes) = work {
            self.dirty_bytes -= bytes;
            self.destaging = None;
        }
    }
}
