//! The front of a log: the batch that is open, those that are full, and how much more they may hold. Behind a mutex, because
//! callers of any thread append here; nothing in it waits or does I/O.
//!
//! The open batch has its place on the device already, as the one before it was sealed when it was opened. So a record's LSN is
//! known when it has been copied. What does not fit into the rest of the batch goes on in the next.

use std::collections::VecDeque;
use std::sync::Arc;

use baio_engine::{Arena, Buffer, Errno};

use super::Lsn;
use super::bell::LogBell;
use super::error::LogError;
use super::format::{
    BATCH_HEADER, Head, RECORD_FIRST, RECORD_HEADER, RECORD_LAST, RECORD_MAX, record_bytes, record_header, round_up,
};
use super::retain::Retains;
use super::waits::Waits;

/// What an append may meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Being made or recovered.
    Opening,
    Open,
    /// It is growing: appends wait.
    Paused,
    /// A write failed.
    Failed(LogError),
    Closed,
}

/// A batch that is being filled, or is full.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) buffer: Buffer,
    pub(super) lsn: u64,
    pub(super) prev: u64,
    pub(super) place: u64,
    /// Bytes used, the header's place included.
    pub(super) used: u32,
    /// Where the first record that begins here has its header; 0 for none.
    pub(super) first: u32,
    pub(super) goes_on: bool,
    /// Where the group begins that is not whole at its end.
    pub(super) group: Option<Head>,
    pub(super) records: u32,
}

/// Where the next batch goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    pub(super) lsn: u64,
    /// The end of the batch before it: another number only at the beginning of an epoch.
    pub(super) prev: u64,
    pub(super) place: u64,
}

/// Where records go that are not appended yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The batch that they fill, and how far; 0 when it does not exist yet.
    at: Tail,
    filled: u32,
    used: u64,
    /// New ones.
    pub(super) batches: usize,
}

/// No batch is made shorter than this for want of memory.
const SHORT_BATCH: u32 = 64 << 10;

/// What stays as it is while a log is open, but for `capacity`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    pub(super) block: u32,
    /// At most what the header says.
    pub(super) batch_max: u32,
    pub(super) capacity: u64,
    pub(super) window: u32,
    /// At most the window: with so many at the device none goes out that is not full.
    pub(super) window_short: u32,
    /// How far LSNs that are given may lie beyond what is durable.
    pub(super) ahead: u64,
}

/// LSNs between what an opening found and the first one that it gives: those of records that a crash has lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    /// End of the last whole group.
    pub(super) lost: u64,
    /// End of the last batch: where a reader who has read all goes on. No record has this LSN.
    pub(super) end: u64,
    /// First LSN of the epoch.
    pub(super) next: u64,
}

impl Gap {
    /// The LSN that is waited for: a reader at the end of the old batches goes on with the new ones.
    pub(super) fn wanted(&self, lsn: u64) -> u64 {
        if lsn == self.end { self.next } else { lsn }
    }

    /// Was a record with this LSN lost?
    pub(super) fn check(&self, lsn: u64) -> Result<(), LogError> {
        if lsn < self.lost || lsn >= self.next {
            return Ok(());
        }
        Err(self.error())
    }

    pub(super) fn error(&self) -> LogError {
        LogError::Lost {
            end: Lsn(self.lost),
            next: Lsn(self.next),
        }
    }
}

/// Counters of the appending side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrontCounts {
    pub(super) appends: u64,
    pub(super) append_bytes: u64,
    pub(super) would_block: u64,
    pub(super) bells: u64,
}

pub(super) struct Front {
    pub(super) life: Life,
    pub(super) shape: Shape,
    arena: Arc<Arena>,
    /// Bytes of it that batches take at most, where they can be made short enough.
    pub(super) memory_max: usize,
    pub(super) spare: Vec<Buffer>,
    pub(super) open: Option<Batch>,
    pub(super) full: VecDeque<Batch>,
    pub(super) tail: Tail,
    /// Everything below is durable, whole groups or not; at least the first LSN of this epoch.
    pub(super) durable_to: u64,
    /// Bytes of the area between the head's batch and the tail.
    pub(super) used: u64,
    /// LSN of the oldest record that is kept.
    pub(super) head: u64,
    /// Nothing from this LSN on is acknowledged: a write failed, or the log was closed there.
    pub(super) lost_from: u64,
    /// What the opening did not find.
    pub(super) gap: Gap,
    /// Batches at the device: with fewer than the window the driver is told of a new one.
    pub(super) in_flight: u32,
    /// There is a driver still, who calls back.
    pub(super) is_driven: bool,
    /// The driver has said that it looks here again before it sleeps.
    pub(super) is_driver_awake: bool,
    /// It was rung for, and has not looked since.
    pub(super) has_rung: bool,
    pub(super) bell: Option<LogBell>,
    pub(super) waits: Waits,
    pub(super) retains: Retains,
    pub(super) counts: FrontCounts,
}

