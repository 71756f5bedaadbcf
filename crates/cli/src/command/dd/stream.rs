//! An input whose bytes are taken in order: a pipe, a terminal, `/dev/zero`; and any input where what it gives is changed on its way, or where
//! somebody can see the order.
//!
//! There is one read at a time; what has been read is written with as many requests in flight as the copy has slots. Each read of a pipe is
//! a record, however short (or the beginning of one: `iflag=fullblock`). Where bytes can be reached at any offset, a read takes many
//! records at once: nobody can see that, unless the copy reads what it writes, or a read fails. Then records are read one by one.
//!
//! ```text
//! read --> records, counted --> fill up (conv=sync) --> convert (convert.rs) --> blocks and pieces (blocks.rs)
//! ```

use baio::Buffer;
use std::ops::Range;

use baio_console::failure::Failure;

use super::blocks::{Blocks, Layout, Spare};
use super::convert::Convert;
use super::plan::Piece;
use super::records::Records;
use crate::operands::{Amount, Conversion, ShortReads};

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

    /// Bytes of all of them.
    fn bytes(&self, block: u64) -> u64 {
        self.full.saturating_mul(block).saturating_add(self.last)
    }

    fn take(&mut self) {
        if self.full > 0 {
            self.full -= 1;
        } else {
            self.last = 0;
        }
    }
}

/// How an input is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reads {
    /// Bytes of a record.
    pub(super) block: u64,
    /// No read of a record is longer.
    pub(super) part: u64,
    /// A read may take so many bytes of several records.
    pub(super) run: u64,
    pub(super) short: ShortReads,
    pub(super) count: Option<Amount>,
    /// Short records are filled up.
    pub(super) pads: bool,
    /// What cannot be read can be left out.
    pub(super) has_positions: bool,
}

/// The state of a stream.
pub(super) struct Stream {
    reads: Reads,
    convert: Convert,
    allowance: Allowance,
    /// Bytes that the read under way is to bring.
    asked: u64,
    /// Bytes of the present record, and what has become of them.
    record: u64,
    made: u64,
    /// Bytes of the record before, if it was short.
    partial: u64,
    /// Bytes that the input has moved on.
    position: u64,
    records: Records,
    /// What was read, and is not made into pieces yet.
    rest: Option<Rest>,
    blocks: Blocks,
    changed: Vec<u8>,
    ended: bool,
}

/// Bytes of a read.
struct Rest {
    buffer: Buffer,
    bytes: Range<usize>,
    /// The input gave less than it was asked for.
    is_short: bool,
}

impl Stream {
    pub(super) fn new(reads: Reads, conversion: Conversion, layout: Layout) -> Stream {
        Stream {
            reads,
            convert: Convert::new(conversion),
            allowance: Allowance::of(reads.count, reads.block),
            asked: 0,
            record: 0,
            made: 0,
            partial: 0,
            position: 0,
            records: Records::new(reads.block),
            rest: None,
            blocks: Blocks::new(layout),
            changed: Vec::new(),
            ended: false,
        }
    }

    /// Bytes to be read next; `None` when enough has been read, or what has been read waits to be written.
    pub(super) fn next_read(&mut self) -> Option<u64> {
        let Reads { block, part, run, .. } = self.reads;
        let left = self.allowance.record(block).saturating_sub(self.record);
        if self.ended || left == 0 || self.rest.is_some() || self.blocks.has_pieces() {
            return None;
        }
        self.asked = match run / block {
            records @ 1.. if self.record == 0 => (records * block).min(self.allowance.bytes(block)),
            _ => left.min(part),
        };
        Some(self.asked)
    }

    /// Bytes that the read under way is to bring.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// Where the next read begins.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// What is written next; without a buffer it is passed over.
    pub(super) fn next_piece(&mut self, spare: Spare<'_>) -> Result<Option<(Piece, Option<Buffer>)>, Failure> {
        self.go_on(spare)?;
        Ok(self.blocks.next_piece())
    }

    /// The records read so far.
    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    /// Everything before `position` is written.
    pub(super) fn written(&mut self, position: u64) {
        self.records.advance(position);
    }

    /// The blocks made so far.
    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Has it ended since there was no room for what it gave?
    pub(super) fn has_no_room(&self) -> bool {
        self.ended && self.blocks.overflow()
    }

    /// Takes in what was read: `len` bytes of `buffer`, which begin at `head`.
    pub(super) fn take(&mut self, buffer: Buffer, (head, len): (u64, u64), spare: Spare<'_>) -> Result<(), Failure> {
        if len == 0 {
            return self.finish(spare);
        }
        self.position += len;
        // One that was asked for in parts goes on.
        let is_short = len < self.asked && self.reads.short == ShortReads::Count;
        if head == 0 && self.is_record(len, is_short) && self.blocks.takes_whole(len) {
            self.blocks.put_whole(buffer, len);
            (self.record, self.made) = (len, len);
            self.end_record(spare)?;
            return self.look_for_end(spare);
        }
        self.rest = Some(Rest {
            buffer,
            bytes: head as usize..(head + len) as usize,
            is_short,
        });
        self.go_on(spare)
    }

    /// Is it a whole record, which goes as it came?
    fn is_record(&self, len: u64, is_short: bool) -> bool {
        let is_full = len == self.allowance.record(self.reads.block);
        let changes = self.convert.changes() || self.reads.pads && len < self.reads.block;
        // What was to hold several records has more memory than there is for a piece.
        let is_alone = self.asked <= self.allowance.record(self.reads.block);
        self.record == 0 && is_alone && !changes && (is_full || is_short && len < self.reads.block)
    }

