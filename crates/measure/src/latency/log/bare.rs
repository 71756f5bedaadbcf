//! A peer that writes each record alone, in whole blocks, by one pwrite(2) at a time, `O_DIRECT` and `O_DSYNC`: nothing can be durable
//! sooner. What one record alone is compared with.

use std::cell::RefCell;
use std::time::Instant;

use super::Area;
use super::appender::Appender;
use super::stream::{Batches, Stream};
use super::thread::Sink;

/// A record at a time.
pub(super) struct Bare(RefCell<Inner>);

struct Inner {
    stream: Stream,
    sink: Sink,
    has_record: bool,
    durable: u64,
}

impl Bare {
    pub(super) fn new(area: Area<'_>) -> Result<Bare, String> {
        Ok(Bare(RefCell::new(Inner {
            stream: Stream::new(area.record)?,
            sink: Sink::open(area, true)?,
            has_record: false,
            durable: 0,
        })))
    }

    pub(super) fn end(self) -> Batches {
        self.0.into_inner().stream.batches()
    }
}

impl Appender for Bare {
    fn append(&self, record: &[u8]) -> Result<Option<u64>, String> {
        let inner = &mut *self.0.borrow_mut();
        if std::mem::replace(&mut inner.has_record, true) {
            return Ok(None);
        }
        Ok(inner.stream.append(record))
    }

    /// A write that was begun is not broken off: it waits for its end however late that is.
    fn wait(&self, _: u64, _: Option<Instant>) -> Result<u64, String> {
        let inner = &mut *self.0.borrow_mut();
        if let Some(mut batch) = inner.stream.take() {
            let written = inner.sink.write(&mut batch);
            written.map_err(|error| format!("write: {error}"))?;
            inner.durable = batch.end;
            inner.stream.give_back(batch);
            inner.has_record = false;
        }
        Ok(inner.durable)
    }
}
