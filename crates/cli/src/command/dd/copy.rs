//! The copy itself: pieces are read and written at the same time, each in a slot of its own.
//!
//! ```text
//! feed:     free slots begin to read the pieces that the plan, or the stream, gives
//! outcomes: each moves its slot on: read, write (see `slots.rs`)
//! turn:     everything queued goes to the kernel in one call, which sleeps until something has ended
//! ```
//!
//! What a read that has ended means stands in `copy/reading.rs`; what a piece has to go through until it is written, in
//! `copy/writing.rs`.

mod reading;
mod writing;

use std::collections::BTreeMap;

use baio_console::failure::Failure;
use baio_engine::{Buffer, Durability};
use baio_storage::{Mode, Outcome, SegmentOp, SegmentRequest};

use super::cores::Cores;
use super::ends::{End, Ends};
use super::frame::{Range, ReadFrame};
use super::plan::{Piece, Plan};
use super::progress::Progress;
use super::signals::Signals;
use super::slots::{Slots, State};
use super::stream::Stream;
use super::summary::{Meter, Part};
use super::tally;
use super::verify::Sums;
use crate::operands::DdOperands;

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
    operands: &'a DdOperands,
    input: &'a End,
    output: &'a End,
    source: Source,
    slots: Slots,
    buffer_bytes: usize,
    /// Pieces that wait to be written in order, by position.
    ready: BTreeMap<u64, usize>,
    /// Where the next write of an output in order begins, or the next one that is hashed; `None` while one is under way.
    next_write: Option<u64>,
    reading: usize,
    in_flight: u64,
    in_flight_max: u64,
    parts: [Part; 2],
    /// `verify=`: of what is written, in order.
    sums: Option<Sums>,
    progress: Progress,
    interrupted: bool,
    /// Where the input ends, once that is known.
    input_end: u64,
    /// Something went through a cache, because it did not end on whole sectors.
    needs_sync: bool,
}

/// What a copy came to.
pub(super) struct Copied {
    pub(super) source: Source,
    pub(super) progress: Progress,
    pub(super) in_flight_max: u64,
    pub(super) parts: [Part; 2],
    pub(super) input_end: u64,
    pub(super) needs_sync: bool,
    /// SIGINT has ended it.
    pub(super) interrupted: bool,
    pub(super) sums: Option<Sums>,
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        cores: &'a mut Cores,
        ends: &'a Ends,
        operands: &'a DdOperands,
        source: Source,
        (depth, buffer_bytes): (usize, usize),
    ) -> Copy<'a> {
        Copy {
            cores,
            operands,
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
            parts: Part::NONE,
            sums: operands.verifies.then(Sums::default),
            progress: Progress::default(),
            interrupted: false,
            input_end: u64::MAX,
            needs_sync: false,
        }
    }

    /// Copies until the input, the count or the room ends, or something fails.
    ///
    /// # Errors
    /// Only what leaves no way to go on; all else is told by the outcome.
    pub(super) fn run(mut self, meter: &mut Meter, signals: &Signals) -> Result<Copied, Failure> {
        loop {
            self.heed(meter, signals);
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
            if !self.interrupted {
                self.cores.turn()?;
            } else if self.cores.are_stuck()? {
                break;
            }
        }
        Ok(Copied {
            source: self.source,
            progress: self.progress,
            in_flight_max: self.in_flight_max,
            parts: self.parts,
            input_end: self.input_end,
            needs_sync: self.needs_sync,
            interrupted: self.interrupted,
            sums: self.sums,
        })
    }

    /// Does what signals have asked for meanwhile.
    fn heed(&mut self, meter: &mut Meter, signals: &Signals) {
        while signals.take_asked() {
            let figures = tally::figures(&mut self.source, self.operands, self.progress.written());
            meter.finish();
            figures.print(self.operands.status, meter.elapsed().as_secs_f64());
        }
        if signals.interrupted() && !self.interrupted {
            self.interrupted = true;
            self.end_plan();
        }
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
        let durability = match op {
            SegmentOp::Write { .. } => end.durability(self.operands),
            _ => Durability::None,
        };
        let request = SegmentRequest {
            mode,
            durability,
            tag,
            ..SegmentRequest::new(end.handle, op, buffer)
        };
        self.in_flight += 1;
        self.cores.start(end.way, request)
    }

    fn add_to(&mut self, part: usize, outcome: &Outcome) {
        if let Some(part) = self.parts.get_mut(part) {
            part.requests += 1;
            part.bytes += u64::from(outcome.bytes_done);
        }
    }

    /// Moves on whatever waited for this.
    fn ended(&mut self, outcome: Outcome) -> Result<(), Failure> {
        let index = outcome.tag as usize;
        if outcome.tag == STREAM {
            self.add_to(Part::READ, &outcome);
            return self.stream_read(outcome);
        }
        let state = self.slots.get(index).map(|slot| slot.state);
        match state {
            Some(State::Reading) => self.add_to(Part::READ, &outcome),
            Some(State::Writing) => self.add_to(Part::WRITE, &outcome),
            Some(State::Free | State::Ready) | None => {}
        }
        match state {
            Some(State::Reading) => self.piece_read(index, outcome),
            Some(State::Writing) => self.piece_written(index, outcome),
            Some(State::Free | State::Ready) | None => Ok(()),
        }
    }
}
