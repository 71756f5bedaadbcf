//! What a piece goes through until it is written: moved in its buffer, joined by the bytes that its blocks keep, put in
//! order where the output wants order, written.

use baio_console::failure::Failure;
use baio_engine::Memory;
use baio_storage::{Mode, Outcome, SegmentOp};

use super::super::frame::{Range, WriteFrame};
use super::super::plain::Flow;
use super::super::progress::Side;
use super::super::slots::State;
use super::{Copy, Source};

impl Copy<'_> {
    /// Moves a piece, which begins at `head`, to where the output wants it in the buffer.
    pub(super) fn place(&mut self, index: usize, head: u64) -> Result<(), Failure> {
        let output = self.output;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        let frame = WriteFrame::of(output, slot.piece);
        let len = slot.piece.len as usize;
        if let Some(buffer) = &mut slot.buffer {
            buffer.set_len(buffer.capacity());
            if head != frame.head {
                let (from, to) = (head as usize, frame.head as usize);
                buffer.copy_within(from..from + len, to);
            }
        }
        match frame.head_block() {
            Some(block) => self.keep(index, State::KeepingHead, block),
            None => self.keep_tail(index),
        }
    }

    fn keep_tail(&mut self, index: usize) -> Result<(), Failure> {
        let output = self.output;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        match WriteFrame::of(output, slot.piece).tail_block() {
            Some(block) => self.keep(index, State::KeepingTail, block),
            None => self.whole(index),
        }
    }

    /// Reads a block of the output, of which a part is to stay.
    fn keep(&mut self, index: usize, state: State, block: Range) -> Result<(), Failure> {
        let output = self.output;
        if let Some(slot) = self.slots.get(index) {
            slot.state = state;
        }
        let buffer = self.cores.buffer(block.len as usize)?;
        let op = SegmentOp::Read { offset: block.offset };
        self.request(output, op, output.mode, (buffer, block.len), index as u64)
    }

    pub(super) fn head_kept(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        match self.kept(index, outcome, WriteFrame::keep_head) {
            true => self.keep_tail(index),
            false => Ok(()),
        }
    }

    pub(super) fn tail_kept(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        match self.kept(index, outcome, WriteFrame::keep_tail) {
            true => self.whole(index),
            false => Ok(()),
        }
    }

    /// Takes a kept block into the piece's buffer; says whether that could be done.
    fn kept(&mut self, index: usize, outcome: Outcome, keep: fn(&WriteFrame, &mut [u8], &[u8])) -> bool {
        let output = self.output;
        let Some(slot) = self.slots.get(index) else {
            return false;
        };
        let piece = slot.piece;
        match (outcome.result, outcome.memory, &mut slot.buffer) {
            (Ok(_), Memory::Own(block), Some(buffer)) => {
                keep(&WriteFrame::of(output, piece), buffer, &block);
                true
            }
            (result, ..) => {
                self.slots.release(index);
                if let Err(error) = result {
                    self.write_failed(piece.position, output.failed(&error));
                }
                false
            }
        }
    }

    /// The buffer holds everything that is to be written.
    fn whole(&mut self, index: usize) -> Result<(), Failure> {
        if self.output.flow == Flow::Anywhere {
            return self.write(index);
        }
        if let Some(slot) = self.slots.get(index) {
            slot.state = State::Ready;
            self.ready.insert(slot.piece.position, index);
        }
        self.write_next()
    }

    /// Starts the next write of an output that takes its bytes in order.
    fn write_next(&mut self) -> Result<(), Failure> {
        let next = self.next_write.and_then(|position| self.ready.remove(&position));
        match next {
            Some(index) => {
                self.next_write = None;
                self.write(index)
            }
            None => Ok(()),
        }
    }

    fn write(&mut self, index: usize) -> Result<(), Failure> {
        let output = self.output;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        let Range { offset, len } = WriteFrame::of(output, slot.piece).range;
        let Some(buffer) = slot.buffer.take() else {
            return Ok(());
        };
        slot.state = State::Writing;
        let mode = if len.is_multiple_of(output.align) {
            output.mode
        } else {
            // As GNU dd does when it clears O_DIRECT for a partial block.
            self.cached_tail = true;
            Mode::Kernel
        };
        self.request(output, SegmentOp::Write { offset }, mode, (buffer, len), index as u64)
    }

    pub(super) fn piece_written(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        let output = self.output;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        let piece = slot.piece;
        self.slots.release(index);
        let head = WriteFrame::of(output, piece).head;
        let done = u64::from(outcome.bytes_done).saturating_sub(head).min(piece.len);
        let end = piece.position + done;
        self.progress.add(piece.position, done);
        if let Source::InOrder(stream) = &mut self.source {
            stream.records().advance(self.progress.written());
        }
        match outcome.result {
            Ok(_) if done == piece.len => {}
            Ok(_) => {
                let failure = Failure::new("dd", "EIO", "the system wrote less than it was given, and no reason")
                    .on(output.typed.clone())
                    .at(output.offset(end));
                self.write_failed(end, failure);
            }
            Err(error) => {
                let failure = output.failed(&error).at(output.offset(end));
                self.write_failed(end, failure);
            }
        }
        if output.flow == Flow::InOrder && !self.progress.has_stopped_at_output() {
            self.next_write = Some(end);
            return self.write_next();
        }
        Ok(())
    }

    fn write_failed(&mut self, position: u64, failure: Failure) {
        self.progress.fail(position, Side::Output, failure);
        self.end_plan();
        for (_, index) in std::mem::take(&mut self.ready) {
            self.slots.release(index);
        }
    }
}
