//! `skip=` and `seek=`: only numbers where bytes can be reached at any offset; work on streams.

use baio_console::diagnostics;

use super::Job;
use super::ends::EndKind;
use super::plain::{Flow, no_positions};
use super::progress::Halt;
use crate::operands::{Amount, ShortReads, Status};

impl Job<'_> {
    /// `seek=` on a stream moves its position, where it has one. Everywhere else it is only a number.
    pub(super) fn pass_over_output(&mut self) -> Result<(), Halt> {
        let (operands, output) = (self.operands, &self.ends.output);
        let seek = operands.seek_bytes();
        output.must_reach("seek")?;
        if output.flow == Flow::Anywhere || seek == 0 || output.move_position(seek) {
            return Ok(());
        }
        Err(no_positions(&output.typed, seek).into())
    }

    /// `skip=` on a stream moves its position, or else reads what is to be passed over.
    pub(super) fn pass_over_input(&mut self) -> Result<(), Halt> {
        let (operands, input) = (self.operands, &self.ends.input);
        let skip = operands.skip_bytes();
        input.must_reach("skip")?;
        let complete = match input.flow {
            // In a directory any offset can be sought; it is the reads that fail.
            _ if input.unreadable.is_some() => true,
            // Standard input may stand behind its end, or have a size that says nothing: only what was asked for can fail.
            Flow::Anywhere => skip == 0 || input.kind() == EndKind::Device || input.origin <= input.size,
            Flow::InOrder => skip == 0 || input.move_position(skip) || self.read_over()?,
        };
        if !complete && operands.status != Status::Silent {
            diagnostics::say(format_args!(
                "baio: dd {}: cannot skip to specified offset",
                input.typed
            ));
        }
        Ok(())
    }

    /// Reads and drops; says whether that were as many bytes as were meant. As in GNU dd, a short read counts as a block,
    /// unless `iflag=fullblock`.
    fn read_over(&mut self) -> Result<bool, Halt> {
        let block = self.operands.block_size;
        let (mut full, last) = match self.operands.skip {
            Amount::Blocks(blocks) => (blocks, 0),
            Amount::Bytes(bytes) => (bytes / block, bytes % block),
        };
        let mut complete = true;
        while full > 0 {
            match self.drop_record(block)? {
                0 => return Ok(false),
                dropped => complete &= dropped == block,
            }
            full -= 1;
        }
        Ok(complete && (last == 0 || self.drop_record(last)? == last))
    }

    /// Drops a record, and says how many bytes it had.
    fn drop_record(&mut self, len: u64) -> Result<u64, Halt> {
        let ends = self.ends;
        let input = &ends.input;
        let mut dropped = 0;
        while dropped < len {
            let outcome = self.read_one(input, input.mode, (dropped, (len - dropped).min(self.piece)))?;
            let read = outcome.result.map_err(|error| input.failed(&error))?;
            dropped += u64::from(read);
            if read == 0 || self.short_reads() == ShortReads::Count && u64::from(read) < self.piece {
                break;
            }
        }
        Ok(dropped)
    }
}
