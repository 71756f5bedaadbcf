//! The copy itself: pieces are read and written, each in a slot of its own. Where nobody can observe the order of pieces there are `iodepth=`
//! slots, elsewhere one.
//!
//! ```text
//! feed:     free slots begin to read the pieces that the plan gives, or to write those of the stream
//! outcomes: each moves its slot on: read, write (see `slots.rs`)
//! turn:     everything queued goes to the kernel in one call, which sleeps until something has ended
//! ```
//!
//! `copy/reading.rs` has what follows from a read that has ended, `copy/writing.rs` the steps of a piece until it is written, and
//! `copy/hearing.rs` signals and waits meanwhile.

mod hearing;
mod reading;
mod writing;

use std::collections::BTreeMap;

use baio::{Buffer, Durability, Mode, Outcome, SegmentOp, SegmentRequest};
use baio_console::failure::Failure;

use super::ends::{End, EndKind, Ends};
use super::plan::Plan;
use super::progress::Progress;
use super::routes::Routes;
use super::signals::Signals;
use super::slots::{Slots, State};
use super::stream::Stream;
use super::summary::{Meter, Part};
use super::sums::Sums;
use crate::operands::DdOperands;

/// The tag of the one read of a stream; all other tags are indices of slots.
const STREAM: u64 = u64::MAX;

/// Where the pieces come from.
pub(super) enum Source {
    /// An input that can be read at any offset.
    Anywhere(Plan),
    /// An input that is taken in order.
    InOrder(Box<Stream>),
}

/// A copy under way.
pub(super) struct Copy<'a> {
    routes: &'a mut Routes,
    operands: &'a DdOperands,
    input: &'a End,
    output: &'a End,
    meter: &'a mut Meter,
    signals: &'a Signals,
    source: Source,
    slots: Slots,
    /// Of each buffer that a piece is read into.
    read_bytes: usize,
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
        routes: &'a mut Routes,
        ends: &'a Ends,
        operands: &'a DdOperands,
        source: Source,
        (slots, read_bytes): (usize, usize),
        (meter, signals): (&'a mut Meter, &'a Signals),
    ) -> Copy<'a> {
        Copy {
            routes,
            operands,
            input: &ends.input,
            output: &ends.output,
            meter,
            signals,
            source,
            slots: Slots::new(slots),
            read_bytes,
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
    pub(super) fn run(mut self) -> Result<Copied, Failure> {
        loop {
            self.heed();
            let mut moved = self.feed()?;
            while let Some(outcome) = self.routes.next_outcome() {
                moved = true;
                self.in_flight -= 1;
                self.ended(outcome)?;
            }
            self.meter.tick(self.progress.written());
            if moved {
                continue;
            }
            if self.in_flight == 0 {
                break;
            }
            self.in_flight_max = self.in_flight_max.max(self.in_flight);
            if !self.interrupted {
                self.routes.turn()?;
                continue;
            }
            let waits_for_stream = self.waits_for_stream();
            if self.routes.are_stuck(waits_for_stream)? {
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

    /// May what is under way wait for ever? Writes to a device end, and count: a read beside them is no reason to leave them.
    fn waits_for_stream(&self) -> bool {
        let writes = self.in_flight.saturating_sub(self.reading as u64);
        match writes {
            // A file that has no size may give nothing for ever too: `/proc/kmsg`.
            0 => self.input.kind() == EndKind::Stream || self.input.size == 0,
            _ => self.output.kind() == EndKind::Stream,
        }
    }

    /// Gives every free slot a piece, as long as there are pieces. Says whether something has come of that which no outcome tells.
    fn feed(&mut self) -> Result<bool, Failure> {
        let mut moved = false;
        while self.slots.any_free() {
            let fed = match &mut self.source {
                Source::Anywhere(plan) => match plan.next_piece(self.reading) {
                    Some(piece) => self.read(piece)?,
                    None => Fed::Nothing,
                },
                Source::InOrder(_) => self.feed_from_stream()?,
            };
            match fed {
                Fed::Slot => {}
                Fed::Moved => moved = true,
                Fed::Heard => return Ok(true),
                Fed::Nothing => break,
            }
        }
        Ok(moved)
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
            ..SegmentRequest::new(end.handle(), op, buffer)
        };
        self.in_flight += 1;
        self.routes.start(end.route, request)
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

/// What came of a look for something to do.
enum Fed {
    /// A request, or a piece that waits for its turn.
    Slot,
    /// Something without a request.
    Moved,
    /// The same, and signals are to be heeded before the next.
    Heard,
    /// There is nothing, or not now.
    Nothing,
}
