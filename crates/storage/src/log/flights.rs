//! Batches at the device: what is durable when they end, in whatever order they do; and what a failed one means.

use std::collections::VecDeque;
use std::time::Duration;

use baio_engine::{Buffer, Errno, Memory, Time};

use super::error::LogError;
use super::format::{BatchHeader, DATA_AT, Head};
use super::front::{Batch, Life};
use super::index::Mark;
use super::{IoOwner, LogIoId, LogIoKind, LogPart, LogRequest, LogUsage, Lsn};

/// Classes of batch sizes that are counted: 512 B to 16 MiB.
pub const BATCH_CLASSES: usize = 16;

/// A log that is idle for so long tells the device how far it is durable.
const IDLE_NOTE: Duration = Duration::from_millis(100);

/// One that is never idle tells it after so many bytes: behind a hole of many batches no other may be left to tell.
const BUSY_NOTE: u64 = 64 << 20;

#[derive(Debug)]
struct Flight {
    lsn: u64,
    prev: u64,
    end: u64,
    place: u64,
    len: u32,
    records: u32,
    /// The group that is not whole at its end.
    group: Option<Head>,
    has_ended: bool,
    buffer: Option<Buffer>,
}

impl Flight {
    /// What is durable, in whole groups, when this and all before are.
    fn complete(&self) -> u64 {
        self.group.map_or(self.end, |group| group.lsn)
    }
}

/// Batches on their way, in the order of their LSNs.
#[derive(Debug, Default)]
pub(super) struct Flights {
    queue: VecDeque<Flight>,
    /// Those that have not ended.
    at_device: u32,
    /// Number of the first in the queue.
    first: u64,
    /// From this number on nothing is acknowledged.
    failed_from: Option<u64>,
    /// The end of the contiguous batches that are durable.
    pub(super) durable_end: u64,
    /// Where that lies.
    durable_place: u64,
    /// The group that is not whole there.
    group: Option<Head>,
    last_end_at: Time,
    /// Buffers that the front gets back; empty but while ends are told.
    ended: Vec<Buffer>,
    batches: u64,
    bytes: u64,
    records: u64,
    sizes: [u64; BATCH_CLASSES],
    in_flight_max: u32,
}

impl Flights {
    /// A log was opened, with its end there.
    pub(super) fn begin(&mut self, end: u64, place: u64) {
        (self.durable_end, self.durable_place) = (end, place);
    }

    pub(super) fn at_device(&self) -> u32 {
        self.at_device
    }

    /// Where whole groups end that are durable.
    pub(super) fn complete(&self) -> Head {
        self.group.unwrap_or(Head {
            lsn: self.durable_end,
            batch: self.durable_end,
            place: self.durable_place,
        })
    }

    /// How much from this place on may be durable batches, up to the area's end.
    pub(super) fn durable_behind(&self, place: u64, capacity: u64) -> u64 {
        if place < self.durable_place {
            self.durable_place - place
        } else {
            capacity - place
        }
    }

    /// The wrapped part of the area lies elsewhere now.
    pub(super) fn move_to(&mut self, place: u64) {
        self.durable_place = place;
    }

    pub(super) fn tell(&self, usage: &mut LogUsage) {
        usage.batches = self.batches;
        usage.batch_bytes = self.bytes;
        usage.batch_records = self.records;
        usage.batch_sizes = self.sizes;
        usage.in_flight_max = self.in_flight_max;
    }

    fn push(&mut self, batch: &Batch, len: u32) -> u64 {
        let number = self.first + self.queue.len() as u64;
        self.at_device += 1;
        self.in_flight_max = self.in_flight_max.max(self.at_device);
        self.queue.push_back(Flight {
            lsn: batch.lsn,
            prev: batch.prev,
            end: batch.lsn + u64::from(len),
            place: batch.place,
            len,
            records: batch.records,
            group: batch.group,
            has_ended: false,
            buffer: None,
        });
        number
    }

