//! What a copy came to, counted.

use super::Job;
use super::copy::{Copied, Source};
use super::figures::Figures;
use super::progress::{Side, Stop};
use super::records::Count;
use super::stream::Stream;
use super::summary::{Meter, Part, Summary};
use crate::operands::{DdOperands, OutputBlocks};

/// The figures of a copy of which so many bytes are written.
pub(super) fn figures(source: &mut Source, operands: &DdOperands, bytes: u64) -> Figures {
    let written = Count::of(bytes, operands.block_size);
    let (records_in, records_out) = match source {
        Source::Anywhere(_) => (written, written),
        Source::InOrder(stream) => of_stream(stream, operands, bytes, false),
    };
    Figures {
        records_in,
        records_out,
        bytes,
    }
}

fn of_stream(stream: &mut Stream, operands: &DdOperands, bytes: u64, wrote_less: bool) -> (Count, Count) {
    let block = operands.block_size;
    let records = stream.records();
    records.advance(bytes);
    let read = if wrote_less {
        records.passed_and_failed()
    } else {
        records.passed()
    };
    let written = match operands.output_blocks {
        OutputBlocks::AsRead => records.passed(),
        OutputBlocks::Full => Count::of(bytes, block),
    };
    (read, written)
}

impl Job<'_> {
    /// The figures, and what stopped the copy if it did not reach the end.
    pub(super) fn count(&self, mut copied: Copied) -> (Figures, Option<Stop>) {
        let bytes = copied.progress.written();
        let stop = copied.progress.into_stop();
        let mut figures = figures(&mut copied.source, self.operands, bytes);
        if stop.as_ref().is_some_and(|stop| stop.side == Side::Output) {
            (figures.records_in, figures.records_out) = match &mut copied.source {
                Source::Anywhere(_) => self.wrote_less(bytes, copied.input_end),
                Source::InOrder(stream) => of_stream(stream, self.operands, bytes, true),
            };
        }
        (figures, stop)
    }

    fn wrote_less(&self, bytes: u64, input_end: u64) -> (Count, Count) {
        let block = self.operands.block_size;
        let full = Count::of(bytes, block).full;
        let end = input_end.min(self.bounds().count);
        let failed_is_full = end >= (full + 1).saturating_mul(block);
        let read = Count {
            full: full + u64::from(failed_is_full),
            partial: u64::from(!failed_is_full),
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
        let (backend, is_asynchronous) = self.cores.backend();
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
            system_calls: self.cores.system_calls() - calls_before,
            parts,
            blake3: None,
        }
    }
}
