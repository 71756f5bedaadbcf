//! Records of an input, one after the other.
//!
//! Where bytes can be reached at any offset, a read takes more than a record, and the next ones find theirs in what is there: a record
//! of 512 bytes is no reason for a request. Nobody can see that, unless the copy reads what it writes, or a read fails. Then records
//! are read one by one.
//!
//! Meanwhile the read of what comes next is under way, so that it goes on beside the writes. What it comes to counts only if the next
//! record lies in it; if it has failed, the record is read again by itself.

use baio_engine::{Buffer, Errno};
use baio_storage::Outcome;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::cores::Way;
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
    /// What is being read beside the writes.
    next: Option<Range>,
    /// No record that `count=` allows begins behind this position, unless some cannot be read.
    count: u64,
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
            next: None,
            count: operands
                .count
                .map_or(u64::MAX, |count| count.bytes(operands.block_size)),
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
        // Its memory goes before the next one has its own.
        self.window = None;
        self.window = match self.take_next(work, begin, len)? {
            None => self.fetch_for(work, begin, len)?,
            window => window,
        };
        self.begin_next(work, begin, len)?;
        let taken = self.take(begin, len, record).unwrap_or(0);
        if !self.reads_ahead {
            self.window = None;
        }
        Ok(taken)
    }

    /// Reads a record and what is behind it.
    fn fetch_for(&mut self, work: &mut Work<'_>, begin: u64, len: u64) -> Result<Option<Window>, Halt> {
        let ahead = if self.reads_ahead { len.max(AHEAD) } else { len };
        let fetched = self.fetch(work, begin, ahead);
        if let (Err(Halt::Failed(_)), true) = (&fetched, ahead > len) {
            // Only what belongs to the record may make it fail.
            self.reads_ahead = false;
            return self.fetch(work, begin, len);
        }
        fetched
    }

    /// Begins to read the first record that is not there, and what is behind it. Larger ones would take too much memory; a broker has
    /// few buffers.
    fn begin_next(&mut self, work: &mut Work<'_>, begin: u64, len: u64) -> Result<(), Halt> {
        let window = self.window.as_ref().filter(|window| !window.ended);
        let can = self.reads_ahead && len <= AHEAD && matches!(self.end.way, Way::Core(_));
        let Some(window) = window.filter(|_| can) else {
            return Ok(());
        };
        let there = (window.begin + window.len).saturating_sub(begin);
        let next = begin + there - there % len.max(1);
        let allowed = self.end.offset(self.count).min(OFFSET_MAX - 2 * AHEAD);
        if next < allowed {
            let range = ReadFrame::at(next, AHEAD, self.end.align).range;
            self.next = work.begin_ahead(self.end, range.offset, range.len)?.then_some(range);
        }
        Ok(())
    }

    /// What was read beside the writes, if the record lies in it.
    fn take_next(&mut self, work: &mut Work<'_>, begin: u64, len: u64) -> Result<Option<Window>, Halt> {
        let Some(Range { offset, len: whole }) = self.next.take() else {
            return Ok(None);
        };
        let Some(outcome) = work.take_ahead()? else {
            return Ok(None);
        };
        // Not twice: who reads a record by itself is told what is wrong with it.
        self.reads_ahead &= outcome.result.is_ok();
        let window = window_of(offset, whole, outcome).filter(|window| window.has(begin, len).is_some());
        Ok(window.filter(|_| self.reads_ahead))
    }

    /// Takes bytes that are there; `None` if some of them are not.
    fn take(&self, begin: u64, len: u64, record: &mut Vec<u8>) -> Option<u64> {
        let bytes = self.window.as_ref()?.has(begin, len)?;
        record.extend_from_slice(bytes);
        Some(bytes.len() as u64)
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
        Ok(window_of(offset, whole, outcome))
    }
}

/// What a read of `whole` bytes has brought.
fn window_of(offset: u64, whole: u64, outcome: Outcome) -> Option<Window> {
    let done = u64::from(outcome.bytes_done);
    outcome.memory.into_buffer().map(|buffer| Window {
        begin: offset,
        buffer,
        len: done,
        ended: done < whole,
    })
}

impl Window {
    /// The bytes of a record, or those before the end of the input; `None` if they have to be read.
    fn has(&self, begin: u64, len: u64) -> Option<&[u8]> {
        let from = begin.checked_sub(self.begin)?;
        let left = self.len.checked_sub(from)?;
        if left < len && (!self.ended || left == 0) {
            return None;
        }
        self.buffer.get(from as usize..(from + left.min(len)) as usize)
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
