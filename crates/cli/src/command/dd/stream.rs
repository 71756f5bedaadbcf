//! An input that comes in order only: a pipe, a terminal, `/dev/zero`.
//!
//! There is one read at a time, for no two would keep their order; what has been read is written with many requests in
//! flight. Each read is a record, however short (or the beginning of one: `iflag=fullblock`). Where the output takes any
//! byte, a record is written from the buffer into which it was read; where it takes whole blocks only, records are
//! gathered until they fill a piece.

use std::collections::VecDeque;

use baio_console::failure::Failure;
use baio_engine::Buffer;

use super::plan::{Bounds, Cuts, Piece};
use super::records::Records;
use crate::operands::{Amount, ShortReads};

/// How many more records may be read.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// Records of a whole block.
    full: u64,
    /// Bytes of the one behind them.
    last: u64,
}

impl Allowance {
    fn of(count: Option<Amount>, block: u64) -> Allowance {
        match count {
            None => Allowance {
                full: u64::MAX,
                last: 0,
            },
            Some(Amount::Blocks(full)) => Allowance { full, last: 0 },
            Some(Amount::Bytes(bytes)) => Allowance {
                full: bytes / block.max(1),
                last: bytes % block.max(1),
            },
        }
    }

    /// Bytes of the next record; 0 when there is none.
    fn record(&self, block: u64) -> u64 {
        if self.full > 0 { block } else { self.last }
    }

    fn take(&mut self) {
        if self.full > 0 {
            self.full -= 1;
        } else {
            self.last = 0;
        }
    }
}

/// Bytes gathered for a piece that is not full yet.
struct Gathered {
    piece: Piece,
    buffer: Buffer,
}

/// The state of a stream.
pub(super) struct Stream {
    block: u64,
    /// No read is longer.
    part: u64,
    short_reads: ShortReads,
    cuts: Cuts,
    bounds: Bounds,
    allowance: Allowance,
    /// Bytes of the present record.
    record: u64,
    /// Bytes taken from the stream.
    position: u64,
    gathered: Option<Gathered>,
    /// Pieces that wait for a place.
    pieces: VecDeque<(Piece, Buffer)>,
    records: Records,
    /// More was read than the output has room for.
    overflows: bool,
    ended: bool,
}

/// What a read that has ended came to.
pub(super) enum Taken {
    /// Go on.
    Fine,
    /// The output has no room for what was read.
    NoRoom,
}

impl Stream {
    pub(super) fn new(
        (block, part): (u64, u64),
        short_reads: ShortReads,
        count: Option<Amount>,
        cuts: Cuts,
        bounds: Bounds,
    ) -> Stream {
        Stream {
            block,
            part,
            short_reads,
            cuts,
            bounds,
            allowance: Allowance::of(count, block),
            record: 0,
            position: 0,
            gathered: None,
            pieces: VecDeque::new(),
            records: Records::new(block),
            overflows: false,
            ended: false,
        }
    }

    /// Bytes to be read next; `None` when enough has been read, or what has been read waits to be written.
    pub(super) fn wants(&self) -> Option<u64> {
        let wanted = self.allowance.record(self.block).saturating_sub(self.record);
        (!self.ended && self.pieces.is_empty() && wanted > 0).then_some(wanted.min(self.part))
    }

    /// Where the next byte stands.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// A piece to be written.
    pub(super) fn next_piece(&mut self) -> Option<(Piece, Buffer)> {
        self.pieces.pop_front()
    }

    /// The records read so far.
    pub(super) fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    /// Takes in what was read: the first `len` bytes of `buffer`. `spare` gives buffers to gather in.
    pub(super) fn take(
        &mut self,
        buffer: Buffer,
        len: u64,
        spare: impl FnMut() -> Result<Buffer, Failure>,
    ) -> Result<Taken, Failure> {
        if len == 0 {
            self.end();
            return Ok(self.taken());
        }
        let begin = self.position;
        self.position += len;
        self.record += len;
        let record_ends = self.short_reads == ShortReads::Count || self.record >= self.allowance.record(self.block);
        if record_ends {
            self.end_record();
        }
        let room = self.bounds.room.saturating_sub(begin);
        let fits = len.min(room);
        self.overflows |= fits < len;
        // A record that has no room is still read to its end, as GNU dd reads it before it tries to write.
        let done = record_ends && (self.overflows || self.allowance.record(self.block) == 0);
        // Where any byte will do, a record is written as soon as it is whole.
        let flush = done || (record_ends && self.cuts.unit == 1);
        self.gather(begin, buffer, fits, flush, spare)?;
        if done {
            self.end();
        }
        Ok(self.taken())
    }

    fn taken(&self) -> Taken {
        if self.ended && self.overflows {
            Taken::NoRoom
        } else {
            Taken::Fine
        }
    }

    /// Nothing more will be read; what was gathered is written.
    pub(super) fn end(&mut self) {
        self.ended = true;
        if self.record > 0 {
            self.end_record();
        }
        self.flush();
    }

    fn end_record(&mut self) {
        self.records.push(self.record);
        self.record = 0;
        self.allowance.take();
    }

    fn flush(&mut self) {
        if let Some(Gathered { piece, buffer }) = self.gathered.take() {
            self.pieces.push_back((piece, buffer));
        }
    }

    fn gather(
        &mut self,
        begin: u64,
        buffer: Buffer,
        len: u64,
        flush: bool,
        mut spare: impl FnMut() -> Result<Buffer, Failure>,
    ) -> Result<(), Failure> {
        let fills = self.cuts.end_of(begin).saturating_sub(begin);
        if self.gathered.is_none() && len > 0 && (len == fills || (flush && len < fills)) {
            self.pieces.push_back((whole(begin, len), buffer));
            return Ok(());
        }
        let mut bytes = buffer.get(..len as usize).unwrap_or(&buffer);
        let mut position = begin;
        while !bytes.is_empty() {
            let gathered = match &mut self.gathered {
                Some(gathered) => gathered,
                none => none.insert(Gathered {
                    piece: whole(position, 0),
                    buffer: spare()?,
                }),
            };
            let taken = gathered.add(&self.cuts, bytes);
            if taken == 0 {
                return Err(Failure::new("dd", "ENOBUFS", "a buffer is smaller than its piece"));
            }
            position += taken as u64;
            bytes = bytes.get(taken..).unwrap_or(&[]);
            if gathered.is_full(&self.cuts) {
                self.flush();
            }
        }
        if flush {
            self.flush();
        }
        Ok(())
    }
}

impl Gathered {
    fn end(&self, cuts: &Cuts) -> u64 {
        cuts.end_of(self.piece.position) - self.piece.position
    }

    fn is_full(&self, cuts: &Cuts) -> bool {
        self.piece.len >= self.end(cuts)
    }

    /// Copies what fits in; says how much that was.
    fn add(&mut self, cuts: &Cuts, bytes: &[u8]) -> usize {
        let left = self.end(cuts).saturating_sub(self.piece.len);
        let begin = self.piece.len as usize;
        let free = self.buffer.get_mut(begin..).unwrap_or(&mut []);
        let len = bytes.len().min(free.len()).min(left as usize);
        if let (Some(to), Some(from)) = (free.get_mut(..len), bytes.get(..len)) {
            to.copy_from_slice(from);
        }
        self.piece.len += len as u64;
        len
    }
}

fn whole(position: u64, len: u64) -> Piece {
    Piece {
        position,
        len,
        has_no_room: false,
    }
}
