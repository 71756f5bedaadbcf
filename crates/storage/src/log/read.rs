//! Reading batches: the latest from memory, others from the device, found by the index.

use std::collections::VecDeque;
use std::sync::Arc;

use baio_engine::{Buffer, Errno, Frozen};

use super::chain::{Chain, Step as ChainStep};
use super::error::LogError;
use super::format::{BatchHeader, DATA_AT};
use super::seen::{Heard, Reading, Seen, Unread};
use super::{IoOwner, LogAnswer, LogPart, LogRequestId, Lsn};
use crate::slot_map::{SlotKey, SlotMap};

/// Bytes that a read gives at most, and one batch at least.
const READ_BYTES: u32 = 1 << 20;
/// Places that are remembered for who reads on.
const CURSORS: usize = 16;

/// Whole batches, one after the other.
#[derive(Clone, Debug)]
pub struct Batches {
    bytes: BatchBytes,
    ranges: Vec<BatchRange>,
    next: Lsn,
}

/// Where the bytes of batches are.
#[derive(Clone, Debug)]
enum BatchBytes {
    /// What was read from the device.
    Read(Frozen),
    /// A copy of a batch that was written.
    Kept(Vec<u8>),
}

/// A batch among others.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BatchRange {
    /// What it says of itself.
    pub header: BatchHeader,
    /// Where it begins.
    pub at: u32,
    /// LSN of its end, padding included.
    pub end: u64,
}

impl Batches {
    /// A copy of a batch that we have written.
    pub(super) fn kept() -> Batches {
        Batches {
            bytes: BatchBytes::Kept(Vec::new()),
            ranges: Vec::new(),
            next: Lsn(0),
        }
    }

    /// Takes in a batch that we have written, in place of what is there. Returns false if it is not a batch.
    pub(super) fn keep(&mut self, batch: &[u8], end: u64) -> bool {
        self.ranges.clear();
        let (BatchBytes::Kept(bytes), Some(header)) = (&mut self.bytes, BatchHeader::of_sealed(batch)) else {
            return false;
        };
        bytes.clear();
        bytes.reserve_exact(batch.len());
        bytes.extend_from_slice(batch);
        self.ranges.push(BatchRange { header, at: 0, end });
        self.next = Lsn(end);
        true
    }

    /// For how many bytes there is memory, when they are a copy.
    pub(super) fn capacity(&self) -> usize {
        match &self.bytes {
            BatchBytes::Read(_) => 0,
            BatchBytes::Kept(bytes) => bytes.capacity(),
        }
    }

    #[cfg(test)]
    pub(super) fn of(bytes: Frozen, ranges: Vec<BatchRange>) -> Batches {
        let next = Lsn(ranges.last().map_or(0, |range| range.end));
        Batches {
            bytes: BatchBytes::Read(bytes),
            ranges,
            next,
        }
    }

    /// Where to read on.
    #[must_use]
    pub fn next(&self) -> Lsn {
        self.next
    }

    /// The batches.
    #[must_use]
    pub fn ranges(&self) -> &[BatchRange] {
        &self.ranges
    }

    /// The bytes of one, its header included, without padding.
    #[must_use]
    pub fn bytes(&self, range: &BatchRange) -> &[u8] {
        let at = range.at as usize;
        let all: &[u8] = match &self.bytes {
            BatchBytes::Read(bytes) => bytes,
            BatchBytes::Kept(bytes) => bytes,
        };
        all.get(at..at + range.header.bytes as usize).unwrap_or(&[])
    }
}

#[derive(Debug)]
struct Read {
    owner: u64,
    id: LogRequestId,
    from: u64,
    chain: Chain,
    at: u64,
    reading: Option<Reading>,
}

/// Reads on their way, and what makes them cheap.
#[derive(Debug, Default)]
pub(super) struct Reads {
    under_way: SlotMap<Read>,
    /// Where reads ended, as they stood there: what follows must follow in the same epoch.
    cursors: VecDeque<Chain>,
}

impl Reads {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.iter().next().is_none()
    }

    /// The area has changed.
    pub(super) fn forget_places(&mut self) {
        self.cursors.clear();
    }

    fn remember(&mut self, chain: &Chain) {
        if self.cursors.len() >= CURSORS {
            self.cursors.pop_front();
        }
        self.cursors.push_back(chain.clone());
    }

    fn cursor(&mut self, lsn: u64) -> Option<Chain> {
        let index = self.cursors.iter().position(|known| known.end == lsn)?;
        self.cursors.remove(index)
    }
}

