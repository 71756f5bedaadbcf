//! `baio dd`: an asynchronous copy (seed 002) between files, devices, segments (here, or behind a broker) and pipes.
//!
//! | file | what it is |
//! |---|---|
//! | `plain.rs` | files, devices and streams, opened as GNU dd opens them |
//! | `ends.rs` | the two ends: what is typed becomes something that requests can be made on |
//! | `routes.rs` | a link to each volume, here or behind a broker, and what is under way on it |
//! | `inode.rs` | what tells whether two paths lead to one file |
//! | `signals.rs` | SIGUSR1 and SIGINT |
//! | `skip.rs` | `skip=` and `seek=` on streams |
//! | `copy.rs`, `copy/` | the copy: reads and writes, as many at once as nobody can see |
//! | `order.rs` | what of their order can be seen |
//! | `plan.rs` | how an input is cut into pieces |
//! | `stream.rs` | an input that is taken in order |
//! | `convert.rs`, `blocks.rs` | what becomes of its bytes: conversions, blocks of the output, pieces |
//! | `frame.rs` | where a piece lies on its input and in its buffer |
//! | `slots.rs` | the buffers, and where each one stands |
//! | `progress.rs` | how far it has come, and what stopped it |
//! | `work.rs` | one request before or behind the copy, and the signals that come meanwhile |
//! | `records.rs`, `tally.rs`, `figures.rs`, `human.rs` | the counts, and how GNU dd prints them |
//! | `trial.rs` | what was asked of the ends is tried first |
//! | `verify.rs`, `sums.rs` | `verify=`: what was written is read again, and hashed |
//! | `summary.rs` | what `--json` shows |
//!
//! This file tells the story: open, try, cut, pass over `skip=` and `seek=`, copy, sync, count, close.

mod blocks;
mod convert;
mod copy;
mod ends;
mod figures;
mod frame;
mod human;
mod inode;
mod order;
mod plain;
mod plan;
mod progress;
mod records;
mod routes;
mod signals;
mod skip;
mod slots;
mod stream;
mod summary;
mod sums;
mod tally;
mod trial;
mod verify;
mod work;

use baio::{Durability, EngineOptions, Memory, SegmentOp, SegmentRequest};
use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_console::memory_limit::Room;

use crate::operands::{Amount, DdOperands, Status, Truncate};
use copy::{Copy, Source};
use ends::{EndKind, Ends};
use figures::Figures;
use frame::{BLOCK, round_up};
use progress::{Halt, Side, Stop};
use routes::{CACHE_BYTES, Routes};
use signals::Signals;
use summary::{Meter, Part, Summary};
use sums::Sums;

/// Beyond the buffers: what opening a volume needs, its page cache, and what a copy in order reads ahead.
const ARENA_SPARE: usize = (16 << 20) + CACHE_BYTES;

/// Requests of the volume itself, beside those of the copy.
const SLOTS_SPARE: u32 = 128;

/// Memory of the arena is handed out in words of this many bytes, which no large buffer shares.
const ARENA_WORD: u64 = 256 << 10;

/// Copies.
pub(crate) fn run(mut operands: DdOperands) -> Result<Summary, Failure> {
    let memory = Buffers::of(&operands)?;
    operands.depth = memory.depth;
    let signals = Signals::default();
    let hearing = signals.hear()?;
    let (mut routes, ends) = Ends::open(&operands, config(&operands, memory.piece), &signals)?;
    // Not before: an open that waits (of a named pipe) ends by the signal itself.
    hearing.add_interrupts()?;
    let copied = Job::new(&mut routes, &ends, &operands, memory.piece, &signals).run();
    drop(ends);
    let copied = match copied {
        Err(Halt::Interrupted) => {
            if routes.are_idle() {
                // There is no better moment, and nobody to tell.
                let _ = routes.close();
            }
            return Err(ended_by_signal(&signals));
        }
        Err(Halt::Failed(failure)) => Err(failure),
        Ok(summary) => Ok(summary),
    };
    let closed = routes.close();
    let copied = copied.and_then(|summary| closed.map(|()| summary));
    // What is still to be told may wait for a reader, and nothing else is left: from here on SIGINT ends the program by itself.
    drop(hearing);
    if signals.interrupted() {
        // It came behind the last request. All is done, and yet a shell's loop is to end: it looks whether the signal has ended dd.
        if let Err(failure) = &copied {
            failure.tell();
        }
        return Err(ended_by_signal(&signals));
    }
    let copied = copied?;
    match diagnostics::were_lost() {
        false => Ok(copied),
        // As GNU dd: the copy is done, and what was asked for beside it is not.
        true => Err(Failure::new("dd", "EIO", "part of the output could not be written").on("standard error")),
    }
}

