//! The copy itself: pieces are read and written at the same time, each in a slot of its own.
//!
//! ```text
//! feed:     free slots begin to read the pieces that the plan, or the stream, gives
//! outcomes: each moves its slot on: read, keep head, keep tail, write (see `slots.rs`)
//! turn:     everything queued goes to the kernel in one call, which sleeps until something has ended
//! ```

use std::collections::BTreeMap;

use baio_engine::{Buffer, Memory};
use baio_storage::{Mode, Outcome, SegmentOp, SegmentRequest};

use super::cores::Cores;
use super::ends::{End, Ends};
use super::frame::{Range, ReadFrame, WriteFrame};
use super::plain::Flow;
use super::plan::{Piece, Plan};
use super::progress::{Progress, Side};
use super::slots::{Slots, State};
use super::stream::{Stream, Taken};
use super::summary::Meter;
use crate::failure::Failure;

/// The tag of the one read of a stream; all other tags are indices of slots.
const STREAM: u64 = u64::MAX;

/// Where the pieces come from.
pub(super) enum Source {
    /// An input that can be read at any offset.
    Anywhere(Plan),
    /// An input that comes in order.
    InOrder(Stream),
}

/// A copy under way.
pub(super) struct Copy<'a> {
    cores: &'a mut Cores,
    input: &'a End,
    output: &'a End,
    source: Source,
    slots: Slots,
    buffer_bytes: usize,
    /// Pieces that wait to be written in order, by position.
    ready: BTreeMap<u64, usize>,
    /// Where the next write of an output in order begins; `None` while one is under way.
    next_write: Option<u64>,
    reading: usize,
    in_flight: u64,
    in_flight_max: u64,
    progress: Progress,
    /// Where the input ends, once that is known.
    input_end: u64,
    /// The unaligned end of a direct file went through the kernel's cache.
    cached_tail: bool,
}

