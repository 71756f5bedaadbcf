//! The loop: one lane, one stage, always as many requests under way as asked for.
//!
//! Whenever a batch of places is free, a batch is gathered (offsets drawn, blocks stamped), then handed over, then what has
//! ended is reaped. Time is read at three moments of a round, not for each request: before the hand-over (from there every
//! request of the batch counts), after it (the difference is the submit latency: the call and the turn that carries it to
//! the kernel, which must not wait), and after a turn that has waited (up to there every request that it found counts).
//! Where one turn submits and waits, all batches that fit are gathered for it, and the middle moment is left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use baio::{Error, Fault};
use baio_console::failure::Failure;
use baio_console::interrupt;
use baio_engine::{Memory, Wait};

use super::job::{Job, Lane, Rw, Stage, Verify, warm_bytes};
use super::pattern::Random;
use super::result::LaneReport;
use super::round::{Round, is_hopeless};
use super::schedule::{Next, Piece, Schedule};
use super::target::{Ended, Reach, Target, buffers};
use super::verify::{Ledger, Stamp, check};
use crate::cache_counts::CacheCounts;

/// What lanes tell each other while they run. Flags only: nothing else is read on their strength.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Somebody has failed: begin nothing more.
    pub(super) stop: AtomicBool,
    /// Requests that have ended in this stage, counted only where somebody looks.
    pub(super) ended: Option<Arc<AtomicU64>>,
}

/// One place for a request.
struct Slot {
    /// Here while no request has it.
    memory: Memory,
    piece: Piece,
    /// When it was handed over.
    at: Instant,
}

/// A lane that is ready to run.
pub(super) struct Driver<'a, L: Reach> {
    job: &'a Job,
    lane: &'a Lane,
    index: usize,
    target: Target<L>,
    ledgers: &'a [Arc<Ledger>],
    signals: &'a Signals,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Gathered, and not handed over yet.
    gathered: Vec<u32>,
    /// For memory that cannot be borrowed.
    scratch: Vec<u8>,
}