/// Ends the program; what is left to say where that cannot be.
fn ended_by_signal(signals: &Signals) -> Failure {
    signals.end();
    Failure::new("dd", "EINTR", "it was interrupted")
}

/// What the copy came to.
struct Done {
    figures: Figures,
    stop: Option<Halt>,
    /// Bytes that the input and the output have moved on.
    moved: [u64; 2],
    needs_sync: bool,
    in_flight_max: u64,
    parts: [Part; 2],
    /// `verify=`: the hashes of what was written.
    sums: Option<Sums>,
}

/// A copy that is open on both ends.
struct Job<'a> {
    routes: &'a mut Routes,
    ends: &'a Ends,
    operands: &'a DdOperands,
    signals: &'a Signals,
    meter: Meter,
    /// Of the copy, once it has ended.
    figures: Figures,
    /// Pieces are cut at multiples of this.
    unit: u64,
    /// Bytes of a piece: a record, or as much of one as there is memory for.
    piece: u64,
}

impl<'a> Job<'a> {
    fn new(
        routes: &'a mut Routes,
        ends: &'a Ends,
        operands: &'a DdOperands,
        piece: u64,
        signals: &'a Signals,
    ) -> Job<'a> {
        let unit = BLOCK.max(ends.input.align).max(ends.output.align);
        let piece = round_up(piece, unit).min(routes.piece_max());
        Job {
            routes,
            ends,
            operands,
            signals,
            meter: Meter::start(operands.status),
            figures: Figures::default(),
            unit,
            piece,
        }
    }

    fn run(&mut self) -> Result<Summary, Halt> {
        let (operands, ends) = (self.operands, self.ends);
        let loses = operands.output_flags.append && operands.truncate == Truncate::AtSeek;
        if loses {
            let said = "you probably want conv=notrunc with oflag=append";
            diagnostics::say(format_args!("baio: dd {}: {said}", ends.output.typed));
        }
        if let Err(halt) = self.try_ends() {
            ends.output.unmake();
            return Err(halt);
        }
        ends.output.truncate(operands.truncate)?;
        self.meter = Meter::start(operands.status);
        let calls_before = self.routes.system_calls();
        let done = match self.pass_over() {
            Ok(()) => self.copy()?,
            Err(halt) => Done::nothing(halt),
        };
        self.figures = done.figures;
        let synced = match &done.stop {
            Some(Halt::Interrupted) => Ok(()),
            _ => self.sync(done.needs_sync),
        };
        ends.input.leave_position(done.moved[0]);
        ends.output.leave_position(done.moved[1]);
        ends.input.drop_cached(done.moved[0]);
        ends.output.drop_cached(done.moved[1]);
        self.print();
        match done.stop {
            Some(halt) => return Err(halt),
            None => synced?,
        }
        let moved = (calls_before, done.in_flight_max);
        let mut summary = self.summary(done.figures, &self.meter, moved, done.parts);
        if let Some(sums) = done.sums {
            let hash = self.verify(&sums, done.figures.bytes)?;
            if operands.status != Status::Silent {
                diagnostics::say(format_args!("blake3 {hash}, read back and the same"));
            }
            summary.blake3 = Some(hash);
        }
        Ok(summary)
    }

    fn print(&mut self) {
        self.meter.finish();
        self.figures
            .print(self.operands.status, self.meter.elapsed().as_secs_f64());
    }

    fn pass_over(&mut self) -> Result<(), Halt> {
        self.pass_over_input()?;
        self.pass_over_output()
    }

    fn copy(&mut self) -> Result<Done, Halt> {
        let (operands, ends) = (self.operands, self.ends);
        let order = self.order();
        let source = self.source(order);
        let copy = Copy::new(
            self.routes,
            ends,
            operands,
            source,
            self.memory(order),
            (&mut self.meter, self.signals),
        );
        let mut copied = copy.run()?;
        let sums = copied.sums.take();
        let (in_flight_max, parts, interrupted) = (copied.in_flight_max, copied.parts, copied.interrupted);
        let (mut needs_sync, furthest) = (copied.needs_sync, copied.progress.furthest());
        let ends_in_hole = matches!(&copied.source, Source::InOrder(stream) if stream.blocks().end_in_hole());
        let (figures, stop, moved) = self.count(copied);
        self.cut_behind(furthest, figures.bytes);
        let reached_its_end = !interrupted && stop.as_ref().is_none_or(|stop| stop.side == Side::Input);
        if ends_in_hole && reached_its_end {
            needs_sync |= self.extend(figures.bytes)?;
        }
        Ok(Done {
            figures,
            stop: match (interrupted, stop) {
                (true, _) => Some(Halt::Interrupted),
                (false, stop) => stop.map(|Stop { failure, .. }| Halt::Failed(failure)),
            },
            moved: [moved, figures.bytes],
            needs_sync,
            in_flight_max,
            parts,
            sums,
        })
    }

    /// Gives a file the size that it has by what was passed over at its end. Says whether that has to be synced.
    fn extend(&mut self, bytes: u64) -> Result<bool, Failure> {
        let output = &self.ends.output;
        if !matches!(output.kind(), EndKind::File | EndKind::StandardFile) {
            return Ok(false);
        }
        let size = output.offset(bytes);
        if output.size_now()? >= size {
            return Ok(false);
        }
        output.cut(size)?;
        // A size is no write that could have been durable by itself.
        Ok(output.durability(self.operands) != Durability::None)
    }

    /// Makes durable what `conv=` asks for. What went through a cache because it did not end on whole sectors is synced unasked, as
    /// GNU dd does: whoever asked for direct writes is not to be told of a failure by nobody.
    fn sync(&mut self, needs_sync: bool) -> Result<(), Halt> {
        let durability = match self.operands.sync {
            Durability::None if !needs_sync => return Ok(()),
            Durability::None | Durability::Data => Durability::Data,
            Durability::Full => Durability::Full,
        };
        let output = &self.ends.output;
        let request = SegmentRequest {
            durability,
            mode: output.mode,
            ..SegmentRequest::new(output.handle(), SegmentOp::Sync, Memory::None)
        };
        let outcome = self.run_one(output, request)?;
        outcome.result.map(drop).map_err(|error| output.failed(&error).into())
    }

    /// Pieces behind the one with which the copy ended may have been written: a file that they have made longer ends where the copy
    /// does, or where it ended before.
    fn cut_behind(&mut self, furthest: u64, bytes: u64) {
        let output = &self.ends.output;
        if furthest <= bytes || !matches!(output.kind(), EndKind::File | EndKind::StandardFile) {
            return;
        }
        let was_cut = output.kind() == EndKind::File && self.operands.truncate == Truncate::AtSeek;
        let before = if was_cut { 0 } else { output.size };
        let end = output.offset(bytes).max(before);
        // Not what somebody else has put behind it meanwhile.
        let is_ours = |now| end < now && now <= output.offset(furthest);
        if output.size_now().is_ok_and(is_ours) {
            // The failure to be told is the one that stopped the copy.
            let _ = output.cut(end);
        }
    }
}