    fn count(&mut self, flight: &Flight) {
        self.batches += 1;
        self.bytes += u64::from(flight.len);
        self.records += u64::from(flight.records);
        let class = (flight.len.div_ceil(512)).next_power_of_two().trailing_zeros() as usize;
        self.sizes[class.min(BATCH_CLASSES - 1)] += 1;
    }

    /// The next batch of the durable prefix, if it has ended.
    fn pop(&mut self, capacity: u64) -> Option<Flight> {
        if self.failed_from.is_some_and(|failed| failed <= self.first) || !self.queue.front()?.has_ended {
            return None;
        }
        let flight = self.queue.pop_front()?;
        self.first += 1;
        self.count(&flight);
        self.durable_end = flight.end;
        let place = flight.place + u64::from(flight.len);
        self.durable_place = if place == capacity { 0 } else { place };
        self.group = flight.group.filter(|_| !crate::seeded_bug("log-groups-by-halves"));
        Some(flight)
    }
}

impl LogPart {
    /// Seals the next batch, when fewer than the window are at the device, and hands it out.
    pub(super) fn next_batch(&mut self) -> Option<(LogIoId, LogIoKind, Memory)> {
        let header = self.header?;
        let mut batch = self.take_batch()?;
        let len = batch.buffer.len() as u32;
        let number = self.flights.push(&batch, len);
        let watermark = if crate::seeded_bug("log-watermark-ahead") {
            batch.lsn
        } else {
            self.flights.durable_end
        };
        BatchHeader {
            epoch: header.epoch,
            lsn: batch.lsn,
            prev: batch.prev,
            watermark,
            bytes: batch.used,
            first: batch.first,
            goes_on: batch.goes_on,
        }
        .seal(&mut batch.buffer, &header.salt);
        let offset = DATA_AT + batch.place;
        let id = self.new_io(IoOwner::Batch(number));
        Some((id, LogIoKind::Write { offset, len }, Memory::Own(batch.buffer)))
    }

    fn take_batch(&mut self) -> Option<Batch> {
        let mut front = self.shared.lock();
        if matches!(front.life, Life::Opening | Life::Failed(_)) {
            return None;
        }
        let is_filling = front.full.is_empty() && front.open.is_some();
        // It gathers while the device is busy, too.
        let since = is_filling.then(|| *self.gather_since.get_or_insert(self.now));
        if !front.may_send(!is_filling) {
            return None;
        }
        if let Some(since) = since {
            // A log that is being closed, or grows, gathers no more.
            let gathers = !self.options.gather.is_zero() && front.life == Life::Open;
            if !gathers || self.now >= since.after(self.options.gather) {
                front.seal(None, false);
            }
        }
        front.has_rung = false;
        let batch = front.full.pop_front();
        if batch.is_some() {
            front.in_flight += 1;
            self.gather_since = None;
        }
        batch
    }

    pub(super) fn batch_ended(&mut self, number: u64, result: Result<u32, Errno>, buffer: Option<Buffer>) {
        let Some(index) = number.checked_sub(self.flights.first) else {
            return;
        };
        let Some(flight) = self.flights.queue.get_mut(index as usize) else {
            return;
        };
        flight.has_ended = true;
        self.flights.at_device -= 1; // An I/O ends once.
        // Behind a slow write any number may end: their memory goes back, but for a few that somebody at the tail may read.
        let is_kept = index == 0 || self.shared.recent().is_kept() && index < u64::from(self.options.window);
        match is_kept {
            true => flight.buffer = buffer,
            false => self.flights.ended.extend(buffer),
        }
        let (len, lsn) = (flight.len, flight.lsn);
        let result = if crate::seeded_bug("log-failed-write-acknowledged") {
            Ok(len)
        } else {
            result
        };
        match result {
            Ok(written) if written == len => {}
            Ok(_) => self.batch_failed(number, Errno::EIO, lsn),
            Err(errno) => self.batch_failed(number, errno, lsn),
        }
        self.acknowledge();
    }