impl LogPart {
    pub(super) fn start_read(&mut self, owner: u64, id: LogRequestId, from: Lsn) {
        match self.read_now(owner, id, from.0) {
            Ok(None) => {}
            Ok(Some(batches)) => self.end(Some((owner, id)), Ok(LogAnswer::Batches(batches))),
            Err(error) => self.end(Some((owner, id)), Err(error)),
        }
    }

    /// The answer, when there is one at once.
    #[allow(
        clippy::option_option,
        reason = "no answer yet, or an answer, which may be that nothing is there"
    )]
    fn read_now(&mut self, owner: u64, id: LogRequestId, from: u64) -> Result<Option<Option<Arc<Batches>>>, LogError> {
        if self.recovered.epoch == 0 {
            return Err(LogError::Closed);
        }
        self.is_kept(from)?;
        let recent = self.shared.recent().take(from);
        if from >= self.flights.durable_end || recent.is_some() {
            return Ok(Some(recent));
        }
        let header = self.header.ok_or(LogError::Closed)?;
        let start = Chain::new(&header, self.head);
        let mark = self.index.find(from).filter(|mark| mark.lsn > self.head.batch);
        let chain = match (self.reads.cursor(from), mark) {
            _ if from == self.head.lsn => start,
            (Some(cursor), _) => cursor,
            (None, Some(mark)) => start.within(mark.lsn, mark.place, None),
            (None, None) => start,
        };
        let at = chain.place;
        let key = self.reads.under_way.insert(Read {
            owner,
            id,
            from,
            chain,
            at,
            reading: None,
        });
        if let Err(error) = self.ask_read(key, None) {
            self.reads.under_way.remove(key);
            return Err(error);
        }
        self.counts.reads_device += 1;
        Ok(None)
    }

    fn ask_read(&mut self, key: SlotKey, buffer: Option<Buffer>) -> Result<(), LogError> {
        let header = self.header.ok_or(LogError::Closed)?;
        let batch_max = header.batch_bytes_max;
        let wanted = READ_BYTES.max(batch_max) as usize;
        let buffer = buffer
            .or_else(|| self.arena.buffer(wanted))
            .or_else(|| self.arena.buffer(batch_max as usize));
        let mut buffer = buffer.ok_or(LogError::NoMemory)?;
        let Some(read) = self.reads.under_way.get_mut(key) else {
            return Ok(());
        };
        read.at = read.chain.place;
        // Not beyond what is durable: there a write may be under way, or nothing was ever to be read.
        let rest = self.flights.durable_behind(read.at, header.capacity);
        let len = (buffer.capacity() as u64).min(rest) as u32;
        let len = len / header.block_bytes * header.block_bytes;
        buffer.set_len(len as usize);
        let reading = Reading::new(DATA_AT + read.at, len, header.block_bytes);
        let kind = reading.kind();
        read.reading = Some(reading);
        self.ask(IoOwner::Read(key), kind, Some(buffer));
        Ok(())
    }

    pub(super) fn read_io_ended(&mut self, key: SlotKey, result: Result<u32, Errno>, buffer: Option<Buffer>) {
        let Some(mut read) = self.reads.under_way.remove(key) else {
            return;
        };
        let who = Some((read.owner, read.id));
        if self.header.is_some_and(|header| !read.chain.is_of(header.capacity)) {
            // The log has grown meanwhile, and batches lie elsewhere.
            return self.start_read(read.owner, read.id, Lsn(read.from));
        }
        if read.chain.end < self.head.batch {
            // It began below what is asked for, and there may be other batches there since a truncation.
            return self.start_read(read.owner, read.id, Lsn(read.from));
        }
        let Some(reading) = read.reading.take() else {
            return;
        };
        let seen = match reading.ended(result, buffer) {
            Heard::Seen(seen, _) => seen,
            Heard::Block(reading, block) => return self.ask_block(read, reading, block),
        };
        match self.batches_of(&mut read, &seen) {
            Ok(Some((ranges, next))) => {
                let Some(buffer) = seen.into_buffer() else {
                    return self.end(who, Ok(LogAnswer::Batches(None)));
                };
                let batches = Batches {
                    bytes: BatchBytes::Read(buffer.freeze()),
                    ranges,
                    next: Lsn(next),
                };
                self.end(who, Ok(LogAnswer::Batches(Some(Arc::new(batches)))));
            }
            Ok(None) => {
                let key = self.reads.under_way.insert(read);
                if let Err(error) = self.ask_read(key, seen.into_buffer()) {
                    self.reads.under_way.remove(key);
                    self.end(who, Err(error));
                }
            }
            Err(error) => self.end(who, Err(error)),
        }
    }

    fn ask_block(&mut self, read: Read, reading: Reading, block: Option<Buffer>) {
        let who = Some((read.owner, read.id));
        let len = self.header.map_or(0, |header| header.block_bytes);
        let Some(mut block) = block.or_else(|| self.arena.buffer(len as usize)) else {
            return self.end(who, Err(LogError::NoMemory));
        };
        block.set_len(len as usize);
        let kind = reading.kind();
        let reading = Some(reading);
        let key = self.reads.under_way.insert(Read { reading, ..read });
        self.ask(IoOwner::Read(key), kind, Some(block));
    }

    /// The batches that are wanted of what was read, and the LSN of their end; nothing when the read has to go on.
    fn batches_of(&mut self, read: &mut Read, seen: &Seen) -> Result<Option<(Vec<BatchRange>, u64)>, LogError> {
        let mut ranges = Vec::new();
        let durable = self.flights.durable_end;
        while read.chain.end < durable {
            let place = read.chain.place;
            let bytes = match seen.from(DATA_AT + place) {
                Ok(bytes) => bytes,
                Err(_) if !ranges.is_empty() => break,
                Err(unread) => return Err(self.unread(read, unread)),
            };
            if bytes.is_empty() {
                break;
            }
            match (read.chain.step(bytes, |_| {}), seen.cut()) {
                (ChainStep::Batch { header, .. }, _) if read.chain.end > read.from => ranges.push(BatchRange {
                    header,
                    at: (place - read.at) as u32,
                    end: read.chain.end,
                }),
                (ChainStep::Batch { .. }, _) => {}
                (ChainStep::Longer, _) if place != read.at => break,
                (ChainStep::Longer, Some(unread)) => return Err(self.unread(read, unread)),
                _ => match self.behind_hole(read) {
                    Err(_) if !ranges.is_empty() => break,
                    went_on => went_on?,
                },
            }
        }
        if ranges.is_empty() {
            // Nothing durable is behind it after all: the epoch has just begun.
            return Ok((read.chain.end >= durable).then_some((ranges, read.chain.end)));
        }
        self.reads.remember(&read.chain);
        Ok(Some((ranges, read.chain.end)))
    }

    /// What should lie at a place does not: it has been given up meanwhile, or there is a hole, or it has rotted.
    fn behind_hole(&self, read: &mut Read) -> Result<(), LogError> {
        self.is_kept(read.from)?;
        let end = read.chain.end;
        let holes = &self.recovered.holes;
        let behind = holes.partition_point(|hole| hole.to.0 < end);
        let mut holes = holes.iter().skip(behind).take_while(|hole| hole.from.0 <= end);
        let hole = holes.find(|hole| hole.offset == DATA_AT + read.chain.place);
        let mark = hole.and_then(|hole| self.index.behind(hole.to.0.saturating_sub(1)));
        let fault = LogError::Rot {
            lsn: Lsn(end),
            offset: DATA_AT + read.chain.place,
        };
        let mark = mark.filter(|mark| mark.lsn > end).ok_or(fault)?;
        read.chain.skip_to(mark.place);
        Ok(())
    }

    /// What should lie there could not be read; unless it has been given up meanwhile.
    fn unread(&self, read: &Read, unread: Unread) -> LogError {
        self.is_kept(read.from).err().unwrap_or(unread.into())
    }

    fn is_kept(&self, from: u64) -> Result<(), LogError> {
        let head = self.head.lsn;
        match from < head {
            true => Err(LogError::Truncated { head: Lsn(head) }),
            false => Ok(()),
        }
    }
}
