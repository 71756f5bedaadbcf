//! What is read, and what a read that has ended means: a piece, the end of the input, a failure, or an output without room.

use baio::{Outcome, SegmentOp};
use baio_console::failure::Failure;
use rustix::event::PollFlags;

use super::super::ends::{End, unreadable};
use super::super::frame::{Range, ReadFrame};
use super::super::plain::Flow;
use super::super::plan::Piece;
use super::super::progress::Side;
use super::super::slots::State;
use super::hearing::Ready;
use super::{Copy, Fed, STREAM, Source};

/// No file has a byte behind this one.
const OFFSET_MAX: u64 = i64::MAX as u64;

fn frame(input: &End, piece: Piece) -> ReadFrame {
    ReadFrame::at(input.offset(piece.position), piece.len, input.align)
}

/// Bytes of a range that a buffer holds: all, but for a record that has no room, which may be longer.
fn fits(range: Range, buffer_bytes: usize) -> u64 {
    range.len.min(buffer_bytes as u64)
}

impl Copy<'_> {
    pub(super) fn read(&mut self, piece: Piece) -> Result<Fed, Failure> {
        let Some(index) = self.slots.take(piece, State::Reading, None) else {
            return Ok(Fed::Nothing);
        };
        let range = frame(self.input, piece).range;
        let (offset, len) = (range.offset, fits(range, self.read_bytes));
        let buffer = self.routes.buffer(self.read_bytes)?;
        self.reading += 1;
        let input = self.input;
        let op = SegmentOp::Read { offset };
        self.request(input, op, input.mode, (buffer, len), index as u64)?;
        Ok(Fed::Slot)
    }

    /// Writes what the stream has read, or reads on.
    pub(super) fn feed_from_stream(&mut self) -> Result<Fed, Failure> {
        let Source::InOrder(stream) = &mut self.source else {
            return Ok(Fed::Nothing);
        };
        let routes = &mut *self.routes;
        match stream.next_piece(&mut |len| routes.buffer(len))? {
            Some((piece, buffer)) => return self.feed_piece(piece, buffer),
            None => self.look_for_room(),
        }
        let Source::InOrder(stream) = &mut self.source else {
            return Ok(Fed::Nothing);
        };
        // Where the order can be seen nothing is read before all is written.
        if self.reading > 0 || self.slots.is_one() && self.slots.are_busy() {
            return Ok(Fed::Nothing);
        }
        let Some(len) = stream.next_read() else {
            return Ok(Fed::Nothing);
        };
        let input = self.input;
        let frame = ReadFrame::at(input.offset(stream.position()), len, input.align);
        if let Some(errno) = input.unreadable {
            self.read_failed(unreadable(&input.typed, errno))?;
            return Ok(Fed::Heard);
        }
        if input.flow == Flow::Anywhere && frame.range.offset > OFFSET_MAX {
            // Nothing is there, and no read there would say so: `conv=noerror` would go on for ever.
            self.finish_stream()?;
            return Ok(Fed::Moved);
        }
        match self.ready(input, PollFlags::IN) {
            Ready::Yes => {}
            Ready::Interrupted => return Ok(Fed::Heard),
            Ready::Failed(failure) => {
                self.read_failed(failure)?;
                return Ok(Fed::Heard);
            }
        }
        let Range { offset, len } = frame.range;
        // No more than is read: it may become a piece, and wait with many others.
        let buffer = self.routes.buffer(len as usize)?;
        self.reading += 1;
        self.request(input, SegmentOp::Read { offset }, input.mode, (buffer, len), STREAM)?;
        Ok(Fed::Slot)
    }

    pub(super) fn stream_read(&mut self, outcome: Outcome) -> Result<(), Failure> {
        self.reading -= 1;
        let Source::InOrder(stream) = &mut self.source else {
            return Ok(());
        };
        let input = self.input;
        let begin = input.offset(stream.position());
        let head = ReadFrame::at(begin, 0, input.align).head;
        let done = u64::from(outcome.bytes_done).saturating_sub(head).min(stream.asked());
        if let Err(error) = &outcome.result {
            let was_run = stream.takes_smaller_steps();
            if done == 0 {
                // Only what belongs to the record may make it fail.
                return match was_run {
                    true => Ok(()),
                    false => self.read_failed(match input.flow {
                        Flow::Anywhere => input.failed(error).at(begin),
                        Flow::InOrder => input.failed(error),
                    }),
                };
            }
        }
        let Some(buffer) = outcome.memory.into_buffer() else {
            return Ok(());
        };
        let routes = &mut *self.routes;
        stream.take(buffer, (head, done), &mut |len| routes.buffer(len))?;
        self.look_for_room();
        Ok(())
    }

    /// A read of the stream has failed: that is passed over (`conv=noerror`), or what was read before is written all the same.
    fn read_failed(&mut self, failure: Failure) -> Result<(), Failure> {
        if !self.operands.noerror || self.interrupted {
            self.finish_stream()?;
            if let Source::InOrder(stream) = &self.source {
                self.progress.fail(stream.blocks().position(), Side::Input, failure);
            }
            return Ok(());
        }
        self.say(&failure);
        let routes = &mut *self.routes;
        if let Source::InOrder(stream) = &mut self.source {
            stream.pass_over(&mut |len| routes.buffer(len))?;
        }
        self.look_for_room();
        Ok(())
    }

    fn finish_stream(&mut self) -> Result<(), Failure> {
        let routes = &mut *self.routes;
        if let Source::InOrder(stream) = &mut self.source {
            stream.finish(&mut |len| routes.buffer(len))?;
        }
        self.look_for_room();
        Ok(())
    }

    pub(super) fn piece_read(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        self.reading -= 1;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        let piece = slot.piece;
        let ReadFrame { range, head } = frame(self.input, piece);
        let valid = u64::from(outcome.bytes_done).saturating_sub(head).min(piece.len);
        slot.buffer = outcome.memory.into_buffer();
        slot.piece.len = valid;
        let end = piece.position + valid;
        let asked = fits(range, self.read_bytes).saturating_sub(head).min(piece.len);
        if valid < asked {
            self.input_end = self.input_end.min(end);
            self.end_plan();
        } else if asked < piece.len {
            // How much of the rest is there its size says, where it has one.
            let size = self.input.size.saturating_sub(self.input.origin);
            self.input_end = self.input_end.min(if size > end { size } else { u64::MAX });
        }
        if let Err(error) = &outcome.result {
            let failure = self.input.failed(error).at(self.input.offset(end));
            self.progress.fail(end, Side::Input, failure);
        }
        if piece.has_no_room && valid > 0 {
            self.out_of_room();
        }
        if valid == 0 || self.progress.is_lost(piece.position) {
            self.slots.release(index);
            return Ok(());
        }
        self.place(index, head)
    }

    pub(super) fn end_plan(&mut self) {
        match &mut self.source {
            Source::Anywhere(plan) => plan.end(),
            Source::InOrder(stream) => stream.stop(),
        }
    }

    fn look_for_room(&mut self) {
        if matches!(&self.source, Source::InOrder(stream) if stream.has_no_room()) {
            self.out_of_room();
        }
    }

    /// The output is full, and there is more to be written.
    fn out_of_room(&mut self) {
        let (room, failure) = (self.output.room(), self.output.is_full());
        self.progress.fail(room, Side::Output, failure);
        self.end_plan();
    }
}
