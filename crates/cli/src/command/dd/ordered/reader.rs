//! Records of an input, one after the other.
//!
//! Where bytes can be reached at any offset, a read takes more than a record, and the next ones find theirs in what is there: a record
//! of 512 bytes is no reason for a request. Nobody can see that, unless the copy reads what it writes, or a read fails. Then records
//! are read one by one.

use baio_engine::{Buffer, Errno};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::ends::{End, unreadable};
use super::super::frame::{Range, ReadFrame};
use super::super::plain::Flow;
use super::super::work::{Halt, Work, refused};
use crate::operands::DdOperands;

/// A read takes so much, or a record where that is longer.
const AHEAD: u64 = 256 << 10;

/// No file has a byte behind this one.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Bytes that are there before anybody asks for them.
struct Window {
    begin: u64,
    buffer: Buffer,
    len: u64,
    /// The input ended with it, when it was read.
    ended: bool,
}

/// An input, and how far it is read.
pub(super) struct Reader<'a> {
    end: &'a End,
    /// Where the next record begins, counted from the first one.
    position: u64,
    window: Option<Window>,
    reads_ahead: bool,
    /// `iflag=nonblock`.
    waits: bool,
}

impl Reader<'_> {
    pub(super) fn new<'a>(end: &'a End, operands: &DdOperands, overlaps: bool) -> Reader<'a> {
        Reader {
            end,
            position: 0,
            window: None,
            reads_ahead: !overlaps && end.flow == Flow::Anywhere,
            waits: !operands.input_flags.nonblock,
        }
    }

    /// Bytes that the input has moved on.
    pub(super) fn moved(&self) -> u64 {
        self.position
    }

    /// Is a short read no end of a record here?
    pub(super) fn is_never_short(&self) -> bool {
        self.end.never_short
    }

    /// Leaves out what cannot be read.
    pub(super) fn pass_over(&mut self, len: u64) {
        self.window = None;
        if self.end.flow == Flow::Anywhere {
            self.position += len;
        }
    }

    /// Appends at most `len` bytes to `record`, and says how many; none behind the end.
    pub(super) fn read(&mut self, work: &mut Work<'_>, len: u64, record: &mut Vec<u8>) -> Result<u64, Halt> {
        if let Some(errno) = self.end.unreadable {
            return Err(unreadable(&self.end.typed, errno).into());
        }
        let read = match self.end.flow {
            Flow::InOrder => self.read_next(work, len, record)?,
            Flow::Anywhere => self.read_at(work, len, record)?,
        };
        self.position += read;
        Ok(read)
    }

    fn read_next(&self, work: &mut Work<'_>, len: u64, record: &mut Vec<u8>) -> Result<u64, Halt> {
        if !self.waits {
            self.end.must_be_ready(PollFlags::IN, "read")?;
        }
        work.wait_for(self.end, PollFlags::IN)?;
        let outcome = work.read(self.end, self.end.offset(self.position), len)?;
        let done = u64::from(outcome.bytes_done);
        match (outcome.result, outcome.memory.into_buffer()) {
            (Err(error), _) if done == 0 => Err(self.end.failed(&error).into()),
            (_, Some(buffer)) => {
                record.extend_from_slice(buffer.get(..done as usize).unwrap_or_default());
                Ok(done)
            }
            _ => Ok(0),
        }
    }

    fn read_at(&mut self, work: &mut Work<'_>, len: u64, record: &mut Vec<u8>) -> Result<u64, Halt> {
        let begin = self.end.offset(self.position);
        if begin > OFFSET_MAX {
            // Nothing is there, and no read there would say so: `conv=noerror` would go on for ever.
            return Ok(0);
        }
        if let Some(taken) = self.take(begin, len, record) {
            return Ok(taken);
        }
        self.window = None;
        let ahead = if self.reads_ahead { len.max(AHEAD) } else { len };
        let mut fetched = self.fetch(work, begin, ahead);
        if let (Err(Halt::Failed(_)), true) = (&fetched, ahead > len) {
            // Only what belongs to the record may make it fail.
            self.reads_ahead = false;
            fetched = self.fetch(work, begin, len);
        }
        self.window = fetched?;
        let taken = self.take(begin, len, record).unwrap_or(0);
        if !self.reads_ahead {
            self.window = None;
        }
        Ok(taken)
    }

    /// Takes bytes that are there; `None` if some of them are not.
    fn take(&self, begin: u64, len: u64, record: &mut Vec<u8>) -> Option<u64> {
        let window = self.window.as_ref()?;
        let from = begin.checked_sub(window.begin)?;
        let left = window.len.checked_sub(from)?;
        if left < len && (!window.ended || left == 0) {
            return None;
        }
        let taken = left.min(len);
        record.extend_from_slice(window.buffer.get(from as usize..(from + taken) as usize)?);
        Some(taken)
    }

    fn fetch(&self, work: &mut Work<'_>, begin: u64, len: u64) -> Result<Option<Window>, Halt> {
        let Range { offset, len: whole } = ReadFrame::at(begin, len, self.end.align).range;
        let outcome = work.read(self.end, offset, whole)?;
        let done = u64::from(outcome.bytes_done);
        if let Err(error) = &outcome.result
            && offset.saturating_add(done) <= begin
        {
            return Err(self.end.failed(error).at(begin).into());
        }
        Ok(outcome.memory.into_buffer().map(|buffer| Window {
            begin: offset,
            buffer,
            len: done,
            ended: done < whole,
        }))
    }
}

impl End {
    /// With `nonblock`, what would wait fails.
    pub(super) fn must_be_ready(&self, flags: PollFlags, operation: &'static str) -> Result<(), Halt> {
        let Some(file) = &self.positioned else {
            return Ok(());
        };
        let now = Timespec::default();
        let mut watched = [PollFd::new(file, flags)];
        match poll(&mut watched, Some(&now)) {
            Ok(0) => Err(refused(self, operation, 0, Errno::EAGAIN).into()),
            // Whatever else there is to say, the request says it.
            _ => Ok(()),
        }
    }
}