impl<'a, L: Reach> Driver<'a, L> {
    /// Opens everything and fills the buffers.
    pub(super) fn new(
        job: &'a Job,
        index: usize,
        shared: &L::Shared,
        ledgers: &'a [Arc<Ledger>],
        signals: &'a Signals,
    ) -> Result<Driver<'a, L>, Failure> {
        let lane = &job.lanes[index];
        let mut target = L::open_lane(job, index, shared)?;
        let mut scratch = vec![0; job.request_size as usize];
        let mut random = Random::new(job.seed);
        let now = Instant::now();
        let memory = buffers(job, lane, &mut target)?;
        let slots: Vec<Slot> = memory
            .into_iter()
            .map(|mut memory| {
                random.fill(&mut scratch);
                put(&mut memory, &scratch);
                Slot {
                    memory,
                    piece: Piece::default(),
                    at: now,
                }
            })
            .collect();
        let count = slots.len();
        Ok(Driver {
            job,
            lane,
            index,
            target,
            ledgers,
            signals,
            slots,
            free: (0..count as u32).rev().collect(),
            gathered: Vec::with_capacity(count),
            scratch,
        })
    }

    /// Runs one stage to its end, and syncs what it asks for.
    pub(super) fn run(&mut self, stage: &Stage, number: usize) -> LaneReport {
        self.run_over(self.lane, stage, number)
    }

    /// Reads the first `percent` of each stream, at random, so that nothing is read ahead: what follows finds just these.
    pub(super) fn warm(&mut self, percent: u8) -> LaneReport {
        let mut lane = self.lane.clone();
        for stream in &mut lane.streams {
            stream.end = stream.start + warm_bytes(stream.end - stream.start, percent, self.job.request_size);
        }
        let stage = Stage {
            once: true,
            ..Stage::of(Rw::RandomRead)
        };
        self.run_over(&lane, &stage, self.job.stages.len())
    }

    fn run_over(&mut self, lane: &Lane, stage: &Stage, number: usize) -> LaneReport {
        let before = self.target.stats();
        let cache = self.target.cache_stats();
        let mut schedule = Schedule::new(self.job, lane, stage, [self.index, number], self.ledgers);
        let mut round = Round::new(self.index, *stage, self.target.backend());
        let mut now = round.report.begun;
        while let Some(then) = self.step(&mut schedule, &mut round, now) {
            now = then;
        }
        let after = self.target.stats();
        round.report.ended = now;
        // A service that has ended tells nothing any more.
        round.report.system_calls = after.system_calls.saturating_sub(before.system_calls);
        round.report.iterations = after.iterations.saturating_sub(before.iterations);
        self.sync(&mut round);
        let counted = cache.zip(self.target.cache_stats());
        round.report.cache = counted.map(|(before, after)| CacheCounts::between(&before, &after));
        round.report
    }

    /// One time through: gather, hand over, reap. The time at its end; `None` when there is nothing left.
    fn step(&mut self, schedule: &mut Schedule<'_>, round: &mut Round, now: Instant) -> Option<Instant> {
        let batch = self.batch();
        let now = self.rest(round, now);
        self.gather(schedule, round, now, batch);
        if !self.gathered.is_empty() {
            let then = self.hand_over(round);
            if !self.job.one_turn {
                self.reap(round, then);
            }
            if self.under_way() == 0 || (self.free.len() >= batch && !round.over) {
                return Some(then);
            }
        }
        if self.under_way() == 0 {
            if round.over {
                return None;
            }
            // Every block that could be touched is in another lane's hands.
            std::thread::yield_now();
            return Some(Instant::now());
        }
        let missing = if round.over {
            1
        } else {
            batch.saturating_sub(self.free.len()).max(1)
        };
        if let Err(fault) = self.target.turn(Wait::for_count(missing as u32)) {
            self.reap(round, now);
            round.broken(self.job, fault);
            return None;
        }
        let then = Instant::now();
        self.reap(round, then);
        Some(then)
    }

    /// Between one request and the next, where that is asked for. The time at its end.
    fn rest(&self, round: &Round, now: Instant) -> Instant {
        match self.job.interval {
            Some(interval)
                if round.drawn > 0
                    && !round.over
                    && self.under_way() == 0
                    && round.stage.requests.is_none_or(|limit| round.drawn < limit) =>
            {
                let gone = now.saturating_duration_since(round.report.begun);
                let left = round.stage.runtime.map(|runtime| runtime.saturating_sub(gone));
                // Nobody rests beyond the end.
                interrupt::pause(left.map_or(interval, |left| interval.min(left)));
                Instant::now()
            }
            _ => now,
        }
    }

    fn batch(&self) -> usize {
        (self.lane.batch as usize).clamp(1, self.slots.len().max(1))
    }

    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len() - self.gathered.len()
    }

    /// Draws a batch of requests, or as many as go into one turn, if there is room and the stage goes on.
    fn gather(&mut self, schedule: &mut Schedule<'_>, round: &mut Round, now: Instant, batch: usize) {
        round.over |= self.is_over(round, now);
        let room = self.free.len() + self.gathered.len();
        let batches = room / batch;
        // A turn that submits and waits in one takes all there is: then time is read once for them all.
        let most = batch * if self.job.one_turn { batches } else { batches.min(1) };
        while !round.over && self.gathered.len() < most {
            if round.stage.requests.is_some_and(|limit| round.drawn >= limit) {
                round.over = true;
                break;
            }
            match schedule.next() {
                Next::Piece(piece) => {
                    round.drawn += 1;
                    self.prepare(piece);
                }
                Next::Busy => break,
                Next::End => round.over = true,
            }
        }
    }

    fn is_over(&self, round: &Round, now: Instant) -> bool {
        let late = |runtime| now.saturating_duration_since(round.report.begun) >= runtime;
        round.stage.runtime.is_some_and(late)
            || self.signals.stop.load(Ordering::Relaxed)
            || interrupt::came().is_some()
    }

    fn prepare(&mut self, piece: Piece) {
        let Some(tag) = self.free.pop() else { return };
        let slot = &mut self.slots[tag as usize];
        slot.piece = piece;
        if piece.write && self.job.verify.is_some() {
            let stamp = Stamp {
                seed: self.job.seed,
                offset: piece.offset,
                generation: piece.generation,
            };
            stamp_into(&mut slot.memory, stamp, &mut self.scratch);
        }
        self.gathered.push(tag);
    }

    /// Queues what was gathered, and carries it to the kernel. The time at its end.
    fn hand_over(&mut self, round: &mut Round) -> Instant {
        let begun = Instant::now();
        for index in 0..self.gathered.len() {
            let tag = self.gathered[index];
            let slot = &mut self.slots[tag as usize];
            slot.at = begun;
            let memory = std::mem::take(&mut slot.memory);
            if let Err(memory) = self.target.start(&slot.piece, memory, tag.into()) {
                slot.memory = memory;
                self.free.push(tag);
                let refusal = self.target.refusal();
                round.broken(self.job, refusal.unwrap_or(Fault::Io(baio_engine::Error::Full)));
                continue;
            }
        }
        self.gathered.clear();
        let report = &mut round.report;
        report.in_flight_max = report.in_flight_max.max((self.slots.len() - self.free.len()) as u64);
        if self.job.one_turn {
            return begun;
        }
        let turned = self.target.turn(Wait::No);
        let ended = Instant::now();
        report.submits.record(ended - begun);
        if let Err(fault) = turned {
            round.broken(self.job, fault);
        }
        ended
    }

    fn reap(&mut self, round: &mut Round, now: Instant) {
        let mut count = 0;
        // What comes last need not be asked for what comes next.
        while self.under_way() > 0 {
            let Some(ended) = self.target.next() else { break };
            self.settle(round, ended, now);
            count += 1;
        }
        if let Some(all) = &self.signals.ended {
            all.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn settle(&mut self, round: &mut Round, ended: Ended, now: Instant) {
        let tag = ended.tag as usize;
        let Some(slot) = self.slots.get_mut(tag) else { return };
        slot.memory = ended.memory;
        self.free.push(tag as u32);
        let (piece, at) = (slot.piece, slot.at);
        let whole = matches!(ended.result, Ok(bytes) if u64::from(bytes) == self.job.request_size);
        if let Some(ledger) = self.ledgers.get(piece.object) {
            if piece.write {
                ledger.end_write(piece.offset, whole);
            } else {
                ledger.end_read(piece.offset);
            }
        }
        let tally = round.tally(piece);
        tally.requests += 1;
        if whole {
            tally.latency.record(now.saturating_duration_since(at));
            if !piece.write && self.job.verify.is_some() {
                self.check(round, piece, tag);
            }
            return;
        }
        tally.errors += 1;
        let failure = match ended.result {
            Err(fault) => {
                // Where nothing is there any more, what this request met is no news.
                if let Some(refusal) = self.target.refusal() {
                    let failure = self.failed(piece, refusal);
                    return round.cut(failure);
                }
                let hopeless = matches!(&fault, Fault::Io(error) if is_hopeless(error.errno()));
                let failure = self.failed(piece, fault);
                if hopeless {
                    round.fatal(failure.clone());
                }
                failure
            }
            Ok(bytes) => Failure::new(
                self.job.command,
                "EIO",
                format!("a read of {} bytes ended after {bytes}", self.job.request_size),
            )
            .on(self.job.objects.name(piece.object))
            .at(piece.offset)
            .needing("an object that keeps its size")
            .cured_by("see who cuts it meanwhile"),
        };
        round.failed(failure);
    }

    fn failed(&self, piece: Piece, fault: Fault) -> Failure {
        let operation = if piece.write { "write" } else { "read" };
        let name = self.job.objects.name(piece.object);
        let error = Error::new(operation, name.clone(), fault).at(piece.offset);
        Failure::from_storage(self.job.command, name, &error)
    }

    fn check(&mut self, round: &mut Round, piece: Piece, tag: usize) {
        if piece.generation == 0 && self.job.verify == Some(Verify::Own) {
            round.report.unverified += 1;
            return;
        }
        let expected = Stamp {
            seed: self.job.seed,
            offset: piece.offset,
            generation: piece.generation,
        };
        let bytes: &[u8] = match &self.slots[tag].memory {
            Memory::Own(buffer) => buffer,
            Memory::Span(span) => {
                span.copy_out(&mut self.scratch);
                &self.scratch
            }
            _ => &[],
        };
        match check(bytes, expected) {
            Ok(()) => round.report.verified += 1,
            Err(mismatch) => round.fatal(
                Failure::new(self.job.command, "EVERIFY", mismatch.said)
                    .on(self.job.objects.name(piece.object))
                    .at(piece.offset + mismatch.at)
                    .needing("the bytes that were last written there")
                    .cured_by("if this run's seed and request size wrote it, suspect the device; else write it with them first"),
            ),
        }
    }

    /// The objects of the lane, once each.
    fn sync(&mut self, round: &mut Round) {
        let Some(durability) = round.stage.sync else { return };
        let report = &round.report;
        if report.fatal.is_some() || report.cut.is_some() || interrupt::came().is_some() {
            return;
        }
        let mut objects: Vec<usize> = self.lane.streams.iter().map(|stream| stream.object).collect();
        objects.sort_unstable();
        objects.dedup();
        let begun = Instant::now();
        for object in objects {
            if let Err(fault) = self.target.sync(object, durability) {
                let name = self.job.objects.name(object);
                let error = Error::new("sync", name.clone(), fault);
                round.report.sync_errors += 1;
                round.failed(Failure::from_storage(self.job.command, name, &error));
            }
        }
        round.report.sync = begun.elapsed();
    }

    /// Gives everything back.
    pub(super) fn close(self) -> Result<(), Failure> {
        let Driver { target, slots, .. } = self;
        drop(slots);
        target.close()
    }
}

/// Fills a buffer.
pub(super) fn put(memory: &mut Memory, bytes: &[u8]) {
    match memory {
        Memory::Own(buffer) => {
            let len = buffer.len().min(bytes.len());
            buffer[..len].copy_from_slice(&bytes[..len]);
        }
        Memory::Span(span) => {
            span.copy_in(bytes);
        }
        _ => {}
    }
}

fn stamp_into(memory: &mut Memory, stamp: Stamp, scratch: &mut [u8]) {
    if let Memory::Own(buffer) = memory {
        stamp.fill(buffer);
    } else {
        stamp.fill(scratch);
        put(memory, scratch);
    }
}
