//! Records out of batches, in the thread of whoever reads. Only whole groups are given.

use std::collections::VecDeque;

use super::Lsn;
use super::format::{Carry, Piece, RECORD_FIRST, RECORD_LAST, record_bytes, walk};
use super::read::Batches;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<'a> {
    /// Its LSN.
    pub lsn: Lsn,
    /// Its payload.
    pub bytes: &'a [u8],
    /// How long its payload is, also when less of it was kept.
    pub len: usize,
    /// It is the last of its group.
    pub is_last: bool,
}

/// From this byte of the payloads on each record has the LSN behind the one before it.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: u64,
    lsn: u64,
}

/// Bytes in front of each payload that is kept: its length, and whether it is the last of its group.
const WORD: usize = 4;
const IS_LAST: u32 = 1 << 31;

/// Parses records: push batches in their order, then take records until there are none.
///
/// Where batches are missing (a hole that an opening went on behind), and where an opening began, what is not whole is left out.
#[derive(Debug)]
pub struct RecordReader {
    from: u64,
    end: u64,
    epoch: u64,
    carry: Carry,
    in_group: bool,
    /// Records, each a word and its payload: those that were taken, those of whole groups, then those of the group that is not whole. No
    /// more than they have in the log, and nothing is changed in them as more come: a group may be as long as the log.
    bytes: Vec<u8>,
    /// How many bytes have been let go before these.
    gone: u64,
    taken: usize,
    ready: usize,
    /// Where LSNs do not follow from lengths, in the order of the bytes: about one for each batch.
    runs: VecDeque<Run>,
    /// So much of a payload is kept at most.
    keep_max: usize,
    /// LSN behind the record that was taken last, and behind that which came last.
    taken_lsn: u64,
    kept_lsn: u64,
    /// The record that goes on is wanted.
    is_kept: bool,
    is_damaged: bool,
}

impl RecordReader {
    /// Reads records from this LSN on.
    #[must_use]
    pub fn new(from: Lsn) -> RecordReader {
        RecordReader {
            from: from.0,
            end: 0,
            epoch: 0,
            carry: Carry::Unknown,
            in_group: false,
            bytes: Vec::new(),
            gone: 0,
            taken: 0,
            ready: 0,
            runs: VecDeque::new(),
            keep_max: usize::MAX,
            taken_lsn: 0,
            kept_lsn: 0,
            is_kept: false,
            is_damaged: false,
        }
    }

    /// Keeps so many bytes of each payload at most: for who shows how records begin, and has little memory.
    #[must_use]
    pub fn keeping(mut self, bytes: usize) -> RecordReader {
        self.keep_max = bytes;
        self
    }

    /// Where the next batches are to be read from.
    #[must_use]
    pub fn next_batch(&self) -> Lsn {
        Lsn(self.end.max(self.from))
    }

    /// Some batch said of its records what is not so; the rest of it was left out. No writer of ours does that.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Takes batches in. Those that it has had are passed over.
    pub fn push(&mut self, batches: &Batches) {
        self.let_go();
        for range in batches.ranges() {
            let header = &range.header;
            if range.end <= self.end {
                continue;
            }
            if self.end > 0 && header.prev != self.end {
                self.drop_group(Carry::Unknown);
            } else if self.end > 0 && header.epoch != self.epoch {
                self.drop_group(Carry::Between);
            }
            // What begins in the middle of a batch has the rest of a group that began before it.
            self.in_group |= self.end == 0 && header.lsn < self.from;
            let bytes = batches.bytes(range);
            let lsn = header.lsn;
            let walked = walk(bytes, header, self.carry, |piece| self.take_piece(lsn, bytes, piece));
            match walked {
                Some(carry) => self.carry = carry,
                None => {
                    self.drop_group(Carry::Unknown);
                    self.is_damaged = true;
                }
            }
            (self.end, self.epoch) = (range.end, header.epoch);
        }
    }

    fn take_piece(&mut self, lsn: u64, bytes: &[u8], piece: Piece) {
        if let Some(at) = piece.begins {
            let lsn = lsn + u64::from(at);
            if piece.flags & RECORD_FIRST != 0 {
                self.drop_group(self.carry);
                self.in_group = true;
            }
            // A reader may begin in the middle of a group, but not behind a part that is lost.
            self.in_group |= lsn == self.from;
            self.is_kept = self.in_group && lsn >= self.from;
            if self.is_kept {
                if lsn != self.kept_lsn {
                    let at = self.gone + self.bytes.len() as u64;
                    self.runs.push_back(Run { at, lsn });
                }
                self.kept_lsn = lsn + record_bytes(piece.len as usize);
                let is_last = if piece.flags & RECORD_LAST != 0 { IS_LAST } else { 0 };
                self.bytes.extend_from_slice(&(piece.len | is_last).to_le_bytes());
            }
        }
        if self.is_kept {
            let payload = bytes.get(piece.from as usize..piece.to as usize).unwrap_or(&[]);
            let wanted = self.keep_max.saturating_sub(piece.skip as usize).min(payload.len());
            self.bytes.extend_from_slice(&payload[..wanted]);
        }
        if piece.ends && piece.flags & RECORD_LAST != 0 {
            if self.in_group {
                self.ready = self.bytes.len();
            }
            self.in_group = false;
            self.is_kept = false;
        }
    }