    /// Makes pieces of what was read. Where they are small, some at a time: each has a buffer.
    fn go_on(&mut self, spare: Spare<'_>) -> Result<(), Failure> {
        let Some(mut rest) = self.rest.take() else {
            return Ok(());
        };
        while !rest.bytes.is_empty() && !self.blocks.has_pieces() {
            let left = self.allowance.record(self.reads.block).saturating_sub(self.record);
            let len = rest.bytes.len().min(left as usize).min(self.blocks.step());
            if len == 0 {
                rest.bytes = 0..0; // No more was asked for.
                break;
            }
            let now = rest.bytes.start..rest.bytes.start + len;
            rest.bytes.start = now.end;
            self.record += len as u64;
            self.put(rest.buffer.get(now).unwrap_or_default(), spare)?;
            if len as u64 == left || rest.is_short && rest.bytes.is_empty() {
                self.end_record(spare)?;
            }
        }
        match rest.bytes.is_empty() {
            true => self.look_for_end(spare),
            false => {
                self.rest = Some(rest);
                Ok(())
            }
        }
    }

    /// After all that was allowed, or that there is room for, nothing more is read.
    fn look_for_end(&mut self, spare: Spare<'_>) -> Result<(), Failure> {
        // A record that has no room is still read to its end, as GNU dd reads it before it tries to write.
        let enough = self.blocks.overflow() || self.allowance.record(self.reads.block) == 0;
        match enough && self.record == 0 {
            true => self.finish(spare),
            false => Ok(()),
        }
    }

    fn put(&mut self, bytes: &[u8], spare: Spare<'_>) -> Result<(), Failure> {
        if !self.convert.changes() {
            self.made += bytes.len() as u64;
            return self.blocks.put(bytes, spare);
        }
        let mut changed = std::mem::take(&mut self.changed);
        changed.clear();
        changed.extend_from_slice(bytes);
        self.convert.change(&mut changed);
        self.made += changed.len() as u64;
        let put = self.blocks.put(&changed, spare);
        // Its memory serves the next one.
        self.changed = changed;
        put
    }

    fn end_record(&mut self, spare: Spare<'_>) -> Result<(), Failure> {
        let block = self.reads.block;
        let taken = self.record;
        if self.reads.pads && taken < block {
            self.put(&vec![0; (block - taken) as usize], spare)?;
        }
        if self.blocks.are_records() {
            self.blocks.end_block(spare)?;
        }
        self.records.push(taken, self.made);
        self.partial = if taken == block { 0 } else { taken };
        (self.record, self.made) = (0, 0);
        self.allowance.take();
        Ok(())
    }

    /// A read has brought nothing but an error. Was it one of several records? They are read one by one from now on.
    pub(super) fn takes_smaller_steps(&mut self) -> bool {
        let was_run = self.reads.run > 0 && self.asked > self.allowance.record(self.reads.block);
        self.reads.run = 0;
        was_run
    }

    /// Leaves out what cannot be read, or fills its place with zeros where `conv=sync` asks for that.
    pub(super) fn pass_over(&mut self, spare: Spare<'_>) -> Result<(), Failure> {
        if self.reads.has_positions {
            let len = self.reads.block - self.partial;
            self.position += len;
            self.records.pass_over(len);
        }
        let is_filled = self.reads.pads && self.partial == 0;
        if is_filled || self.record > 0 {
            self.end_record(spare)?;
        }
        self.look_for_end(spare)
    }

    /// Nothing more will be read, and all that was read is written.
    pub(super) fn finish(&mut self, spare: Spare<'_>) -> Result<(), Failure> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        if self.record > 0 {
            self.end_record(spare)?;
        }
        if let Some(byte) = self.convert.take_unpaired() {
            self.blocks.put(&[byte], spare)?;
        }
        self.blocks.finish(spare)
    }

    /// Nothing more will be read, and only whole blocks are written.
    pub(super) fn stop(&mut self) {
        self.ended = true;
        self.rest = None;
        self.blocks.stop();
    }
}

#[cfg(test)]
mod tests {
    use baio_engine::Arena;

    use super::super::plan::Cuts;
    use super::*;

    /// Many pieces wait where the output is slow, and there is memory for so many records.
    #[test]
    fn a_lone_record_of_a_run_keeps_no_more_memory_than_it_needs() {
        let reads = Reads {
            block: 4000,
            part: 4000,
            run: 256 << 10,
            short: ShortReads::Count,
            count: None,
            pads: false,
            has_positions: true,
        };
        let cuts = Cuts {
            piece: 4096,
            unit: 1,
            seek: 0,
        };
        let layout = Layout {
            block: None,
            sparse: false,
            at_once: true,
            cuts,
            room: u64::MAX,
        };
        let mut stream = Stream::new(reads, Conversion::default(), layout);
        let arena = Arena::new(1 << 20).unwrap();
        let mut spare = |len: usize| arena.buffer(len).ok_or_else(|| Failure::usage("dd", "no buffer"));
        for asked in [65 * 4000, 4000] {
            assert_eq!(stream.next_read(), Some(asked));
            let buffer = spare(asked as usize).unwrap();
            stream.take(buffer, (0, 4000), &mut spare).unwrap();
            let (piece, buffer) = stream.next_piece(&mut spare).unwrap().unwrap();
            assert_eq!((piece.len, buffer.unwrap().capacity()), (4000, 4096));
            // As when the next read fails.
            stream.takes_smaller_steps();
        }
    }
}
