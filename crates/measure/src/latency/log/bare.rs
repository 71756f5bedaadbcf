//! A peer that writes each record alone, in whole blocks, by one pwrite(2) at a time, `O_DIRECT` and `O_DSYNC`: nothing can be durable
//! sooner. What one record alone is compared with.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

use baio_engine::{Arena, Buffer};

use super::Area;
use super::appender::Appender;
use super::stream::{Batches, HEADER, place_of};

/// Buffers are given out in words of so many bytes.
const WORD: usize = 256 << 10;

/// A record at a time.
pub(super) struct Bare(RefCell<Inner>);

struct Inner {
    file: File,
    buffer: Buffer,
    has_record: bool,
    /// Where the last record ends.
    end: u64,
    durable: u64,
    next: u64,
    size: u64,
    written: Batches,
}

/// Bytes that one record takes on the device.
fn blocks(area: Area<'_>) -> usize {
    (HEADER + area.record).next_multiple_of(area.block as usize)
}

impl Bare {
    pub(super) fn new(area: Area<'_>) -> Result<Bare, String> {
        let flags = libc::O_DIRECT | libc::O_DSYNC;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(area.path);
        let arena = Arena::new(blocks(area).next_multiple_of(WORD)).map_err(|error| error.to_string())?;
        let mut buffer = arena.buffer(blocks(area)).ok_or("no memory for a record")?;
        buffer.fill(0);
        Ok(Bare(RefCell::new(Inner {
            file: file.map_err(|error| format!("open: {error}"))?,
            buffer,
            has_record: false,
            end: 0,
            durable: 0,
            next: 0,
            size: area.size,
            written: Batches::default(),
        })))
    }

    pub(super) fn end(self) -> Batches {
        self.0.into_inner().written
    }
}

impl Appender for Bare {
    fn append(&self, record: &[u8]) -> Result<Option<u64>, String> {
        let inner = &mut *self.0.borrow_mut();
        if inner.has_record {
            return Ok(None);
        }
        // All records are of one size, so behind them are zeros.
        let (header, payload) = inner.buffer.split_at_mut(HEADER);
        header.copy_from_slice(&(record.len() as u64).to_le_bytes());
        payload[..record.len()].copy_from_slice(record);
        inner.has_record = true;
        inner.end += inner.buffer.len() as u64;
        Ok(Some(inner.end))
    }

    /// A write that was begun is not broken off: it waits for its end however late that is.
    fn wait(&self, _: u64, _: Option<Instant>) -> Result<u64, String> {
        let inner = &mut *self.0.borrow_mut();
        if std::mem::take(&mut inner.has_record) {
            let len = inner.buffer.len();
            let place = place_of(&mut inner.next, len, inner.size);
            let written = inner.file.write_all_at(&inner.buffer, place);
            written.map_err(|error| format!("write: {error}"))?;
            inner.durable = inner.end;
            inner.written.count += 1;
            inner.written.records += 1;
            inner.written.records_max = Some(1);
            inner.written.bytes += len as u64;
        }
        Ok(inner.durable)
    }
}