impl Front {
    pub(super) fn new(arena: &Arc<Arena>) -> Front {
        Front {
            life: Life::Opening,
            shape: Shape::default(),
            arena: Arc::clone(arena),
            memory_max: usize::MAX,
            spare: Vec::new(),
            open: None,
            full: VecDeque::new(),
            tail: Tail::default(),
            durable_to: 0,
            used: 0,
            head: 0,
            lost_from: u64::MAX,
            gap: Gap::default(),
            in_flight: 0,
            is_driven: true,
            is_driver_awake: false,
            has_rung: false,
            bell: None,
            waits: Waits::default(),
            retains: Retains::default(),
            counts: FrontCounts::default(),
        }
    }

    /// What a forked child has: nothing is appended, and nothing that is not durable yet is ever told to be.
    pub(super) fn of_a_child(arena: &Arc<Arena>, lsn: Lsn) -> Front {
        Front {
            life: Life::Failed(LogError::Failed {
                errno: Errno::ECHILD,
                lsn,
            }),
            lost_from: 0,
            is_driven: false,
            ..Front::new(arena)
        }
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Takes the buffers that it never gives back: what is in flight, what is open, and one. Where the arena has not so much, its
    /// batches are shorter than the format allows.
    pub(super) fn take_buffers(&mut self) -> Result<(), LogError> {
        while self.shape.batch_max as usize > self.memory_max / self.kept_buffers() && self.halve() {}
        while !self.fetch(self.kept_buffers()) {
            self.spare.clear();
            if !self.halve() {
                return Err(LogError::NoMemory);
            }
        }
        Ok(())
    }

    /// False: batches are as short as they may be.
    fn halve(&mut self) -> bool {
        let half = self.shape.batch_max / 2;
        let may = half >= SHORT_BATCH && half % self.shape.block == 0;
        if may {
            self.shape.batch_max = half;
        }
        may
    }

    pub(super) fn kept_buffers(&self) -> usize {
        self.shape.window as usize + 2
    }

    /// Has so many spare buffers, if the arena does.
    fn fetch(&mut self, count: usize) -> bool {
        while self.spare.len() < count {
            match self.arena.buffer(self.shape.batch_max as usize) {
                Some(buffer) => self.spare.push(buffer),
                None => return false,
            }
        }
        true
    }

    /// A buffer of a batch that has ended.
    pub(super) fn give_back(&mut self, mut buffer: Buffer) {
        if self.spare.len() < self.kept_buffers() && buffer.capacity() >= self.shape.batch_max as usize {
            buffer.set_len(self.shape.batch_max as usize);
            self.spare.push(buffer);
        }
    }

    pub(super) fn drop_buffers(&mut self) {
        self.spare = Vec::new();
    }

    /// The next LSN that an append gets, unless it has to go to another batch.
    pub(super) fn next_lsn(&self) -> u64 {
        match &self.open {
            Some(open) => open.lsn + u64::from(open.used),
            None => self.tail.lsn,
        }
    }

    /// May a batch go to the device that is full? May one that is not?
    pub(super) fn may_send(&self, is_full: bool) -> bool {
        let window = if is_full {
            self.shape.window
        } else {
            self.shape.window_short
        };
        self.in_flight < window
    }

    /// Has it anything that is not at the device yet?
    pub(super) fn has_work(&self) -> bool {
        self.open.is_some() || !self.full.is_empty()
    }

    /// Bytes of payload that one record may have.
    pub(super) fn record_max(&self) -> u64 {
        // A batch costs its header, and at the area's end, or the buffer's, up to one block.
        let Shape {
            block,
            batch_max,
            capacity,
            ahead,
            ..
        } = self.shape;
        let room = capacity.min(ahead);
        let lost = (room / u64::from(batch_max.max(1)) + 3) * (BATCH_HEADER as u64 + u64::from(block));
        (RECORD_MAX as u64).min(room.saturating_sub(lost + RECORD_HEADER as u64) / 8 * 8)
    }

    /// May this be appended some day? Says how many bytes it takes in batches.
    fn measure(&self, records: &[&[u8]]) -> Result<u64, LogError> {
        let max = self.record_max();
        let (mut bytes, mut payload) = (0_u64, 0_u64);
        for record in records {
            payload += record.len() as u64;
            if record.len() as u64 > max {
                return Err(LogError::TooLong { bytes: payload, max });
            }
            bytes += record_bytes(record.len());
        }
        let room = self.shape.capacity.min(self.shape.ahead);
        let batches = room / u64::from(self.shape.batch_max.max(1)) + 3;
        let lost = batches * (BATCH_HEADER as u64 + u64::from(self.shape.block));
        if bytes > room.saturating_sub(lost) {
            return Err(LogError::TooLong { bytes: payload, max });
        }
        Ok(bytes)
    }

    pub(super) fn check_life(&self) -> Result<(), LogError> {
        match &self.life {
            Life::Open => Ok(()),
            Life::Paused => Err(LogError::WouldBlock),
            Life::Opening | Life::Closed => Err(LogError::Closed),
            Life::Failed(error) => Err(error.clone()),
        }
    }

    /// What who waits for this LSN is told at once: that it is durable, never will be, or is nobody's yet. Else he waits, for the next
    /// record at most.
    pub(super) fn told(&self, lsn: u64, durable: u64) -> Option<Result<(), LogError>> {
        let end = self.next_lsn();
        if matches!(self.life, Life::Open | Life::Paused) && lsn > end {
            return Some(Err(LogError::NotYet { end: Lsn(end) }));
        }
        (lsn < durable || lsn >= self.lost_from).then(|| self.lost(lsn))
    }

    fn lost(&self, lsn: u64) -> Result<(), LogError> {
        self.gap.check(lsn)?;
        if lsn < self.lost_from {
            return Ok(());
        }
        match &self.life {
            Life::Failed(error) => Err(error.clone()),
            _ => Err(LogError::Closed),
        }
    }

    /// Where a batch at this place may end at most, when so many bytes of the area are used in front of it.
    fn limit(&self, place: u64, used: u64) -> u64 {
        u64::from(self.shape.batch_max)
            .min(self.shape.capacity - place)
            .min(self.shape.capacity.saturating_sub(used))
    }

    /// How many new batches so many bytes need; `Full` or `WouldBlock` when they find no room now.
    pub(super) fn plan(&self, bytes: u64) -> Result<usize, LogError> {
        self.add_to(self.no_plan(), bytes).map(|plan| plan.batches)
    }

    /// Where the next record goes.
    pub(super) fn no_plan(&self) -> Plan {
        let (at, filled) = match &self.open {
            Some(open) => (
                Tail {
                    lsn: open.lsn,
                    prev: open.prev,
                    place: open.place,
                },
                open.used,
            ),
            None => (self.tail, 0),
        };
        Plan {
            at,
            filled,
            used: self.used,
            batches: 0,
        }
    }

    /// So many bytes more. No end of a write makes the area larger, but one lets LSNs go on.
    pub(super) fn add_to(&self, mut plan: Plan, mut bytes: u64) -> Result<Plan, LogError> {
        while bytes > 0 {
            let limit = self.limit(plan.at.place, plan.used);
            if plan.filled == 0 {
                if limit <= BATCH_HEADER as u64 {
                    return Err(LogError::Full);
                }
                plan.filled = BATCH_HEADER as u32;
                plan.batches += 1;
            }
            let here = bytes.min(limit.saturating_sub(u64::from(plan.filled)));
            bytes -= here;
            plan.filled += here as u32;
            if bytes > 0 {
                let padded = u64::from(round_up(plan.filled, self.shape.block));
                plan.at = self.behind(plan.at, padded);
                plan.used += padded;
                plan.filled = 0;
            }
        }
        let end = plan.at.lsn + u64::from(plan.filled);
        match end - self.durable_to <= self.shape.ahead {
            true => Ok(plan),
            false => Err(LogError::WouldBlock),
        }
    }

    fn behind(&self, tail: Tail, padded: u64) -> Tail {
        let place = tail.place + padded;
        Tail {
            lsn: tail.lsn + padded,
            prev: tail.lsn + padded,
            place: if place == self.shape.capacity { 0 } else { place },
        }
    }

    /// Appends one group; the LSN of its last record.
    pub(super) fn append(&mut self, records: &[&[u8]]) -> Result<Lsn, LogError> {
        self.check_life()?;
        let Some(final_record) = records.len().checked_sub(1) else {
            return Err(LogError::BadOptions("a group has one record at least"));
        };
        let bytes = self.measure(records)?;
        self.make_room(bytes)?;
        let mut group = None;
        let mut lsn = 0;
        for (number, record) in records.iter().enumerate() {
            let first = if number == 0 { RECORD_FIRST } else { 0 };
            let last = if number == final_record { RECORD_LAST } else { 0 };
            lsn = self.put(record, first | last, &mut group);
        }
        self.counts.appends += records.len() as u64;
        self.counts.append_bytes += bytes;
        Ok(Lsn(lsn))
    }

    /// Sees to it that so many bytes will find room and memory.
    fn make_room(&mut self, bytes: u64) -> Result<(), LogError> {
        if let Some(open) = &self.open {
            // The usual case: it fits into the open batch.
            let end = u64::from(open.used) + bytes;
            if end <= self.limit(open.place, self.used) && open.lsn + end - self.durable_to <= self.shape.ahead {
                return Ok(());
            }
        }
        let found = self.plan(bytes).and_then(|batches| self.take_memory(batches));
        self.counts.would_block += u64::from(found.is_err());
        found
    }

    /// Has buffers for so many batches. Where the arena has none left, those come back that wait for the device; if none do, nothing will
    /// change by waiting.
    pub(super) fn take_memory(&mut self, batches: usize) -> Result<(), LogError> {
        if self.fetch(batches) {
            return Ok(());
        }
        self.spare.truncate(self.kept_buffers());
        let is_coming_back = self.in_flight > 0 || self.has_work();
        Err(if is_coming_back {
            LogError::WouldBlock
        } else {
            LogError::NoMemory
        })
    }

    /// The batch to be filled, with room for eight bytes at least. `make_room` has seen to it that there is one.
    fn batch(&mut self, group: Option<Head>, goes_on: bool) -> Option<(&mut Batch, u32)> {
        if let Some(open) = &self.open {
            if u64::from(open.used) >= self.limit(open.place, self.used) {
                self.seal(group, goes_on);
            }
        }
        let limit = self.limit(self.tail.place, self.used) as u32;
        if self.open.is_none() {
            let buffer = self.spare.pop()?;
            let Tail { lsn, prev, place } = self.tail;
            self.open = Some(Batch {
                buffer,
                lsn,
                prev,
                place,
                used: BATCH_HEADER as u32,
                first: 0,
                goes_on: false,
                group: None,
                records: 0,
            });
        }
        self.open.as_mut().map(|open| (open, limit))
    }

    /// Copies one record in, over as many batches as it takes; its LSN.
    fn put(&mut self, record: &[u8], flags: u32, group: &mut Option<Head>) -> u64 {
        let header = record_header(record.len() as u32, flags);
        let Some((batch, limit)) = self.batch(*group, false) else {
            return 0;
        };
        let at = batch.used as usize;
        let lsn = batch.lsn + at as u64;
        let head = Head {
            lsn,
            batch: batch.lsn,
            place: batch.place,
        };
        batch.buffer[at..at + RECORD_HEADER].copy_from_slice(&header);
        batch.used += RECORD_HEADER as u32;
        batch.records += 1;
        if batch.first == 0 {
            batch.first = at as u32;
        }
        let group_head = *group.get_or_insert(head);
        let mut room = (limit - batch.used) as usize;
        let (mut batch, mut rest) = (batch, record);
        while !rest.is_empty() {
            if room == 0 {
                let Some((next, limit)) = self.batch(Some(group_head), true) else {
                    return lsn;
                };
                room = (limit - next.used) as usize;
                batch = next;
            }
            let here = rest.len().min(room);
            // The room is a multiple of eight, so the zeroes behind the payload lie where its last byte does.
            let padded = here.next_multiple_of(8);
            let at = batch.used as usize;
            batch.buffer[at..at + here].copy_from_slice(&rest[..here]);
            batch.buffer[at + here..at + padded].fill(0);
            batch.used += padded as u32;
            rest = &rest[here..];
            room -= padded;
        }
        lsn
    }

    /// The open batch takes no more: the next one's place is known now.
    pub(super) fn seal(&mut self, group: Option<Head>, goes_on: bool) {
        let Some(mut batch) = self.open.take() else {
            return;
        };
        let padded = round_up(batch.used, self.shape.block);
        batch.buffer[batch.used as usize..padded as usize].fill(0);
        batch.buffer.set_len(padded as usize);
        batch.group = group;
        batch.goes_on = goes_on;
        self.tail = self.behind(self.tail, u64::from(padded));
        self.used += u64::from(padded);
        self.waits.sleepers.sealed(batch.lsn + u64::from(padded));
        self.full.push_back(batch);
    }

    /// How much of the area is used, with its head there.
    pub(super) fn used_from(&self, head: Head) -> u64 {
        let capacity = self.shape.capacity;
        if head.place == self.tail.place {
            return if head.batch >= self.tail.prev { 0 } else { capacity };
        }
        (self.tail.place + capacity - head.place) % capacity
    }

    /// A batch has come that the driver may not know of: rings when it may sleep.
    pub(super) fn bell_to_ring(&mut self) -> Option<LogBell> {
        if self.is_driver_awake || self.has_rung || !self.may_send(!self.full.is_empty()) {
            return None;
        }
        let bell = self.bell.clone()?;
        self.has_rung = true;
        self.counts.bells += 1;
        Some(bell)
    }
}
