//! What a copy came to, counted.

use super::Job;
use super::copy::{Copied, Source};
use super::figures::Figures;
use super::progress::{Side, Stop};
use super::records::{Count, Read};
use super::stream::Stream;
use super::summary::{Meter, Part, Summary};
use crate::operands::{DdOperands, OutputBlocks};

/// How a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    GoesOn,
    Ended,
    /// The output took no more.
    Refused,
}

/// The figures of a copy that goes on, and of which so many bytes are written.
pub(super) fn figures(source: &Source, operands: &DdOperands, bytes: u64) -> Figures {
    let (read, records_out) = match source {
        Source::Anywhere(_) => of_bytes(operands, bytes),
        Source::InOrder(stream) => of_stream(stream, operands, bytes, Stands::GoesOn),
    };
    Figures {
        records_in: read.records,
        records_out,
        bytes,
    }
}

fn of_bytes(operands: &DdOperands, bytes: u64) -> (Read, Count) {
    let records = Count::of(bytes, operands.block_size);
    (Read { records, bytes }, records)
}

fn of_stream(stream: &Stream, operands: &DdOperands, bytes: u64, stands: Stands) -> (Read, Count) {
    let records = stream.records();
    match operands.output_blocks {
        OutputBlocks::AsRead => {
            // The record that was refused was read.
            let end = bytes.saturating_add(u64::from(stands == Stands::Refused));
            (records.read_before(end), records.written_before(bytes))
        }
        OutputBlocks::Full => {
            let block = operands.output_block;
            let Count { full, partial } = Count::of(bytes, block);
            let written = match stands {
                Stands::GoesOn => Count { full, partial: 0 },
                Stands::Ended | Stands::Refused => Count { full, partial },
            };
            // What was read to fill the next block.
            (records.read_before((full + 1).saturating_mul(block)), written)
        }
    }
}

impl Job<'_> {
    /// The figures, what stopped the copy if it did not reach the end, and by how many bytes the input has moved on.
    pub(super) fn count(&self, copied: Copied) -> (Figures, Option<Stop>, u64) {
        let bytes = copied.progress.written();
        let stop = copied.progress.into_stop();
        let stands = match &stop {
            Some(Stop { side: Side::Output, .. }) => Stands::Refused,
            _ => Stands::Ended,
        };
        let (read, records_out) = match (&copied.source, stands) {
            (Source::Anywhere(_), Stands::Refused) => self.wrote_less(bytes, copied.input_end),
            (Source::Anywhere(_), _) => of_bytes(self.operands, bytes),
            (Source::InOrder(stream), stands) => of_stream(stream, self.operands, bytes, stands),
        };
        let moved = match (&copied.source, stands) {
            // Behind the last record something may have been passed over.
            (Source::InOrder(stream), Stands::Ended) if !copied.interrupted => stream.position(),
            _ => read.bytes,
        };
        let figures = Figures {
            records_in: read.records,
            records_out,
            bytes,
        };
        (figures, stop, moved)
    }

    fn wrote_less(&self, bytes: u64, input_end: u64) -> (Read, Count) {
        let block = self.operands.block_size;
        let full = Count::of(bytes, block).full;
        let end = input_end.min(self.bounds().count);
        let failed_is_full = end >= (full + 1).saturating_mul(block);
        let records = Count {
            full: full + u64::from(failed_is_full),
            partial: u64::from(!failed_is_full),
        };
        let read = Read {
            records,
            bytes: (full + 1).saturating_mul(block).min(end),
        };
        // GNU dd counts the part of a block that went before the failure where blocks are gathered, and not where they are as read.
        let written = match self.operands.output_blocks {
            OutputBlocks::AsRead => Count { full, partial: 0 },
            OutputBlocks::Full => Count::of(bytes, block),
        };
        (read, written)
    }

    /// What `--json` shows.
    pub(super) fn summary(
        &self,
        figures: Figures,
        meter: &Meter,
        (calls_before, in_flight_max): (u64, u64),
        parts: [Part; 2],
    ) -> Summary {
        let (backend, is_asynchronous) = self.routes.backend();
        let seconds = meter.elapsed().as_secs_f64();
        let bytes = figures.bytes;
        Summary {
            bytes,
            records_in_full: figures.records_in.full,
            records_in_partial: figures.records_in.partial,
            records_out_full: figures.records_out.full,
            records_out_partial: figures.records_out.partial,
            seconds,
            bytes_per_second: if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 },
            in_flight_max: if is_asynchronous {
                in_flight_max
            } else {
                in_flight_max.min(1)
            },
            depth: self.operands.depth,
            backend,
            input: self.ends.input.typed.clone(),
            output: self.ends.output.typed.clone(),
            system_calls: self.routes.system_calls() - calls_before,
            parts,
            blake3: None,
        }
    }
}
