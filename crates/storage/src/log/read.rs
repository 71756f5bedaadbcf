//! Reading batches: the latest from memory, others from the device, found by the index.

use std::collections::VecDeque;
use std::sync::Arc;

use baio_engine::{Buffer, Errno, Frozen};

use super::chain::{Chain, Step as ChainStep};
use super::error::LogError;
use super::format::{BatchHeader, DATA_AT};
use super::{IoOwner, LogAnswer, LogIoKind, LogPart, LogRequestId, Lsn};
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

    /// Takes in a batch that we have written, in place of what is there. False when it is none.
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
    /// Bytes that are asked for.
    len: u32,
    fill: Option<Fill>,
    /// The last block of what was read could not be read, and is zeroes.
    unreadable: Option<Errno>,
}

/// What cannot be read as one is read block by block, up to the first that cannot be read.
#[derive(Debug)]
struct Fill {
    whole: Buffer,
    /// Where in it the block belongs that is read now.
    piece: u32,
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
        if from < self.head.lsn {
            return Err(LogError::Truncated {
                head: Lsn(self.head.lsn),
            });
        }
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
            len: 0,
            fill: None,
            unreadable: None,
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
        (read.len, read.unreadable) = (len, None);
        let offset = DATA_AT + read.at;
        self.ask(IoOwner::Read(key), LogIoKind::Read { offset, len }, Some(buffer));
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
        let block_bytes = self.header.map_or(0, |header| header.block_bytes);
        let buffer = match (read.fill.take(), buffer) {
            (Some(fill), block) => match fill_on(&mut read, fill, block_bytes, result, block.as_deref()) {
                Ok(whole) => whole,
                Err(fill) => return self.ask_block(read, fill, block),
            },
            (None, Some(whole)) if result == Ok(read.len) && whole.len() == read.len as usize => whole,
            (None, Some(mut whole)) if whole.capacity() >= read.len as usize => {
                whole.set_len(read.len as usize);
                return self.ask_block(read, Fill { whole, piece: 0 }, None);
            }
            _ => {
                let errno = result.err().unwrap_or(Errno::EIO);
                return self.end(who, Err(LogError::Read(errno)));
            }
        };
        match self.batches_of(&mut read, &buffer) {
            Ok(Some((ranges, next))) => {
                let batches = Batches {
                    bytes: BatchBytes::Read(buffer.freeze()),
                    ranges,
                    next: Lsn(next),
                };
                self.end(who, Ok(LogAnswer::Batches(Some(Arc::new(batches)))));
            }
            Ok(None) => {
                let key = self.reads.under_way.insert(read);
                if let Err(error) = self.ask_read(key, Some(buffer)) {
                    self.reads.under_way.remove(key);
                    self.end(who, Err(error));
                }
            }
            Err(error) => self.end(who, Err(error)),
        }
    }

    fn ask_block(&mut self, read: Read, fill: Fill, block: Option<Buffer>) {
        let who = Some((read.owner, read.id));
        let len = self.header.map_or(0, |header| header.block_bytes);
        let Some(mut block) = block.or_else(|| self.arena.buffer(len as usize)) else {
            return self.end(who, Err(LogError::NoMemory));
        };
        block.set_len(len as usize);
        let offset = DATA_AT + read.at + u64::from(fill.piece);
        let fill = Some(fill);
        let key = self.reads.under_way.insert(Read { fill, ..read });
        self.ask(IoOwner::Read(key), LogIoKind::Read { offset, len }, Some(block));
    }

    /// The batches that are wanted of what was read, and the LSN of their end; nothing when the read has to go on.
    fn batches_of(&mut self, read: &mut Read, buffer: &Buffer) -> Result<Option<(Vec<BatchRange>, u64)>, LogError> {
        let mut ranges = Vec::new();
        let durable = self.flights.durable_end;
        while read.chain.end < durable {
            let place = read.chain.place;
            let at = place.checked_sub(read.at).unwrap_or(u64::MAX) as usize;
            let bytes = buffer.get(at..).unwrap_or(&[]);
            if bytes.is_empty() {
                break;
            }
            match read.chain.step(bytes, |_| {}) {
                ChainStep::Batch { header, .. } if read.chain.end > read.from => ranges.push(BatchRange {
                    header,
                    at: at as u32,
                    end: read.chain.end,
                }),
                ChainStep::Batch { .. } => {}
                ChainStep::Longer if place != read.at => break,
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
        if read.from < self.head.lsn {
            return Err(LogError::Truncated {
                head: Lsn(self.head.lsn),
            });
        }
        let end = read.chain.end;
        let holes = &self.recovered.holes;
        let behind = holes.partition_point(|hole| hole.to.0 < end);
        let mut holes = holes.iter().skip(behind).take_while(|hole| hole.from.0 <= end);
        let hole = holes.find(|hole| hole.offset == DATA_AT + read.chain.place);
        let mark = hole.and_then(|hole| self.index.behind(hole.to.0.saturating_sub(1)));
        let fault = read.unreadable.map(LogError::Read).unwrap_or(LogError::Rot {
            lsn: Lsn(end),
            offset: DATA_AT + read.chain.place,
        });
        let mark = mark.filter(|mark| mark.lsn > end).ok_or(fault)?;
        read.chain.skip_to(mark.place);
        Ok(())
    }
}

/// A block was read, or not: gives the whole when it was the last that is read.
fn fill_on(
    read: &mut Read,
    mut fill: Fill,
    len: u32,
    result: Result<u32, Errno>,
    block: Option<&[u8]>,
) -> Result<Buffer, Fill> {
    let from = fill.piece as usize;
    fill.piece += len;
    let Some(into) = fill.whole.get_mut(from..fill.piece as usize) else {
        return Ok(fill.whole);
    };
    match block {
        Some(block) if result == Ok(len) && block.len() == into.len() => into.copy_from_slice(block),
        _ => {
            into.fill(0);
            read.unreadable = Some(result.err().unwrap_or(Errno::EIO));
            fill.whole.set_len(fill.piece as usize);
            return Ok(fill.whole);
        }
    }
    if fill.piece < read.len {
        Err(fill)
    } else {
        Ok(fill.whole)
    }
}
