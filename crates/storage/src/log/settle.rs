//! Where a log goes through a cache of the kernel, what no watermark tells of is written once more before anything follows it.
//!
//! The write-back of a page may fail. The kernel says so once, to whoever wrote it, and keeps the page, which is clean then: the next process
//! reads a batch that no device has, and a sync, which finds nothing to write, succeeds. If the log went on behind such a batch, a power cut
//! would leave a hole in front of what was acknowledged. So the batches behind the last watermark are read, judged again and written where
//! they lie. It is the same bytes, so a write that tears does no harm.
//!
//! What lies before the watermark had been written durably when the watermark was. And nobody drops the cache instead
//! (`POSIX_FADV_DONTNEED`): that is advice, and the kernel does not say which pages it has kept, as they were in use.
//!
//! A cache behind `O_DIRECT`, which some file systems have, is not known of: see the limit in `docs/inside/log-format.md`.

use baio_engine::Errno;

use super::chain::{Chain, Step as ChainStep};
use super::error::LogError;
use super::format::DATA_AT;
use super::seen::Seen;
use super::steps::{Ended, Next, Scan, Settling, Step};
use super::{LogIoKind, LogPart};

impl Scan {
    /// Where the batches begin, and at which LSN, of which no watermark says that they were durable. `None`: there are none.
    pub(super) fn doubtful(&self) -> Option<(u64, u64)> {
        let (header, chain) = (&self.header, &self.chain);
        if header.epoch != chain.epoch {
            // Nothing was appended since an opening, which has settled what there was.
            return None;
        }
        let behind_hole = self.holes.last().map_or(0, |hole| hole.to.0);
        let from = self
            .watermark
            .max(header.epoch_first)
            .max(header.head.batch)
            .max(behind_hole);
        // Within an epoch, batches lie as far apart as their LSNs.
        let bytes = chain.end.checked_sub(from)?;
        let is_possible = bytes > 0 && bytes <= self.passed && bytes % u64::from(header.block_bytes) == 0;
        let place = (chain.place + header.capacity).checked_sub(bytes)? % header.capacity.max(1);
        is_possible.then_some((from, place))
    }
}

impl LogPart {
    /// What was found is durable, or is made so: all that lies behind this place and LSN is written again first.
    pub(super) fn settle_from(&mut self, mut scan: Box<Scan>, doubtful: Option<(u64, u64)>) -> Next {
        match doubtful.filter(|_| self.is_cached) {
            Some((lsn, place)) => {
                let chain = scan.chain.within(lsn, place, None);
                let written = None;
                self.settle_more(Box::new(Settling { scan, chain, written }))
            }
            None => {
                scan.let_go();
                // Also behind a clean close: its flag may have come here with a copy, which is in the device's cache alone.
                Next::Io(Step::Sync(scan), LogIoKind::Sync, None)
            }
        }
    }

    /// The next part is read, if there is one.
    fn settle_more(&mut self, mut settling: Box<Settling>) -> Next {
        let Settling { scan, chain, .. } = &mut *settling;
        let left = scan.chain.end.saturating_sub(chain.end);
        if left == 0 {
            return self.settle_from(settling.scan, None);
        }
        let place = chain.place;
        let len = left.min(u64::from(scan.chunk)).min(scan.header.capacity - place) as u32;
        let seen = scan.seen.take().and_then(Seen::into_buffer);
        let buffer = scan.buffer.take().or(seen);
        let Some(mut buffer) = buffer.or_else(|| self.arena.buffer(scan.chunk as usize)) else {
            return Next::End(Err(LogError::NoMemory));
        };
        buffer.set_len(len as usize);
        let offset = DATA_AT + place;
        Next::Io(Step::Settle(settling), LogIoKind::Read { offset, len }, Some(buffer))
    }

    pub(super) fn settle(&mut self, mut settling: Box<Settling>, ended: Option<Ended>) -> Next {
        let Some(Ended { result, buffer }) = ended else {
            return self.settle_more(settling);
        };
        if let Some(len) = settling.written.take() {
            settling.scan.buffer = buffer;
            return match result {
                Ok(written) if written == len => self.settle_more(settling),
                result => Next::End(Err(self.header_failed(result.err().unwrap_or(Errno::EIO)))),
            };
        }
        let offset = DATA_AT + settling.chain.place;
        let end = settling.scan.chain.end;
        let batches = match &buffer {
            Some(buffer) if result == Ok(buffer.len() as u32) => batches_in(buffer, &mut settling.chain, end),
            _ => 0,
        };
        match buffer {
            Some(mut buffer) if batches > 0 => {
                buffer.set_len(batches as usize);
                settling.written = Some(batches);
                let kind = LogIoKind::Write { offset, len: batches };
                Next::Io(Step::Settle(settling), kind, Some(buffer))
            }
            // The batch that was there has gone from the cache meanwhile, perhaps, and the device has never had it: the next opening sees that.
            _ => {
                let errno = result.err().unwrap_or(Errno::EIO);
                Next::End(Err(LogError::Read { errno, offset }))
            }
        }
    }
}

/// Follows the batches that lie whole in these bytes, up to the log's end: how many bytes they have.
fn batches_in(bytes: &[u8], chain: &mut Chain, end: u64) -> u32 {
    let mut len = 0_u32;
    while chain.end < end {
        let Some(rest) = bytes.get(len as usize..).filter(|rest| !rest.is_empty()) else {
            break;
        };
        match chain.step(rest, |_| {}) {
            ChainStep::Batch { padded, .. } => len += padded,
            ChainStep::Longer | ChainStep::Gap => break,
        }
    }
    len.min(bytes.len() as u32)
}
