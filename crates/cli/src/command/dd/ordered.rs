//! A copy in the order of GNU dd: one record is read, converted and written before the next one is read.
//!
//! It is for what can be seen from outside: blocks of two sizes, conversions, short reads of pipes that are gathered, reads that
//! fail and are passed over, zeros that are not written. Whatever cannot be seen goes by `copy.rs`, with many requests in flight.
//!
//! ```text
//! read a record --> (pad) --> write it as it is                        bs=, no conversion
//!                         \-> convert --> gather a block --> write it   all else
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `ordered/reader.rs` | records of the input, some of them read ahead |
//! | `ordered/writer.rs` | blocks of the output |
//! | `ordered/convert.rs` | what `conv=` makes of the bytes |
//!
//! Each step is one request (`work.rs`).

mod convert;
mod reader;
mod writer;

use baio_console::failure::Failure;

use super::cores::Cores;
use super::ends::Ends;
use super::figures::Figures;
use super::records::Count;
use super::signals::Signals;
use super::summary::{Meter, Part};
use super::verify::Sums;
use super::work::{Halt, Work};
use crate::operands::{Amount, DdOperands, OutputBlocks, ShortReads, Status};
use convert::Convert;
use reader::Reader;
use writer::Writer;

/// What a copy came to.
pub(super) struct Ended {
    pub(super) figures: Figures,
    pub(super) halt: Option<Halt>,
    pub(super) parts: [Part; 2],
    pub(super) in_flight_max: u64,
    /// Bytes that the input and the output have moved on.
    pub(super) moved: [u64; 2],
    /// Something went through a cache of which it has to be written yet.
    pub(super) needs_sync: bool,
    pub(super) sums: Option<Sums>,
}

/// A copy under way.
pub(super) struct Ordered<'a> {
    work: Work<'a>,
    operands: &'a DdOperands,
    reader: Reader<'a>,
    writer: Writer<'a>,
    convert: Convert,
    /// Of the output, until it is full.
    block: Vec<u8>,
    /// How much of a record a short read before left out.
    partial: u64,
}