    fn drop_group(&mut self, carry: Carry) {
        self.bytes.truncate(self.ready);
        let end = self.gone + self.ready as u64;
        while self.runs.back().is_some_and(|run| run.at >= end) {
            self.runs.pop_back();
        }
        self.kept_lsn = 0;
        self.in_group = false;
        self.is_kept = false;
        self.carry = carry;
    }

    /// What was taken makes way, when that is not less than what stays.
    fn let_go(&mut self) {
        if self.taken > 0 && self.taken >= self.bytes.len() - self.taken {
            self.bytes.drain(..self.taken);
            self.gone += self.taken as u64;
            self.ready -= self.taken;
            self.taken = 0;
        }
    }

    /// The next record of a whole group.
    pub fn next_record(&mut self) -> Option<Record<'_>> {
        let (word, rest) = self.bytes.get(self.taken..self.ready)?.split_first_chunk::<WORD>()?;
        let word = u32::from_le_bytes(*word);
        let len = (word & !IS_LAST) as usize;
        let bytes = rest.get(..len.min(self.keep_max))?;
        let at = self.gone + self.taken as u64;
        let run = self.runs.front().filter(|run| run.at == at);
        let lsn = run.map_or(self.taken_lsn, |run| run.lsn);
        if run.is_some() {
            self.runs.pop_front();
        }
        self.taken += WORD + bytes.len();
        self.taken_lsn = lsn + record_bytes(len);
        Some(Record {
            lsn: Lsn(lsn),
            bytes,
            len,
            is_last: word & IS_LAST != 0,
        })
    }

    #[cfg(test)]
    fn memory(&self) -> usize {
        self.bytes.len() + self.runs.len() * size_of::<Run>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::format::{BATCH_HEADER, BatchHeader, RECORD_HEADER};
    use crate::log::read::BatchRange;

    /// Batches of records without bytes, all of one group.
    fn of_a_group(lsn: u64, records: usize, is_first: bool, is_last: bool) -> Batches {
        let bytes = (BATCH_HEADER + records * RECORD_HEADER) as u32;
        let arena = baio_engine::Arena::new(1 << 20).unwrap();
        let mut buffer = arena.buffer(bytes as usize).unwrap();
        buffer.fill(0);
        if is_first {
            buffer[BATCH_HEADER + 4] |= RECORD_FIRST as u8;
        }
        if is_last {
            buffer[bytes as usize - 4] |= RECORD_LAST as u8;
        }
        let header = BatchHeader {
            epoch: 1,
            lsn,
            prev: lsn,
            watermark: 0,
            bytes,
            first: BATCH_HEADER as u32,
            goes_on: false,
        };
        let end = lsn + u64::from(bytes);
        let range = BatchRange { header, at: 0, end };
        Batches::of(buffer.freeze(), vec![range])
    }

    #[test]
    fn a_group_takes_no_more_memory_than_it_has_bytes() {
        let (records, batches) = (1000, 50);
        let mut reader = RecordReader::new(Lsn(0));
        let (mut lsn, mut lsns) = (8192, Vec::new());
        for number in 0..batches {
            let batch = of_a_group(lsn, records, number == 0, number + 1 == batches);
            lsns.extend((0..records as u64).map(|at| lsn + BATCH_HEADER as u64 + at * 8));
            reader.push(&batch);
            lsn = reader.next_batch().0;
            assert!(
                reader.memory() as u64 <= lsn - 8192,
                "{} for {}",
                reader.memory(),
                lsn - 8192
            );
            assert!(number + 1 == batches || reader.next_record().is_none());
        }
        let mut read = Vec::new();
        while let Some(record) = reader.next_record() {
            read.push(record.lsn.0);
            assert_eq!(record.is_last, read.len() == lsns.len());
        }
        assert_eq!(read, lsns);
        reader.push(&of_a_group(lsn, 1, true, true));
        assert_eq!(reader.next_record().unwrap().lsn.0, lsn + BATCH_HEADER as u64);
        assert!(reader.memory() < 64, "what was taken has gone");
    }
}