    /// The contiguous prefix of batches that have ended is durable.
    fn acknowledge(&mut self) {
        self.flights.last_end_at = self.now;
        let capacity = self.header.map_or(0, |header| header.capacity);
        let mut ended = std::mem::take(&mut self.flights.ended);
        // Until these are said to be durable nobody sees them here, and then they are found here.
        let mut recent = self.shared.recent();
        loop {
            let group = self.flights.group;
            let Some(mut flight) = self.flights.pop(capacity) else {
                break;
            };
            self.index.note(Mark {
                lsn: flight.lsn,
                place: flight.place,
                group,
            });
            if let Some(buffer) = flight.buffer.take() {
                recent.keep(flight.prev, flight.end, &buffer);
                ended.push(buffer);
            }
        }
        let complete = self.flights.complete().lsn;
        let mut front = self.shared.lock();
        front.in_flight = self.flights.at_device();
        ended.drain(..).for_each(|buffer| front.give_back(buffer));
        self.flights.ended = ended;
        front.durable_to = front.durable_to.max(self.flights.durable_end);
        if complete > self.shared.durable() {
            self.shared.set_durable(complete);
            front.waits.durable_to(complete);
        }
        front.tell_room();
        drop(front);
        drop(recent);
        self.note_when_busy();
    }

    fn note_when_busy(&mut self) {
        let noted = self.header.map_or(u64::MAX, |header| header.watermark);
        let is_due = self.flights.durable_end.saturating_sub(noted) >= BUSY_NOTE;
        if is_due && self.jobs.is_empty() && self.running.is_none() {
            self.start_job(None, LogRequest::NoteWatermark);
        }
    }

    /// A write of a batch failed: what is before it may still be acknowledged.
    fn batch_failed(&mut self, number: u64, errno: Errno, lsn: u64) {
        let failed = self.flights.failed_from.map_or(number, |failed| failed.min(number));
        self.flights.failed_from = Some(failed);
        let index = number.saturating_sub(self.flights.first) as usize;
        let before = index.checked_sub(1).and_then(|before| self.flights.queue.get(before));
        let lost_from = before.map_or(self.shared.durable(), Flight::complete);
        self.fail(errno, lost_from.min(lsn));
    }

    /// The header could not be written: nothing more is acknowledged.
    pub(super) fn header_failed(&mut self, errno: Errno) -> LogError {
        self.flights.failed_from = Some(self.flights.first);
        self.fail(errno, self.shared.durable())
    }

    /// Whoever carries out its I/Os has ended: nothing becomes durable any more, and who waits hears why.
    pub fn driver_ended(&mut self, errno: Errno) {
        let life = self.shared.lock().life.clone();
        if matches!(life, Life::Opening | Life::Open | Life::Paused) {
            self.fail(errno, self.shared.durable());
        }
    }

    fn fail(&mut self, errno: Errno, lost_from: u64) -> LogError {
        let mut front = self.shared.lock();
        front.lost_from = front.lost_from.min(lost_from);
        let lost_from = front.lost_from;
        let error = LogError::Failed {
            errno,
            lsn: Lsn(lost_from),
        };
        front.life = Life::Failed(error.clone());
        front.waits.fail_from(lost_from, &error);
        // These never go to the device.
        front.full.clear();
        front.open = None;
        self.gather_since = None;
        error
    }

    /// When the device is to be told how far the log is durable, as nothing else tells it.
    pub(super) fn idle_note_at(&self) -> Option<Time> {
        let knows = self
            .header
            .is_none_or(|header| header.watermark >= self.flights.durable_end);
        let is_busy = !self.flights.queue.is_empty() || self.running.is_some() || !self.jobs.is_empty();
        let is_open = || self.shared.lock().life == Life::Open;
        (!knows && !is_busy && is_open()).then(|| self.flights.last_end_at.after(IDLE_NOTE))
    }

    pub(super) fn note_when_idle(&mut self) {
        if self.idle_note_at().is_some_and(|at| at <= self.now) {
            self.start_job(None, LogRequest::NoteWatermark);
        }
    }
}
