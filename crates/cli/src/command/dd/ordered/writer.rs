//! Blocks of an output, one after the other.
//!
//! Where neither side is a stream, nobody can see whether a block of 512 bytes is a request of its own: blocks are gathered, and written
//! together. For each of them is remembered what the figures were before it, so that a write that fails leaves those of the block
//! that failed.
//!
//! What a direct target can take goes there directly; what does not end on its sectors goes through a cache, which reads the rest of the
//! sectors and keeps it: a segment's through the page cache, a file's through the kernel's.

use std::collections::VecDeque;

use baio_console::failure::Failure;
use baio_engine::Durability;
use rustix::event::PollFlags;

use super::super::ends::{End, EndKind, Ends};
use super::super::figures::Figures;
use super::super::plain::Flow;
use super::super::verify::Sums;
use super::super::work::{Halt, Work};
use crate::operands::{DdOperands, OutputBlocks};

/// No request is longer.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// As much is gathered before it is written.
const GATHERED_BYTES: usize = 256 << 10;

/// What was so before a block was taken.
#[derive(Clone, Copy)]
struct Before {
    /// Where the block begins.
    position: u64,
    figures: Figures,
    /// Bytes that the input had moved on when it was read.
    input: u64,
}

/// An output, and how far it is written.
pub(super) struct Writer<'a> {
    end: &'a End,
    /// Bytes that are written, or passed over.
    position: u64,
    /// Bytes behind them that are not, and the blocks that have some of them.
    pending: Vec<u8>,
    blocks: VecDeque<Before>,
    gathers: bool,
    /// A part of a block that fails counts as a partial one.
    counts_parts: bool,
    /// Bytes that the input has moved on.
    input: u64,
    durability: Durability,
    /// `conv=sparse`, as long as the output has positions.
    sparse: bool,
    /// The last block was passed over.
    passed_over: bool,
    /// `oflag=nonblock`.
    waits: bool,
    needs_sync: bool,
    /// `verify=`: of what is written.
    sums: Option<Sums>,
}

