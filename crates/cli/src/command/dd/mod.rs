//! `baio dd`: an asynchronous copy (seed 002) between files, devices, segments (here, or behind a broker) and pipes.
//!
//! | file | what it is |
//! |---|---|
//! | `plain.rs` | files, devices and streams, opened as GNU dd opens them |
//! | `ends.rs` | the two ends: what is typed becomes something that requests can be made on |
//! | `cores.rs` | one core for each volume, turned together |
//! | `links.rs` | one link to each broker, and what is under way on it |
//! | `skip.rs` | `skip=` and `seek=` on streams |
//! | `plan.rs` | how an input is cut into pieces |
//! | `stream.rs` | an input that comes in order only |
//! | `frame.rs` | where a piece lies on both ends and in its buffer |
//! | `slots.rs` | the buffers, and where each one stands |
//! | `copy.rs`, `copy/` | the copy: reads and writes overlapped |
//! | `progress.rs` | how far it has come, and what stopped it |
//! | `records.rs`, `tally.rs`, `human.rs`, `summary.rs` | the counts, and how GNU dd prints them |
//!
//! This file tells the story: open, pass over `skip=` and `seek=`, copy, sync, count, close.

mod copy;
mod cores;
mod ends;
mod frame;
mod human;
mod links;
mod plain;
mod plan;
mod progress;
mod records;
mod skip;
mod slots;
mod stream;
mod summary;
mod tally;

use baio_console::failure::Failure;
use baio_console::memory_limit::Room;
use baio_engine::{Config, Durability, Memory};
use baio_storage::{Outcome, SegmentOp, SegmentRequest};

use crate::operands::{Amount, DdOperands, FinalSync, ShortReads, Truncate};
use copy::{Copy, Source};
use cores::Cores;
use ends::{BLOCK, End, EndKind, Ends};
use frame::round_up;
use plain::Flow;
use plan::{Bounds, Cuts, Plan};
use progress::Stop;
use stream::Stream;
use summary::{Meter, Summary};

/// Beyond the buffers: what opening a volume needs, and the blocks that partial pieces keep.
const ARENA_SPARE: usize = 16 << 20;

/// Requests of the volume itself, beside those of the copy.
const SLOTS_SPARE: u32 = 128;

/// Memory of the arena is handed out in words of this many bytes, which no large buffer shares.
const ARENA_WORD: u64 = 256 << 10;

/// Copies.
pub(crate) fn run(operands: DdOperands) -> Result<Summary, Failure> {
    let buffer_bytes = buffer_bytes(&operands)?;
    let (mut cores, ends) = Ends::open(&operands, config(&operands, buffer_bytes))?;
    let copied = Job::new(&mut cores, &ends, &operands).run();
    drop(ends);
    let closed = cores.close();
    copied.and_then(|summary| closed.map(|()| summary))
}

/// A copy that is open on both ends.
struct Job<'a> {
    cores: &'a mut Cores,
    ends: &'a Ends,
    operands: &'a DdOperands,
    /// Pieces are cut at multiples of this.
    unit: u64,
    buffer_bytes: usize,
    /// The copy reads what it writes: one record goes after the other, as in GNU dd.
    overlaps: bool,
}

