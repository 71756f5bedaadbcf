//! Blocks of an output, one after the other.
//!
//! What a direct target can take goes there directly; what does not end on its sectors goes through a cache, which reads the rest of the
//! sectors and keeps it: a segment's through the page cache, a file's through the kernel's.

use baio_console::failure::Failure;
use baio_engine::Durability;
use rustix::event::PollFlags;

use super::super::ends::{End, EndKind};
use super::super::plain::Flow;
use super::super::verify::Sums;
use super::Halt;
use super::work::{Work, refused};
use crate::operands::DdOperands;

/// No request is longer.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// An output, and how far it is written.
pub(super) struct Writer<'a> {
    end: &'a End,
    position: u64,
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
    pub(super) fn new<'a>(end: &'a End, operands: &DdOperands) -> Writer<'a> {
        Writer {
            end,
            position: 0,
            durability: end.durability(operands),
            sparse: operands.sparse && end.flow == Flow::Anywhere,
            passed_over: false,
            waits: !operands.output_flags.nonblock,
            needs_sync: false,
            sums: operands.verifies.then(Sums::default),
        }
    }

    /// Bytes that the output has moved on.
    pub(super) fn moved(&self) -> u64 {
        self.position
    }

    /// Has something to be synced unasked?
    pub(super) fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// The hashes of what is written.
    pub(super) fn take_sums(&mut self) -> Option<Sums> {
        self.sums.take()
    }

    /// Writes all of `bytes`, or what there is room for.
    pub(super) fn write(&mut self, work: &mut Work<'_>, bytes: &[u8]) -> Result<(), Halt> {
        self.passed_over = self.sparse && bytes.iter().all(|byte| *byte == 0);
        if self.passed_over {
            self.advance(work, bytes.len() as u64);
            return Ok(());
        }
        let room = usize::try_from(self.end.room().saturating_sub(self.position)).unwrap_or(usize::MAX);
        let fits = bytes.get(..room).unwrap_or(bytes);
        for part in fits.chunks(REQUEST_BYTES_MAX) {
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
        self.advance(work, done);
        let at = self.end.offset(self.position);
        match outcome.result {
            Ok(_) if done == part.len() as u64 => Ok(()),
            Ok(_) => Err(self.end.wrote_less(at).into()),
            Err(error) => Err(self.end.failed(&error).at(at).into()),
        }
    }

    fn advance(&mut self, work: &mut Work<'_>, len: u64) {
        self.position += len;
        work.figures.bytes += len;
    }

    /// Gives a file the size that it has by what was passed over at its end.
    pub(super) fn extend(&self, work: &mut Work<'_>) -> Result<(), Halt> {
        let is_file = matches!(self.end.kind(), EndKind::File | EndKind::StandardFile);
        if !self.passed_over || !is_file {
            return Ok(());
        }
        let size = self.end.offset(self.position);
        let now = work.cores().with(self.end.way, |core| {
            core.file(self.end.handle).map_or(Ok(size), |file| file.size())
        })?;
        match now {
            Ok(now) if now < size => Ok(self.end.cut(work.cores(), size)?),
            Ok(_) => Ok(()),
            Err(errno) => Err(refused(self.end, "measure", size, errno).into()),
        }
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
