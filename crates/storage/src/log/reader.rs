//! Records out of batches, in the thread of whoever reads. Only whole groups are given.

use super::Lsn;
use super::format::{Carry, Piece, RECORD_FIRST, RECORD_LAST, walk};
use super::read::Batches;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<'a> {
    /// Its LSN.
    pub lsn: Lsn,
    /// Its payload.
    pub bytes: &'a [u8],
    /// It is the last of its group.
    pub is_last: bool,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    lsn: u64,
    at: usize,
    len: usize,
    is_last: bool,
}

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
    /// Payloads: of whole groups that were not taken yet, then of the group that is not whole.
    bytes: Vec<u8>,
    ready: Vec<Place>,
    taken: usize,
    group: Vec<Place>,
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
            ready: Vec::new(),
            taken: 0,
            group: Vec::new(),
            is_kept: false,
            is_damaged: false,
        }
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
                self.group.push(Place {
                    lsn,
                    at: self.bytes.len(),
                    len: 0,
                    is_last: piece.flags & RECORD_LAST != 0,
                });
            }
        }
        if self.is_kept {
            let payload = bytes.get(piece.from as usize..piece.to as usize).unwrap_or(&[]);
            self.bytes.extend_from_slice(payload);
            if let Some(place) = self.group.last_mut() {
                place.len += payload.len();
            }
        }
        if piece.ends && piece.flags & RECORD_LAST != 0 {
            if self.in_group {
                self.ready.append(&mut self.group);
            }
            self.in_group = false;
            self.is_kept = false;
        }
    }

    fn drop_group(&mut self, carry: Carry) {
        if let Some(first) = self.group.first() {
            self.bytes.truncate(first.at);
        }
        self.group.clear();
        self.in_group = false;
        self.is_kept = false;
        self.carry = carry;
    }

    /// The payloads that were taken make way.
    fn let_go(&mut self) {
        let behind = self.ready.get(self.taken).or(self.group.first());
        let gone = behind.map_or(self.bytes.len(), |place| place.at);
        self.bytes.drain(..gone);
        self.ready.drain(..self.taken);
        self.taken = 0;
        for place in self.ready.iter_mut().chain(&mut self.group) {
            place.at -= gone;
        }
    }

    /// The next record of a whole group.
    pub fn next_record(&mut self) -> Option<Record<'_>> {
        let place = *self.ready.get(self.taken)?;
        self.taken += 1;
        Some(Record {
            lsn: Lsn(place.lsn),
            bytes: self.bytes.get(place.at..place.at + place.len)?,
            is_last: place.is_last,
        })
    }
}
