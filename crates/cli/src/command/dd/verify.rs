//! `verify=blake3`: what was written is hashed on its way, read again when the copy has ended, and compared.
//!
//! It is read past the kernel's cache where the output has direct I/O: what is compared lies on the device.

use baio::{Caching, Mode, SegmentOp, SegmentRequest};
use baio_console::failure::Failure;
use blake3::{Hash, Hasher};

use super::Job;
use super::ends::End;
use super::frame::ReadFrame;
use super::work::Halt;

/// One read of the output.
const READ_BYTES: u64 = 1 << 20;

/// A difference is told by the first run of so many bytes that has one.
const RUN_BYTES: u64 = 16 << 20;

/// The hashes of bytes that come in order: of all of them, and of each run.
#[derive(Debug, Default)]
pub(super) struct Sums {
    whole: Hasher,
    run: Hasher,
    run_bytes: u64,
    runs: Vec<Hash>,
}

impl Sums {
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        self.whole.update(bytes);
        while !bytes.is_empty() {
            let left = usize::try_from(RUN_BYTES - self.run_bytes).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(left));
            self.run.update(now);
            self.run_bytes += now.len() as u64;
            if self.run_bytes == RUN_BYTES {
                self.end_run();
            }
            bytes = later;
        }
    }

    fn end_run(&mut self) {
        self.runs.push(self.run.finalize());
        self.run.reset();
        self.run_bytes = 0;
    }

    /// Where the first run begins that the other has not.
    fn first_difference(&self, other: &Sums) -> Option<u64> {
        let mut runs = self.runs.iter().zip(&other.runs);
        let differs = runs.position(|(one, two)| one != two);
        let differs = differs.unwrap_or(self.runs.len().min(other.runs.len()));
        (self.whole.finalize() != other.whole.finalize()).then_some(differs as u64 * RUN_BYTES)
    }
}

impl Job<'_> {
    /// Reads what was written again; gives its hash.
    pub(super) fn verify(&mut self, written: &Sums, bytes: u64) -> Result<String, Halt> {
        let ends = self.ends;
        let (mode, align) = self.way_back(&ends.output)?;
        let mut found = Sums::default();
        let most = READ_BYTES.min(self.cores.piece_max());
        let mut position = 0;
        while position < bytes {
            let len = most.min(bytes - position);
            let frame = ReadFrame::at(ends.output.offset(position), len, align);
            let mut buffer = self.cores.buffer(frame.range.len as usize)?;
            buffer.set_len(frame.range.len as usize);
            let op = SegmentOp::Read {
                offset: frame.range.offset,
            };
            let request = SegmentRequest {
                mode,
                ..SegmentRequest::new(ends.output.handle, op, buffer)
            };
            let outcome = self.run_one(&ends.output, request)?;
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
            None => Ok(found.whole.finalize().to_hex().to_string()),
            Some(begin) => Err(differs(&ends.output, begin).into()),
        }
    }

    /// Through which cache the output is read again, and what its reads are multiples of.
    pub(super) fn way_back(&mut self, output: &End) -> Result<(Mode, u64), Halt> {
        if output.is_segment() {
            return Ok((output.mode, output.align));
        }
        let direct = self.cores.with(output.way, |core| {
            let file = core.file(output.handle)?;
            file.gives(Caching::Direct).then(|| file.direct_limits().offset)
        })?;
        Ok(match direct {
            Some(align) => (Mode::Direct, align.into()),
            None => (Mode::Kernel, 1),
        })
    }
}

fn differs(output: &End, begin: u64) -> Failure {
    Failure::new("dd", "EVERIFY", "what was read back is not what was written")
        .on(output.typed.clone())
        .at(output.offset(begin))
        .needing("a device that gives back what it was given, and nobody else who writes there")
        .cured_by("copy again; if it happens again, do not trust the device")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(parts: &[&[u8]]) -> Sums {
        let mut sums = Sums::default();
        parts.iter().for_each(|part| sums.add(part));
        sums
    }

    #[test]
    fn how_the_bytes_came_does_not_matter() {
        assert_eq!(sums(&[b"abc", b"", b"d"]).first_difference(&sums(&[b"abcd"])), None);
        assert_eq!(sums(&[b"abc"]).first_difference(&sums(&[b"abcd"])), Some(0));
    }

    #[test]
    fn the_run_that_differs_is_told() {
        let run = RUN_BYTES as usize;
        let one = vec![7; 2 * run + 10];
        let mut other = one.clone();
        other[run + 5] ^= 1;
        assert_eq!(sums(&[&one]).first_difference(&sums(&[&other])), Some(RUN_BYTES));
        other = one.clone();
        other[2 * run + 1] ^= 1;
        assert_eq!(sums(&[&one]).first_difference(&sums(&[&other])), Some(2 * RUN_BYTES));
    }
}
