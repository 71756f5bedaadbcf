//! `verify=blake3`: what was written is hashed on its way, read again when the copy has ended, and compared.
//!
//! It is read past the kernel's cache where the output has direct I/O: what is compared lies on the device.

use baio::Mode;
use baio_console::failure::Failure;

use super::Job;
use super::ends::End;
use super::frame::ReadFrame;
use super::progress::Halt;
use super::sums::Sums;

/// One read of the output.
const READ_BYTES: u64 = 1 << 20;

impl Job<'_> {
    /// Reads what was written again; gives its hash.
    pub(super) fn verify(&mut self, written: &Sums, bytes: u64) -> Result<String, Halt> {
        let ends = self.ends;
        let (mode, align) = ends.output.way_back();
        let mut found = Sums::default();
        let most = READ_BYTES.min(self.routes.piece_max());
        let mut position = 0;
        while position < bytes {
            let len = most.min(bytes - position);
            let frame = ReadFrame::at(ends.output.offset(position), len, align);
            let outcome = self.read_one(&ends.output, mode, (frame.range.offset, frame.range.len))?;
            let read = outcome.result.map_err(|error| ends.output.failed(&error))?;
            let end = u64::from(read).min(frame.head + len);
            if let Some(buffer) = outcome.memory.into_buffer() {
                found.add(buffer.get(frame.head as usize..end as usize).unwrap_or_default());
            }
            if end < frame.head + len {
                break;
            }
            position += len;
        }
        match written.first_difference(&found) {
            None => Ok(found.hash()),
            Some(begin) => Err(differs(&ends.output, begin).into()),
        }
    }
}

impl End {
    /// Through which cache an output is read again, and what its reads are multiples of.
    pub(super) fn way_back(&self) -> (Mode, u64) {
        match (self.is_segment(), self.direct) {
            (true, _) => (self.mode, self.align),
            (false, Some(align)) => (Mode::Direct, align),
            (false, None) => (Mode::Kernel, 1),
        }
    }
}

fn differs(output: &End, begin: u64) -> Failure {
    Failure::new("dd", "EVERIFY", "what was read back is not what was written")
        .on(output.typed.clone())
        .at(output.offset(begin))
        .needing("a device that gives back what was written to it, and no other writer")
        .cured_by("copy again; if it happens again, do not trust the device")
}