impl Writer<'_> {
    pub(super) fn new<'a>(ends: &'a Ends, operands: &DdOperands, overlaps: bool) -> Writer<'a> {
        let end = &ends.output;
        let durability = end.durability(operands);
        let streams = ends.input.flow == Flow::InOrder || end.flow == Flow::InOrder;
        Writer {
            end,
            position: 0,
            pending: Vec::new(),
            blocks: VecDeque::new(),
            gathers: !streams && !overlaps && durability == Durability::None,
            counts_parts: operands.output_blocks == OutputBlocks::Full,
            input: 0,
            durability,
            sparse: operands.sparse && end.flow == Flow::Anywhere,
            passed_over: false,
            waits: !operands.output_flags.nonblock,
            needs_sync: false,
            sums: operands.verifies.then(Sums::default),
        }
    }

    /// Bytes that the input and the output have moved on.
    pub(super) fn moved(&self) -> [u64; 2] {
        [self.input, self.position]
    }

    /// All is written, and so much was read.
    pub(super) fn input_ends_at(&mut self, position: u64) {
        self.input = position;
    }

    /// Has something to be synced unasked?
    pub(super) fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// The hashes of what is written.
    pub(super) fn take_sums(&mut self) -> Option<Sums> {
        self.sums.take()
    }

    /// Takes a block, read when the input had moved on by `input`.
    pub(super) fn write(&mut self, work: &mut Work<'_>, bytes: &[u8], input: u64) -> Result<(), Halt> {
        // What has no place is written, and so refused.
        let fits = self.position.saturating_add((self.pending.len() + bytes.len()) as u64) <= self.end.room();
        self.passed_over = self.sparse && fits && bytes.iter().all(|byte| *byte == 0);
        if self.passed_over {
            self.flush(work)?;
            self.position += bytes.len() as u64;
            work.figures.bytes += bytes.len() as u64;
            self.input = input;
            return Ok(());
        }
        self.blocks.push_back(Before {
            position: self.position + self.pending.len() as u64,
            figures: work.figures,
            input: self.input,
        });
        self.input = input;
        self.pending.extend_from_slice(bytes);
        work.figures.bytes += bytes.len() as u64;
        match (self.gathers, self.pending.len() >= GATHERED_BYTES) {
            (false, _) => self.flush(work),
            (true, false) => Ok(()),
            // What is left over ends on whole sectors with the next ones.
            (true, true) => {
                let end = self.end.offset(self.position) + self.pending.len() as u64;
                let rest = (end % self.end.align.max(1)) as usize;
                self.flush_first(work, self.pending.len().saturating_sub(rest))
            }
        }
    }

    /// Writes all that was taken, or what there is room for.
    pub(super) fn flush(&mut self, work: &mut Work<'_>) -> Result<(), Halt> {
        self.flush_first(work, self.pending.len())
    }

    fn flush_first(&mut self, work: &mut Work<'_>, len: usize) -> Result<(), Halt> {
        let bytes = std::mem::take(&mut self.pending);
        let (now, later) = bytes.split_at(len.min(bytes.len()));
        let written = self.write_all(work, now);
        if written.is_err() {
            self.fail(work);
            return written;
        }
        self.pending.extend_from_slice(later);
        while self.blocks.get(1).is_some_and(|next| next.position <= self.position) {
            self.blocks.pop_front();
        }
        if self.pending.is_empty() {
            self.blocks.clear();
        }
        Ok(())
    }

    /// Nothing behind the block that has failed was read, as far as the figures say.
    fn fail(&mut self, work: &mut Work<'_>) {
        let failed = self.blocks.iter().rfind(|block| block.position <= self.position);
        if let Some(failed) = failed {
            let began = self.position > failed.position;
            work.figures = failed.figures;
            work.figures.bytes = failed.figures.bytes + (self.position - failed.position);
            work.figures.records_out.partial += u64::from(self.counts_parts && began);
        }
        // Of the input what belongs to that block was read, but nothing behind it.
        let next = self.blocks.iter().find(|block| block.position > self.position);
        self.input = next.map_or(self.input, |next| next.input);
        self.blocks.clear();
    }

    /// The first bytes go by themselves if they end on a sector that they do not begin, and so do the last ones if they begin on a
    /// sector that they do not end: what lies between goes as it was asked for.
    fn write_all(&mut self, work: &mut Work<'_>, bytes: &[u8]) -> Result<(), Halt> {
        let align = self.end.align.max(1);
        let room = usize::try_from(self.end.room().saturating_sub(self.position)).unwrap_or(usize::MAX);
        let fits = bytes.get(..room).unwrap_or(bytes);
        let to_sector = (align - self.end.offset(self.position) % align) % align;
        let (first, rest) = fits.split_at((to_sector as usize).min(fits.len()));
        let (whole, last) = rest.split_at(rest.len() - rest.len() % align as usize);
        let parts = [first].into_iter().chain(whole.chunks(REQUEST_BYTES_MAX)).chain([last]);
        for part in parts.filter(|part| !part.is_empty()) {
            self.write_part(work, part)?;
        }
        match fits.len() < bytes.len() {
            true => Err(self.end.is_full().into()),
            false => Ok(()),
        }
    }

    fn write_part(&mut self, work: &mut Work<'_>, part: &[u8]) -> Result<(), Halt> {
        if !self.waits && self.end.flow == Flow::InOrder {
            self.end.must_be_ready(PollFlags::OUT, "write")?;
        }
        if self.end.flow == Flow::InOrder {
            work.wait_for(self.end, PollFlags::OUT)?;
        }
        let offset = self.end.offset(self.position);
        let mode = self.end.mode_of_write(offset, part.len() as u64);
        self.needs_sync |= mode != self.end.mode;
        let outcome = work.write(self.end, offset, part, (mode, self.durability))?;
        let done = u64::from(outcome.bytes_done);
        if let Some(sums) = &mut self.sums {
            sums.add(part.get(..done as usize).unwrap_or_default());
        }
        self.position += done;
        let at = self.end.offset(self.position);
        match outcome.result {
            Ok(_) if done == part.len() as u64 => Ok(()),
            Ok(_) => Err(self.end.wrote_less(at).into()),
            Err(error) => Err(self.end.failed(&error).at(at).into()),
        }
    }

    /// Gives a file the size that it has by what was passed over at its end.
    pub(super) fn extend(&mut self, work: &mut Work<'_>) -> Result<(), Halt> {
        let is_file = matches!(self.end.kind(), EndKind::File | EndKind::StandardFile);
        if !self.passed_over || !is_file {
            return Ok(());
        }
        let size = self.end.offset(self.position);
        if self.end.size_now(work.cores())? < size {
            self.end.cut(work.cores(), size)?;
            // A size is no write that could have been durable by itself.
            self.needs_sync |= self.durability != Durability::None;
        }
        Ok(())
    }
}

impl End {
    /// The system took less than it was given.
    pub(in super::super) fn wrote_less(&self, offset: u64) -> Failure {
        Failure::new("dd", "EIO", "the system wrote less than it was given, and no reason")
            .on(self.typed.clone())
            .at(offset)
    }
}