impl Done {
    fn nothing(halt: Halt) -> Done {
        Done {
            figures: Figures::default(),
            stop: Some(halt),
            moved: [0, 0],
            needs_sync: false,
            in_flight_max: 0,
            parts: Part::NONE,
            sums: None,
        }
    }
}

fn count_bytes(operands: &DdOperands) -> u64 {
    let bytes = |count: Amount| count.bytes(operands.block_size);
    operands.count.map_or(u64::MAX, bytes)
}

/// What memory there is for.
struct Buffers {
    /// Bytes of a piece.
    piece: u64,
    /// How many of them are under way at once.
    depth: u32,
}

impl Buffers {
    /// So many pieces of a record each as are asked for; where memory is short fewer, and smaller ones where nobody can see it.
    fn of(operands: &DdOperands) -> Result<Buffers, Failure> {
        /// A copy in order has a record, a block, what is gathered and the request's own. One with fewer pieces under way would be none.
        const FEWEST: u64 = 4;
        let room = Room::here();
        let block = operands.block_size.max(operands.output_block);
        let most = round_up(room.bytes / FEWEST, BLOCK);
        if operands.take_in_order() && block > most {
            let said = format!(
                "a record of {block} bytes takes {} of memory",
                block.saturating_mul(FEWEST)
            );
            return Err(Failure::usage("dd", said)
                .on("bs=, ibs= and obs=")
                .needing(room.need())
                .cured_by("choose smaller ones"));
        }
        let piece = block.min(most).max(1);
        Ok(Buffers {
            piece,
            depth: room.buffers(piece, operands.depth),
        })
    }
}

fn config(operands: &DdOperands, piece: u64) -> EngineOptions {
    let buffer_bytes = round_up(piece, BLOCK) + 2 * BLOCK;
    // Two more gather what is read in order, and one more is read into meanwhile.
    let count = u64::from(operands.depth) + 3;
    let each = buffer_bytes.max(BLOCK);
    let words = if each > ARENA_WORD / 2 {
        count * each.div_ceil(ARENA_WORD)
    } else {
        count.div_ceil(ARENA_WORD / each)
    };
    EngineOptions {
        backend: operands.backend,
        slots: operands.depth + SLOTS_SPARE,
        arena_bytes: (words * ARENA_WORD) as usize + ARENA_SPARE,
        ..EngineOptions::default()
    }
}