impl<'a> Ordered<'a> {
    pub(super) fn new(
        cores: &'a mut Cores,
        ends: &'a Ends,
        operands: &'a DdOperands,
        (meter, signals): (&'a mut Meter, &'a Signals),
        overlaps: bool,
    ) -> Ordered<'a> {
        Ordered {
            work: Work::new(cores, operands.status, meter, signals),
            operands,
            reader: Reader::new(&ends.input, operands, overlaps),
            writer: Writer::new(ends, operands, overlaps),
            convert: Convert::new(operands.conversion),
            block: Vec::new(),
            partial: 0,
        }
    }

    /// Copies until the input or the count ends, or something fails.
    pub(super) fn run(mut self) -> Ended {
        let mut copied = self.copy();
        if let Err(Halt::Interrupted) = copied {
            // What was taken is as good as written.
            self.work.ends();
            copied = self.writer.flush(&mut self.work).and(copied);
        }
        // What comes behind the copy finds nothing under way.
        let left = self.work.leave_ahead();
        copied = match left {
            Err(Halt::Interrupted) => left,
            left => copied.and(left),
        };
        Ended {
            figures: self.work.figures,
            halt: copied.err(),
            parts: self.work.parts,
            in_flight_max: self.work.in_flight_max,
            moved: self.writer.moved(),
            needs_sync: self.writer.needs_sync(),
            sums: self.writer.take_sums(),
        }
    }

    fn copy(&mut self) -> Result<(), Halt> {
        let mut record = Vec::new();
        let mut failed = None;
        while let Some(len) = self.next_len() {
            record.clear();
            match self.read(len, &mut record) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Halt::Failed(failure)) if self.operands.noerror => {
                    if !self.pass_over(&failure)? {
                        continue;
                    }
                }
                // What was read before is written all the same.
                Err(Halt::Failed(failure)) => {
                    failed = Some(failure);
                    break;
                }
                Err(halt) => return Err(halt),
            }
            self.count(&mut record);
            self.write(&mut record)?;
        }
        self.finish()?;
        failed.map_or(Ok(()), |failure| Err(Halt::Failed(failure)))
    }

    /// Bytes of the next record; `None` behind the last one.
    fn next_len(&self) -> Option<u64> {
        let block = self.operands.block_size;
        let Count { full, partial } = self.work.figures.records_in;
        let read = full + partial;
        match self.operands.count {
            None => Some(block),
            Some(Amount::Blocks(count)) => (read < count).then_some(block),
            Some(Amount::Bytes(bytes)) => {
                let (whole, rest) = (bytes / block, bytes % block);
                if read < whole {
                    return Some(block);
                }
                (read == whole && rest > 0).then_some(rest)
            }
        }
    }

    /// Reads a record, or with `iflag=fullblock` as many parts of it as it takes; says how long it is.
    fn read(&mut self, len: u64, record: &mut Vec<u8>) -> Result<u64, Halt> {
        let mut done = 0;
        while done < len {
            let read = self.reader.read(&mut self.work, len - done, record)?;
            done += read;
            if read == 0 || self.operands.short_reads == ShortReads::Count && !self.reader.is_never_short() {
                break;
            }
        }
        Ok(done)
    }

    /// A read has failed, and `conv=noerror`: it is told, with the figures, and passed over. Says whether its place is to be filled
    /// with zeros.
    fn pass_over(&mut self, failure: &Failure) -> Result<bool, Halt> {
        let status = self.operands.status;
        if status != Status::Silent {
            self.work.say(&failure.to_string());
            self.work.print();
        }
        self.work.heed()?;
        self.reader.pass_over(self.operands.block_size - self.partial);
        Ok(self.operands.pads && self.partial == 0)
    }

    /// Counts a record, and fills it up where `conv=sync` asks for that.
    fn count(&mut self, record: &mut Vec<u8>) {
        let block = self.operands.block_size;
        let len = record.len() as u64;
        if len == block {
            self.work.figures.records_in.full += 1;
            self.partial = 0;
            return;
        }
        self.work.figures.records_in.partial += 1;
        self.partial = len;
        if self.operands.pads {
            record.resize(block as usize, 0);
        }
    }

    fn write(&mut self, record: &mut Vec<u8>) -> Result<(), Halt> {
        if self.operands.output_blocks == OutputBlocks::AsRead {
            let is_full = record.len() as u64 == self.operands.block_size;
            self.put(record)?;
            let out = &mut self.work.figures.records_out;
            *(if is_full { &mut out.full } else { &mut out.partial }) += 1;
            return Ok(());
        }
        self.convert.change(record);
        self.gather(record)
    }

    /// Writes each block as soon as it is full.
    fn gather(&mut self, mut bytes: &[u8]) -> Result<(), Halt> {
        let room = self.operands.output_block as usize;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(room.saturating_sub(self.block.len())));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() >= room {
                let block = std::mem::take(&mut self.block);
                self.put(&block)?;
                self.work.figures.records_out.full += 1;
                // Its memory serves the next one.
                self.block = block;
                self.block.clear();
            }
        }
        Ok(())
    }

    /// What conversions and blocks still hold.
    fn finish(&mut self) -> Result<(), Halt> {
        if let Some(byte) = self.convert.take_unpaired() {
            self.gather(&[byte])?;
        }
        if !self.block.is_empty() {
            let block = std::mem::take(&mut self.block);
            self.put(&block)?;
            self.work.figures.records_out.partial += 1;
        }
        self.writer.flush(&mut self.work)?;
        self.writer.input_ends_at(self.reader.moved());
        self.writer.extend(&mut self.work)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Halt> {
        self.writer.write(&mut self.work, bytes, self.reader.moved())?;
        self.work.tick();
        Ok(())
    }
}
