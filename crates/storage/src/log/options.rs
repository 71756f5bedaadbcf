//! How a log is made and opened.

use std::time::Duration;

use super::error::LogError;
use super::format::{AHEAD_MAX, BATCH_MAX, DATA_AT, FIRST_LSN, Head, Header, Salt, WINDOW_MAX};

/// Longest batch of a log that is large enough.
const BATCH_WISHED: u32 = 1 << 20;

/// Longest batch of the smallest log, unless another is asked for.
const BATCH_LEAST: u32 = 16 << 10;

/// Options for making and opening a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Block size that the device asks for: 512 or 4096. 0 for the log's own, and 4096 for a new one.
    pub block_bytes: u32,
    /// Batches in flight at once.
    pub window: u32,
    /// A batch that is not full is written only while fewer than so many are in flight; otherwise it waits for one of them to end. 0, and
    /// all above `window`: as many as the window. Where a durable write flushes the device's cache ([`File::flushes`]), 0 means 1: flushes
    /// wait for one another, so two short batches would cost two flushes instead of one.
    ///
    /// [`File::flushes`]: baio_engine::File::flushes
    pub window_short: u32,
    /// How long the first record of a batch may wait for others. Zero: no batch waits, and records gather while the device is busy.
    pub gather: Duration,
    /// How many bytes of records may be appended and not durable yet.
    pub buffer_bytes: usize,
    /// Longest batch of a new log: a multiple of the block, at least three blocks (or two, in a larger area). 0 for 1 MiB, and less
    /// where the log is small. A log needs memory for `window` batches and two more. With less memory it writes shorter batches, down to
    /// 64 KiB.
    pub batch_bytes_max: u32,
    /// Bytes of durable batches that are kept in memory while somebody reads the end of the log. Make it several of the longest batches: a
    /// reader that falls further behind reads from the device, which slows down writers.
    pub recent_bytes: usize,
    /// Size of the plain file in which a log is made: a shorter file is made as long, and its space is reserved. A log
    /// that is there already keeps its size. 0: the file has the right size already, as a segment always has.
    pub file_bytes: u64,
    /// Skip batches that were durable and are damaged now, instead of refusing the log.
    pub salvage: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            block_bytes: 0,
            window: 2,
            window_short: 0,
            gather: Duration::ZERO,
            buffer_bytes: 32 << 20,
            batch_bytes_max: 0,
            recent_bytes: 4 << 20,
            file_bytes: 0,
            salvage: false,
        }
    }
}

impl LogOptions {
    pub(super) fn check(&self) -> Result<(), LogError> {
        if !matches!(self.block_bytes, 0 | 512 | 4096) {
            return Err(LogError::BadOptions("a log's blocks have 512 or 4096 bytes"));
        }
        if !(1..=WINDOW_MAX).contains(&self.window) {
            return Err(LogError::BadOptions("the window of a log is 1 to 1024 batches"));
        }
        let batch = self.batch_bytes_max;
        if batch > BATCH_MAX || batch % self.block() != 0 {
            return Err(LogError::BadOptions(
                "the longest batch of a log is a multiple of its block, up to 16 MiB",
            ));
        }
        if self.buffer_bytes as u64 > AHEAD_MAX / 2 {
            return Err(LogError::BadOptions("the buffer of a log has at most 8 TiB"));
        }
        Ok(())
    }

    pub(super) fn block(&self) -> u32 {
        if self.block_bytes == 0 { 4096 } else { self.block_bytes }
    }

    /// The longest batch of a log in an area of so many bytes. Longer ones than [`BATCH_WISHED`] gain nothing, shorter ones cost more
    /// flushes of the device.
    fn batch(&self, size_bytes: u64) -> u32 {
        if self.batch_bytes_max != 0 {
            return self.batch_bytes_max;
        }
        let room = size_bytes.saturating_sub(DATA_AT) / (4 * u64::from(self.window));
        let mut batch = BATCH_WISHED;
        while u64::from(batch) > room && batch > BATCH_LEAST {
            batch /= 2;
        }
        batch
    }

    /// The same for a new log in an area of so many bytes, whose batches are no longer than that where nothing else is asked for: for who
    /// has little memory to write and to read them.
    #[must_use]
    pub fn with_batches_up_to(mut self, most: u32, size_bytes: u64) -> LogOptions {
        if self.batch_bytes_max == 0 && self.window > 0 {
            let most = most / BATCH_LEAST * BATCH_LEAST;
            self.batch_bytes_max = self.batch(size_bytes).min(most.max(BATCH_LEAST));
        }
        self
    }

    /// How far LSNs may lie beyond what is durable: the buffer, and at least all batches in flight and one more.
    pub(super) fn ahead(&self, block: u32, batch_max: u32) -> u64 {
        let window = u64::from(self.window + 1) * u64::from(batch_max);
        // With less, batches of two blocks would take no record.
        let least = window.max(16 * u64::from(block));
        (self.buffer_bytes as u64).max(least).next_multiple_of(4096)
    }

    /// The first header of a new log in an area of so many bytes.
    pub(super) fn header(&self, size_bytes: u64, uuid: [u8; 16], salt: Salt) -> Result<Header, LogError> {
        self.check()?;
        let block = u64::from(self.block());
        let batch = self.batch(size_bytes);
        let need = DATA_AT + (4 * u64::from(self.window) * u64::from(batch)).next_multiple_of(block);
        if size_bytes < need || size_bytes > u64::MAX / 8 {
            return Err(LogError::BadSize { size_bytes, need });
        }
        let first = FIRST_LSN;
        Ok(Header {
            block_bytes: self.block(),
            uuid,
            salt,
            sequence: 1,
            epoch: 1,
            head: Head {
                lsn: first,
                batch: first,
                place: 0,
            },
            epoch_first: first,
            watermark: first,
            capacity: (size_bytes - DATA_AT) / block * block,
            ahead: self.ahead(self.block(), batch),
            holes_below: 0,
            batch_bytes_max: batch,
            window: self.window,
            is_clean: false,
        })
    }
}
