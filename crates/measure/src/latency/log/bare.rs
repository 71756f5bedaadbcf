//! Peers that write each record alone, in whole blocks, by one direct data-durable write at a time: nothing can be durable sooner. What
//! one record alone is compared with.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::Instant;

use baio_engine::{Arena, Buffer, Caching, Choice, Config, Descriptions, Durability, Engine, Open, Policy, Request};

use super::Area;
use super::appender::Appender;
use super::stream::{Batches, HEADER, place_of};

/// Buffers are given out in words of so many bytes.
const WORD: usize = 256 << 10;

/// A way to write.
pub(super) trait WriteOne {
    /// A buffer of so many bytes.
    fn buffer(&self, len: usize) -> Option<Buffer>;

    /// Writes all of it, and comes back when it is durable.
    fn write(&mut self, buffer: Buffer, place: u64) -> Result<Buffer, String>;
}

/// By a call that blocks: pwrite(2), `O_DIRECT` and `O_DSYNC`.
pub(super) struct Blocking {
    file: File,
    arena: Arc<Arena>,
}

/// By our engine.
pub(super) struct ByEngine {
    engine: Engine,
    file: baio_engine::File,
}

/// A record at a time.
pub(super) struct Bare<W>(RefCell<Inner<W>>);

struct Inner<W> {
    by: W,
    /// Never without, but while it is being written or when that has failed.
    buffer: Option<Buffer>,
    has_record: bool,
    /// Where the last record ends.
    end: u64,
    durable: u64,
    next: u64,
    size: u64,
    written: Batches,
}

impl Blocking {
    pub(super) fn new(area: Area<'_>) -> Result<Blocking, String> {
        let flags = libc::O_DIRECT | libc::O_DSYNC;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(area.path);
        Ok(Blocking {
            file: file.map_err(|error| format!("open: {error}"))?,
            arena: Arena::new(blocks(area).next_multiple_of(WORD)).map_err(|error| error.to_string())?,
        })
    }
}

impl WriteOne for Blocking {
    fn buffer(&self, len: usize) -> Option<Buffer> {
        self.arena.buffer(len)
    }

    fn write(&mut self, buffer: Buffer, place: u64) -> Result<Buffer, String> {
        let written = self.file.write_all_at(&buffer, place);
        written.map(|()| buffer).map_err(|error| format!("write: {error}"))
    }
}

impl ByEngine {
    pub(super) fn new(area: Area<'_>, backend: Choice) -> Result<ByEngine, String> {
        let mut engine = Engine::new(&Config {
            backend,
            slots: 8,
            reserved_slots: 0,
            arena_bytes: blocks(area) + WORD,
            ..Config::default()
        })
        .map_err(|error| error.to_string())?;
        let open = Open {
            descriptions: Descriptions::Only(Caching::Direct),
            ..Open::write()
        };
        let file = baio_engine::File::open(area.path, &open).map_err(|error| error.to_string())?;
        engine.attach(&file);
        Ok(ByEngine { engine, file })
    }
}

impl WriteOne for ByEngine {
    fn buffer(&self, len: usize) -> Option<Buffer> {
        self.engine.buffer(len)
    }

    fn write(&mut self, buffer: Buffer, place: u64) -> Result<Buffer, String> {
        let len = buffer.len();
        let durably = Policy::direct().durable(Durability::Data);
        let ended = self.engine.run(Request::write(&self.file, place, buffer, durably));
        match ended.result {
            Ok(written) if written as usize == len => ended.memory.into_buffer().ok_or("its buffer is gone".to_owned()),
            Ok(written) => Err(format!("a write of {len} bytes ended after {written}")),
            Err(error) => Err(format!("write: {error}")),
        }
    }
}

/// Bytes that one record takes on the device.
fn blocks(area: Area<'_>) -> usize {
    (HEADER + area.record).next_multiple_of(area.block as usize)
}

impl<W: WriteOne> Bare<W> {
    pub(super) fn new(by: W, area: Area<'_>) -> Result<Bare<W>, String> {
        let mut buffer = by.buffer(blocks(area)).ok_or("no memory for a record")?;
        buffer.fill(0);
        Ok(Bare(RefCell::new(Inner {
            by,
            buffer: Some(buffer),
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

impl<W: WriteOne> Appender for Bare<W> {
    fn append(&self, record: &[u8]) -> Result<Option<u64>, String> {
        let inner = &mut *self.0.borrow_mut();
        let Some(buffer) = inner.buffer.as_mut().filter(|_| !inner.has_record) else {
            return Ok(None);
        };
        // All records are of one size, so behind them are zeros.
        let (header, payload) = buffer.split_at_mut(HEADER);
        header.copy_from_slice(&(record.len() as u64).to_le_bytes());
        payload[..record.len()].copy_from_slice(record);
        inner.has_record = true;
        inner.end += buffer.len() as u64;
        Ok(Some(inner.end))
    }

    /// A write that was begun is not broken off: it waits for its end however late that is.
    fn wait(&self, _: u64, _: Option<Instant>) -> Result<u64, String> {
        let inner = &mut *self.0.borrow_mut();
        if std::mem::take(&mut inner.has_record) {
            let buffer = inner.buffer.take().ok_or("an earlier write failed")?;
            let len = buffer.len();
            let place = place_of(&mut inner.next, len, inner.size);
            inner.buffer = Some(inner.by.write(buffer, place)?);
            inner.durable = inner.end;
            inner.written.count += 1;
            inner.written.records += 1;
            inner.written.records_max = Some(1);
            inner.written.bytes += len as u64;
        }
        Ok(inner.durable)
    }
}
