//! What a copy came to, counted.

use super::Job;
use super::copy::{Copied, Source};
use super::progress::{Side, Stop};
use super::records::Count;
use super::stream::Stream;
use super::summary::{Meter, Summary};
use crate::operands::OutputBlocks;

impl Job<'_> {
    /// The summary, and what stopped the copy if it did not reach the end.
    pub(super) fn count(&self, copied: Copied, meter: &Meter, calls_before: u64) -> (Summary, Option<Stop>) {
        let Copied {
            mut source,
            progress,
            in_flight_max,
            parts,
            input_end,
            ..
        } = copied;
        let bytes = progress.written();
        let stop = progress.into_stop();
        let wrote_less = stop.as_ref().is_some_and(|stop| stop.side == Side::Output);
        let (records_in, records_out) = match &mut source {
            Source::Anywhere(_) => self.records_of_bytes(bytes, wrote_less, input_end),
            Source::InOrder(stream) => self.records_of_stream(stream, bytes, wrote_less),
        };
        let (backend, is_asynchronous) = self.cores.backend();
        let seconds = meter.elapsed().as_secs_f64();
        let summary = Summary {
            bytes,
            records_in_full: records_in.full,
            records_in_partial: records_in.partial,
            records_out_full: records_out.full,
            records_out_partial: records_out.partial,
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
        };
        (summary, stop)
    }

    fn records_of_bytes(&self, bytes: u64, wrote_less: bool, input_end: u64) -> (Count, Count) {
        let block = self.operands.block_size;
        let written = Count::of(bytes, block);
        if !wrote_less {
            return (written, written);
        }
        let full = written.full;
        let end = input_end.min(self.bounds().count);
        let failed_is_full = end >= (full + 1).saturating_mul(block);
        let read = Count {
            full: full + u64::from(failed_is_full),
            partial: u64::from(!failed_is_full),
        };
        (read, Count { full, partial: 0 })
    }

    fn records_of_stream(&self, stream: &mut Stream, bytes: u64, wrote_less: bool) -> (Count, Count) {
        let block = self.operands.block_size;
        let records = stream.records();
        records.advance(bytes);
        let read = if wrote_less {
            records.passed_and_failed()
        } else {
            records.passed()
        };
        let written = match self.operands.output_blocks {
            OutputBlocks::AsRead => records.passed(),
            OutputBlocks::Full if wrote_less => Count {
                full: bytes / block,
                partial: 0,
            },
            OutputBlocks::Full => Count::of(bytes, block),
        };
        (read, written)
    }
}
