//! What a piece goes through until it is written: moved in its buffer, put in order where the output wants order, written.

use baio::{Buffer, Outcome, SegmentOp};
use baio_console::failure::Failure;
use rustix::event::PollFlags;

use super::super::ends::End;
use super::super::plain::Flow;
use super::super::plan::Piece;
use super::super::progress::Side;
use super::super::slots::State;
use super::hearing::Ready;
use super::{Copy, Fed, Source};

impl Copy<'_> {
    /// A piece of the stream: it is written, or passed over.
    pub(super) fn feed_piece(&mut self, piece: Piece, buffer: Option<Buffer>) -> Result<Fed, Failure> {
        if self.progress.is_lost(piece.position) {
            return Ok(Fed::Moved);
        }
        let Some(buffer) = buffer else {
            self.progress.add(piece.position, piece.len);
            self.count_written();
            return Ok(Fed::Moved);
        };
        match self.slots.take(piece, State::Ready, Some(buffer)) {
            Some(index) => self.whole(index)?,
            None => return Ok(Fed::Nothing),
        }
        Ok(Fed::Slot)
    }

    fn count_written(&mut self) {
        if let Source::InOrder(stream) = &mut self.source {
            stream.written(self.progress.written());
        }
    }

    /// Moves a piece, which begins at `head`, to the beginning of its buffer.
    pub(super) fn place(&mut self, index: usize, head: u64) -> Result<(), Failure> {
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        let (head, len) = (head as usize, slot.piece.len as usize);
        if let Some(buffer) = &mut slot.buffer {
            buffer.set_len(buffer.capacity());
            if head > 0 {
                buffer.copy_within(head..head + len, 0);
            }
        }
        self.whole(index)
    }

    /// The buffer holds everything that is to be written.
    fn whole(&mut self, index: usize) -> Result<(), Failure> {
        if self.output.flow == Flow::Anywhere && self.sums.is_none() {
            return self.write(index);
        }
        if let Some(slot) = self.slots.get(index) {
            slot.state = State::Ready;
            self.ready.insert(slot.piece.position, index);
        }
        self.write_next()
    }

    /// Starts the next write of an output that takes its bytes in order; all next ones where only the hash wants order.
    fn write_next(&mut self) -> Result<(), Failure> {
        while let Some(position) = self.next_write {
            let Some(index) = self.ready.remove(&position) else {
                break;
            };
            self.next_write = None;
            if let (Some(sums), Some(slot)) = (&mut self.sums, self.slots.get(index)) {
                let bytes = slot
                    .buffer
                    .as_ref()
                    .and_then(|buffer| buffer.get(..slot.piece.len as usize));
                sums.add(bytes.unwrap_or_default());
                if self.output.flow == Flow::Anywhere {
                    self.next_write = Some(position + slot.piece.len);
                }
            }
            self.write(index)?;
        }
        Ok(())
    }

    fn write(&mut self, index: usize) -> Result<(), Failure> {
        let output = self.output;
        let ready = self.ready(output, PollFlags::OUT);
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        let position = slot.piece.position;
        match ready {
            Ready::Yes => {}
            Ready::Interrupted => {
                self.slots.release(index);
                return Ok(());
            }
            Ready::Failed(failure) => {
                self.slots.release(index);
                self.write_failed(position, failure);
                return Ok(());
            }
        }
        let (offset, len) = (output.offset(position), slot.piece.len);
        let Some(buffer) = slot.buffer.take() else {
            return Ok(());
        };
        slot.state = State::Writing;
        let mode = output.mode_of_write(offset, len);
        self.needs_sync |= mode != output.mode;
        self.request(output, SegmentOp::Write { offset }, mode, (buffer, len), index as u64)
    }

    pub(super) fn piece_written(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        let output = self.output;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        let piece = slot.piece;
        self.slots.release(index);
        let done = u64::from(outcome.bytes_done).min(piece.len);
        let end = piece.position + done;
        self.progress.add(piece.position, done);
        self.count_written();
        match outcome.result {
            Ok(_) if done == piece.len => {}
            Ok(_) => {
                let failure = output.wrote_less(output.offset(end));
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

impl End {
    /// The system took less than it was given.
    fn wrote_less(&self, offset: u64) -> Failure {
        Failure::new("dd", "EIO", "the system wrote less than it was given, without an error")
            .on(self.typed.clone())
            .at(offset)
    }
}
