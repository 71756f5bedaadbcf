//! What a read that has ended means: a piece, the end of the input, a failure, or an output without room.

use baio_console::failure::Failure;
use baio_storage::Outcome;

use super::super::frame::ReadFrame;
use super::super::progress::Side;
use super::super::stream::Taken;
use super::{Copy, Source};

impl Copy<'_> {
    pub(super) fn stream_read(&mut self, outcome: Outcome) -> Result<(), Failure> {
        self.reading -= 1;
        let Source::InOrder(stream) = &mut self.source else {
            return Ok(());
        };
        let (cores, bytes) = (&mut *self.cores, self.buffer_bytes);
        let Some(buffer) = outcome.memory.into_buffer() else {
            return Ok(());
        };
        let taken = stream.take(buffer, u64::from(outcome.bytes_done), || cores.buffer(bytes))?;
        let position = stream.position();
        if let Err(error) = &outcome.result {
            stream.end();
            self.progress.fail(position, Side::Input, self.input.failed(error));
        }
        if matches!(taken, Taken::NoRoom) {
            self.out_of_room();
        }
        Ok(())
    }

    pub(super) fn piece_read(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        self.reading -= 1;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        let piece = slot.piece;
        let head = ReadFrame::of(self.input, piece).head;
        let valid = u64::from(outcome.bytes_done).saturating_sub(head).min(piece.len);
        slot.buffer = outcome.memory.into_buffer();
        slot.piece.len = valid;
        let end = piece.position + valid;
        if valid < piece.len {
            self.input_end = self.input_end.min(end);
            self.end_plan();
        }
        if let Err(error) = &outcome.result {
            let failure = self.input.failed(error).at(self.input.offset(end));
            self.progress.fail(end, Side::Input, failure);
        }
        if piece.has_no_room && valid > 0 {
            self.input_end = self.input_end.min(if valid < piece.len { end } else { u64::MAX });
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
            Source::InOrder(stream) => stream.end(),
        }
    }

    /// The output is full, and there is more to be written.
    fn out_of_room(&mut self) {
        let (room, failure) = (self.output.room(), self.output.is_full());
        self.progress.fail(room, Side::Output, failure);
        self.end_plan();
    }
}
