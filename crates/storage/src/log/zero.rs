//! Zeroes: every byte of the data is written once, so that later writes change no metadata below.
//!
//! Several writes are under way at once, and all are of one buffer.

use std::ops::Range;

use baio_engine::{Errno, Frozen, Memory};

use super::format::DATA_AT;
use super::front::Life;
use super::steps::{AfterZero, Next, Step, Zeroing};
use super::{IoOwner, LogError, LogIoKind, LogPart};

/// Bytes of a write: the first for which there is memory.
const WRITE_BYTES: [usize; 4] = [1 << 20, 256 << 10, 64 << 10, 4096];

impl Zeroing {
    pub(super) fn new(data: Range<u64>, then: AfterZero) -> Zeroing {
        Zeroing {
            left: vec![data],
            zeroes: None,
            under_way: 0,
            failed: None,
            then,
        }
    }

    /// The next write: where, and of how many bytes.
    fn take(&mut self, max: usize) -> Option<(u64, u32)> {
        self.left.retain(|range| !range.is_empty());
        let range = self.left.last_mut()?;
        let at = range.start;
        range.start = range.end.min(at + max as u64);
        Some((at, (range.start - at) as u32))
    }

    /// A write of these bytes has ended.
    fn ended(&mut self, at: u64, len: u32, block: u32, result: Result<u32, Errno>) {
        self.under_way -= 1;
        // Whole blocks, and not for ever.
        match result.map(|written| written.min(len) / block * block) {
            Ok(0) => self.failed = self.failed.or(Some((Errno::EIO, at))),
            Ok(written) => self.left.push(at + u64::from(written)..at + u64::from(len)),
            // Another was refused, and this one may still land: that counts.
            Err(errno) if is_of_who_wrote(errno) => self.failed = Some((errno, at)),
            Err(errno) => self.failed = self.failed.or(Some((errno, at))),
        }
    }
}

impl LogPart {
    pub(super) fn zero(&mut self, mut zeroing: Zeroing) -> Next {
        // As many as there is room for at the device anyway.
        let at_once = self.options.window.clamp(4, 8);
        while zeroing.failed.is_none() && zeroing.under_way < at_once {
            if zeroing.zeroes.is_none() {
                zeroing.zeroes = self.zeroes(&zeroing.left);
            }
            let Some(zeroes) = zeroing.zeroes.clone() else {
                return Next::End(Err(LogError::NoMemory));
            };
            let Some((at, len)) = zeroing.take(zeroes.len()) else {
                break;
            };
            zeroing.under_way += 1;
            let id = self.new_io(IoOwner::Zeroes { at, len });
            let offset = DATA_AT + at;
            let memory = Memory::Shared(zeroes.first(len as usize));
            self.outgoing.push_back((id, LogIoKind::Write { offset, len }, memory));
        }
        if zeroing.under_way > 0 {
            return Next::Stay(Step::Zero(zeroing));
        }
        if let Some((errno, at)) = zeroing.failed {
            return Next::End(Err(match zeroing.then {
                AfterZero::Create => self.header_failed(errno),
                AfterZero::Grow(_) => self.growth_failed(errno, DATA_AT + at),
            }));
        }
        match zeroing.then {
            AfterZero::Create => self.created(),
            AfterZero::Grow(growth) => self.drain_for(growth),
        }
    }

    /// No header tells of a growth's space yet: a log goes on where the device refuses it, if it has not ended meanwhile.
    fn growth_failed(&mut self, errno: Errno, offset: u64) -> LogError {
        // Of one cache the kernel may tell this write that a batch's has failed.
        if self.is_cached || is_of_who_wrote(errno) {
            return self.header_failed(errno);
        }
        match &self.shared.lock().life {
            Life::Failed(error) => error.clone(),
            _ => LogError::Write { errno, offset },
        }
    }

    fn zeroes(&self, left: &[Range<u64>]) -> Option<Frozen> {
        let whole: u64 = left.iter().map(|range| range.end - range.start).sum();
        let bytes = WRITE_BYTES.map(|bytes| whole.min(bytes as u64) as usize);
        // Who may not take much of the arena may need copies of these too.
        let most = (self.shared.lock().memory_max / 4).max(4096);
        let mut bytes = bytes.into_iter().filter(|bytes| *bytes <= most);
        let mut buffer = bytes.find_map(|bytes| self.arena.buffer(bytes))?;
        buffer.fill(0);
        Some(buffer.freeze())
    }

    /// One of the writes has ended; the job goes on with the next.
    pub(super) fn zeroes_ended(&mut self, at: u64, len: u32, result: Result<u32, Errno>) {
        let block = self.header.map_or(4096, |header| header.block_bytes);
        let step = self.running.as_mut().and_then(|running| running.step.as_mut());
        if let Some(Step::Zero(zeroing)) = step {
            zeroing.ended(at, len, block, result);
        }
    }
}

/// No device has refused it: whoever wrote has ended, or waits no more. The zeroes may land later, over batches if the log went on there.
fn is_of_who_wrote(errno: Errno) -> bool {
    matches!(errno, Errno::EPIPE | Errno::ECANCELED | Errno::ETIMEDOUT)
}