/// What a copy came to.
pub(super) struct Copied {
    pub(super) source: Source,
    pub(super) progress: Progress,
    pub(super) in_flight_max: u64,
    pub(super) input_end: u64,
    pub(super) cached_tail: bool,
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        cores: &'a mut Cores,
        ends: &'a Ends,
        source: Source,
        depth: usize,
        buffer_bytes: usize,
    ) -> Copy<'a> {
        Copy {
            cores,
            input: &ends.input,
            output: &ends.output,
            source,
            slots: Slots::new(depth),
            buffer_bytes,
            ready: BTreeMap::new(),
            next_write: Some(0),
            reading: 0,
            in_flight: 0,
            in_flight_max: 0,
            progress: Progress::default(),
            input_end: u64::MAX,
            cached_tail: false,
        }
    }

    /// Copies until the input, the count or the room ends, or something fails.
    ///
    /// # Errors
    /// Only what leaves no way to go on; all else is told by the outcome.
    pub(super) fn run(mut self, meter: &mut Meter) -> Result<Copied, Failure> {
        loop {
            self.feed()?;
            let mut moved = false;
            while let Some(outcome) = self.cores.next_outcome() {
                moved = true;
                self.in_flight -= 1;
                self.ended(outcome)?;
            }
            meter.tick(self.progress.written());
            if moved {
                continue;
            }
            if self.in_flight == 0 {
                break;
            }
            self.in_flight_max = self.in_flight_max.max(self.in_flight);
            self.cores.turn()?;
        }
        Ok(Copied {
            source: self.source,
            progress: self.progress,
            in_flight_max: self.in_flight_max,
            input_end: self.input_end,
            cached_tail: self.cached_tail,
        })
    }

    /// Gives every free slot a piece, as long as there are pieces.
    fn feed(&mut self) -> Result<(), Failure> {
        while self.slots.any_free() {
            let fed = match &mut self.source {
                Source::Anywhere(plan) => match plan.next_piece(self.reading) {
                    Some(piece) => self.read(piece)?,
                    None => false,
                },
                Source::InOrder(_) => self.feed_from_stream()?,
            };
            if !fed {
                break;
            }
        }
        Ok(())
    }

    fn feed_from_stream(&mut self) -> Result<bool, Failure> {
        let Source::InOrder(stream) = &mut self.source else {
            return Ok(false);
        };
        if let Some((piece, buffer)) = stream.next_piece() {
            if self.progress.is_lost(piece.position) {
                return Ok(true);
            }
            if let Some(index) = self.slots.take(piece, State::Reading, Some(buffer)) {
                self.place(index, 0)?;
            }
            return Ok(true);
        }
        let (Some(len), 0) = (stream.wants(), self.reading) else {
            return Ok(false);
        };
        let offset = self.input.offset(stream.position());
        let buffer = self.cores.buffer(self.buffer_bytes)?;
        self.reading += 1;
        let input = self.input;
        self.request(input, SegmentOp::Read { offset }, input.mode, (buffer, len), STREAM)?;
        Ok(false)
    }

    fn read(&mut self, piece: Piece) -> Result<bool, Failure> {
        let Some(index) = self.slots.take(piece, State::Reading, None) else {
            return Ok(false);
        };
        let Range { offset, len } = ReadFrame::of(self.input, piece).range;
        let buffer = self.cores.buffer(self.buffer_bytes)?;
        self.reading += 1;
        let input = self.input;
        self.request(
            input,
            SegmentOp::Read { offset },
            input.mode,
            (buffer, len),
            index as u64,
        )?;
        Ok(true)
    }

    /// Starts a request on the first `len` bytes of a buffer.
    fn request(
        &mut self,
        end: &End,
        op: SegmentOp,
        mode: Mode,
        (mut buffer, len): (Buffer, u64),
        tag: u64,
    ) -> Result<(), Failure> {
        buffer.set_len(len as usize);
        let request = SegmentRequest {
            mode,
            tag,
            ..SegmentRequest::new(end.handle, op, buffer)
        };
        self.in_flight += 1;
        self.cores.start(end.core, request)
    }

    /// Moves on whatever waited for this.
    fn ended(&mut self, outcome: Outcome) -> Result<(), Failure> {
        let index = outcome.tag as usize;
        if outcome.tag == STREAM {
            return self.stream_read(outcome);
        }
        match self.slots.get(index).map(|slot| slot.state) {
            Some(State::Reading) => self.piece_read(index, outcome),
            Some(State::KeepingHead) => self.head_kept(index, outcome),
            Some(State::KeepingTail) => self.tail_kept(index, outcome),
            Some(State::Writing) => self.piece_written(index, outcome),
            Some(State::Free | State::Ready) | None => Ok(()),
        }
    }

    fn stream_read(&mut self, outcome: Outcome) -> Result<(), Failure> {
        self.reading -= 1;
        let Source::InOrder(stream) = &mut self.source else {
            return Ok(());
        };
        let (cores, bytes) = (&self.cores, self.buffer_bytes);
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

    fn piece_read(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
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

    fn end_plan(&mut self) {
        match &mut self.source {
            Source::Anywhere(plan) => plan.end(),
            Source::InOrder(stream) => stream.end(),
        }
    }

    /// The output is full, and there is more to be written.
    fn out_of_room(&mut self) {
        let room = self.output.room();
        let end = self.output.offset(room);
        let failure = Failure::new(
            "dd",
            "ENOSPC",
            "no space left: it ends here, and its size never changes by a copy",
        )
        .on(self.output.typed.clone())
        .at(end)
        .needing("an output with room for all of the input")
        .cured_by("copy less (count=, seek=), or make a larger segment");
        self.progress.fail(room, Side::Output, failure);
        self.end_plan();
    }

    /// Moves a piece, which begins at `head`, to where the output wants it in the buffer.
    fn place(&mut self, index: usize, head: u64) -> Result<(), Failure> {
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

    fn head_kept(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        match self.kept(index, outcome, WriteFrame::keep_head) {
            true => self.keep_tail(index),
            false => Ok(()),
        }
    }

    fn tail_kept(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
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

    fn piece_written(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
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
