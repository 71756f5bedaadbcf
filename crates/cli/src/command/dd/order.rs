//! What of the order of reads and writes can be seen from outside, and how a copy goes by that.
//!
//! | | |
//! |---|---|
//! | bytes that go as they are, reached at any offset on the input | pieces are read and written at once |
//! | what is changed on its way: conversions, two block sizes, `sync`, `sparse`; what comes from a stream; direct reads of records that no piece can be | read in order, written at once |
//! | where somebody sees the order | one request at a time |

use baio::Mode;

use super::blocks::Layout;
use super::copy::Source;
use super::ends::EndKind;
use super::plain::Flow;
use super::plan::{Bounds, Cuts, Plan};
use super::stream::{Reads, Stream};
use super::{Job, count_bytes};
use crate::operands::{OutputBlocks, ShortReads};

/// A read takes so much of many small records, and as much is gathered of small blocks.
pub(super) const RUN_BYTES: u64 = 256 << 10;

/// Pieces of a stream of small records that are written at once.
const GATHERED_MAX: usize = 8;

/// How a copy goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// Records are read one after the other.
    is_stream: bool,
    /// Nothing is begun before all is done that was begun before it.
    one_by_one: bool,
    /// The copy reads what it writes.
    overlaps: bool,
    /// One of its ends is a stream.
    flows: bool,
}

impl Order {
    /// Is each block written as soon as it is whole, on an output whose pieces are cut anywhere or only between its own blocks?
    fn is_at_once(self, cuts_anywhere: bool) -> bool {
        self.overlaps || self.flows && (self.one_by_one || cuts_anywhere)
    }
}

impl Job<'_> {
    pub(super) fn order(&self) -> Order {
        let (operands, input, output) = (self.operands, &self.ends.input, &self.ends.output);
        let overlaps = self.ends.overlap(count_bytes(operands));
        // What a pipe gives is written as it comes, on whole sectors or not.
        let gathers = operands.output_blocks == OutputBlocks::Full || output.align > 1;
        let flows = input.flow == Flow::InOrder || output.flow == Flow::InOrder;
        // With such a backend signals are heard only where the copy itself waits for a stream.
        let blocks = !self.routes.backend().1;
        let never_waits = operands.input_flags.nonblock || operands.output_flags.nonblock;
        Order {
            is_stream: operands.take_in_order()
                || overlaps
                || input.unreadable.is_some()
                || input.flow == Flow::InOrder
                || self.fails_by_pieces(),
            one_by_one: overlaps
                // What failed is told with the figures as they are then.
                || operands.noerror
                || operands.output_flags.append
                || input.unreadable.is_some()
                || input.flow == Flow::InOrder && !input.never_short && gathers
                || flows && (never_waits || blocks),
            overlaps,
            flows,
        }
    }

    /// A direct read that fails brings nothing, also of what is sound before the bad spot. Where pieces are no records, it would cost records:
    /// a stream reads them one by one then.
    fn fails_by_pieces(&self) -> bool {
        let (input, output) = (&self.ends.input, &self.ends.output);
        // A segment has no smaller sectors than pieces.
        let is_direct = input.direct.is_some() && input.mode == Mode::Direct;
        let starts = [self.operands.block_size, output.origin];
        is_direct && !starts.iter().all(|start| start.is_multiple_of(self.unit))
    }

    /// How many pieces are under way at once, and the bytes of a buffer that one is read into. A stream's are as long as its reads.
    pub(super) fn memory(&self, order: Order) -> (usize, usize) {
        let depth = self.operands.depth as usize;
        let slots = match order {
            Order { one_by_one: true, .. } => 1,
            Order {
                is_stream: true,
                flows: false,
                ..
            } => depth.min(GATHERED_MAX),
            // Each gathers RUN_BYTES, however small its records are: there is memory for `iodepth=` records.
            Order { is_stream: true, .. } if !order.is_at_once(self.cuts_anywhere()) => {
                let fit = (depth as u64).saturating_mul(self.piece) / RUN_BYTES;
                depth.min(GATHERED_MAX.max(fit as usize))
            }
            _ => depth,
        };
        (slots, (self.piece + 2 * self.unit) as usize)
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            count: count_bytes(self.operands),
            room: self.ends.output.room(),
        }
    }

    pub(super) fn short_reads(&self) -> ShortReads {
        if self.ends.input.never_short {
            ShortReads::Refill
        } else {
            self.operands.short_reads
        }
    }

    pub(super) fn source(&self, order: Order) -> Source {
        let (operands, input, output) = (self.operands, &self.ends.input, &self.ends.output);
        let cuts = Cuts {
            piece: self.piece,
            unit: self.unit,
            seek: output.origin,
        };
        if !order.is_stream {
            let hint = match input.kind() {
                EndKind::Stream => 0,
                _ => input.size.saturating_sub(input.origin),
            };
            return Source::Anywhere(Plan::new(cuts, self.bounds(), hint, operands.block_size));
        }
        let conversion = operands.conversion;
        Source::InOrder(Box::new(Stream::new(
            self.reads(order),
            conversion,
            self.layout(order, cuts),
        )))
    }

    fn reads(&self, order: Order) -> Reads {
        let (operands, input) = (self.operands, &self.ends.input);
        let block = operands.block_size;
        let has_positions = input.flow == Flow::Anywhere;
        Reads {
            block,
            part: self.piece.min(block),
            run: match has_positions && !order.overlaps {
                true => RUN_BYTES.min(self.routes.piece_max()),
                false => 0,
            },
            short: self.short_reads(),
            count: operands.count,
            pads: operands.pads,
            has_positions,
        }
    }

    /// Will any byte do as the end of a piece?
    fn cuts_anywhere(&self) -> bool {
        let output = &self.ends.output;
        !output.is_segment() && output.align <= 1
    }

    fn layout(&self, order: Order, cuts: Cuts) -> Layout {
        let (operands, output) = (self.operands, &self.ends.output);
        let anywhere = self.cuts_anywhere();
        // Where any byte will do, pieces end where blocks do.
        let unit = if anywhere { 1 } else { cuts.unit };
        let at_once = order.is_at_once(anywhere);
        Layout {
            block: match operands.output_blocks {
                OutputBlocks::AsRead => None,
                OutputBlocks::Full => Some(operands.output_block),
            },
            sparse: operands.sparse && output.flow == Flow::Anywhere,
            at_once,
            cuts: Cuts {
                piece: match at_once {
                    true => cuts.piece,
                    false => cuts.piece.max(RUN_BYTES).min(self.routes.piece_max()),
                },
                unit,
                ..cuts
            },
            room: output.room(),
        }
    }
}