impl<'a> Job<'a> {
    fn new(cores: &'a mut Cores, ends: &'a Ends, operands: &'a DdOperands) -> Job<'a> {
        let unit = BLOCK.max(ends.input.align).max(ends.output.align);
        Job {
            cores,
            ends,
            operands,
            unit,
            buffer_bytes: (round_up(operands.block_size, unit) + 2 * unit) as usize,
            overlaps: ends.overlap(count_bytes(operands)),
        }
    }

    fn run(&mut self) -> Result<Summary, Failure> {
        let (operands, ends) = (self.operands, self.ends);
        ends.output.truncate(self.cores, operands.truncate)?;
        let mut meter = Meter::start(operands.status);
        let calls_before = self.cores.system_calls();
        self.pass_over_output()?;
        self.pass_over_input()?;
        let source = self.source();
        let depth = if self.overlaps { 1 } else { operands.depth };
        let copy = Copy::new(self.cores, ends, source, depth as usize, self.buffer_bytes);
        let copied = copy.run(&mut meter)?;
        let synced = self.sync(copied.cached_tail);
        meter.finish();
        let (summary, stop) = self.count(copied, &meter, calls_before);
        ends.input.leave_position(summary.bytes);
        ends.output.leave_position(summary.bytes);
        summary.print(operands.status);
        match stop {
            Some(stop) => {
                self.cut_behind(&stop, summary.bytes);
                Err(stop.failure)
            }
            None => synced.map(|()| summary),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            count: count_bytes(self.operands),
            room: self.ends.output.room(),
        }
    }

    fn short_reads(&self) -> ShortReads {
        if self.ends.input.never_short {
            ShortReads::Refill
        } else {
            self.operands.short_reads
        }
    }

    fn source(&self) -> Source {
        let (operands, input, output) = (self.operands, &self.ends.input, &self.ends.output);
        let bounds = self.bounds();
        let block = operands.block_size;
        let whole_blocks = output.keeps_blocks() || output.align > 1;
        let cuts = Cuts {
            piece: if self.overlaps {
                block
            } else {
                round_up(block, self.unit)
            },
            unit: if self.overlaps { 1 } else { self.unit },
            seek: output.origin,
        };
        if input.flow == Flow::Anywhere {
            let hint = match input.kind() {
                EndKind::Stream => 0,
                _ => input.size.saturating_sub(input.origin),
            };
            return Source::Anywhere(Plan::new(cuts, bounds, hint, block));
        }
        // Where any byte will do, records are written as they come.
        let cuts = if whole_blocks { cuts } else { Cuts { unit: 1, ..cuts } };
        let short_reads = self.short_reads();
        Source::InOrder(Stream::new(block, short_reads, operands.count, cuts, bounds))
    }

    /// Makes durable what `conv=` asks for. The unaligned end of a direct file is synced unasked, as GNU dd does.
    fn sync(&mut self, cached_tail: bool) -> Result<(), Failure> {
        let durability = match self.operands.sync {
            Some(FinalSync::Full) => Durability::Full,
            None if !cached_tail => return Ok(()),
            Some(FinalSync::Data) | None => Durability::Data,
        };
        let output = &self.ends.output;
        let request = SegmentRequest {
            durability,
            mode: output.mode,
            ..SegmentRequest::new(output.handle, SegmentOp::Sync, Memory::None)
        };
        let outcome = run_one(self.cores, output, request)?;
        outcome.result.map(drop).map_err(|error| output.failed(&error))
    }

    /// Pieces behind the one that failed may have been written: a file that was cut ends where the copy does.
    fn cut_behind(&mut self, stop: &Stop, bytes: u64) {
        let output = &self.ends.output;
        let cuts = output.kind() == EndKind::File && self.operands.truncate == Truncate::AtSeek;
        if cuts && stop.position == bytes {
            // The failure to be told is the one that stopped the copy.
            let _ = output.cut(self.cores, output.offset(bytes));
        }
    }
}

fn count_bytes(operands: &DdOperands) -> u64 {
    let bytes = |count: Amount| count.bytes(operands.block_size);
    operands.count.map_or(u64::MAX, bytes)
}

/// Runs one request while no other is under way.
fn run_one(cores: &mut Cores, end: &End, request: SegmentRequest) -> Result<Outcome, Failure> {
    cores.start(end.way, request)?;
    loop {
        if let Some(outcome) = cores.next_outcome() {
            return Ok(outcome);
        }
        cores.turn()?;
    }
}

/// Bytes of one buffer: a piece, and a block before and behind it where both ends cut it differently.
fn buffer_bytes(operands: &DdOperands) -> Result<u64, Failure> {
    let depth = u64::from(operands.depth);
    let total = operands.block_size.saturating_mul(depth);
    let room = Room::here();
    if total > room.bytes {
        let said = format!(
            "bs={} times iodepth={depth} is {total} bytes of memory",
            operands.block_size
        );
        return Err(Failure::usage("dd", said)
            .on("bs= and iodepth=")
            .needing(room.need())
            .cured_by("choose a smaller bs= or iodepth="));
    }
    Ok(round_up(operands.block_size, BLOCK) + 2 * BLOCK)
}

fn config(operands: &DdOperands, buffer_bytes: u64) -> Config {
    // One buffer more gathers what a stream gives, and one more is read into meanwhile.
    let count = u64::from(operands.depth) + 2;
    let each = buffer_bytes.max(BLOCK);
    let words = if each > ARENA_WORD / 2 {
        count * each.div_ceil(ARENA_WORD)
    } else {
        count.div_ceil(ARENA_WORD / each)
    };
    Config {
        slots: operands.depth + SLOTS_SPARE,
        arena_bytes: (words * ARENA_WORD) as usize + ARENA_SPARE,
        ..Config::default()
    }
}
