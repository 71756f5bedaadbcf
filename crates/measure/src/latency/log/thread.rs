//! The dedicated thread. Appenders hand it their records and sleep. It writes all records that are there as one batch, makes the batch durable,
//! and wakes the appenders of that batch only.
//!
//! It is well made, or the comparison would be worth nothing. It is woken only when it sleeps. Each batch has a condition variable of its own,
//! so that appenders of a later batch sleep on. Memory is allocated once. The area was written before, so that no write has to
//! change the file's metadata.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::Area;
use super::appender::Appender;
use super::stream::{Batch, Batches, Stream, place_of};

/// More batches than there ever are, gathered and under way.
const CONDITIONS: usize = 64;

/// A log with a thread that writes it.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// The thread sleeps on it while there is nothing to write.
    work: Condvar,
    /// By the number of the batch that is waited for.
    written: [Condvar; CONDITIONS],
}

struct State {
    stream: Stream,
    /// All up to here.
    durable: u64,
    /// The batch that is being written.
    writing: u64,
    /// How many wait on each condition.
    waiting: [u32; CONDITIONS],
    sleeps: bool,
    closing: bool,
    failed: Option<String>,
}

/// How batches reach the file.
pub(super) struct Sink {
    file: File,
    direct: bool,
    block: u64,
    size: u64,
    next: u64,
}

impl Writer {
    pub(super) fn start(area: Area<'_>, direct: bool) -> Result<Writer, String> {
        let sink = Sink::open(area, direct)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                stream: Stream::new(area.record)?,
                durable: 0,
                writing: 0,
                waiting: [0; CONDITIONS],
                sleeps: false,
                closing: false,
                failed: None,
            }),
            work: Condvar::new(),
            written: std::array::from_fn(|_| Condvar::new()),
        });
        let theirs = Arc::clone(&shared);
        let thread = baio_process::thread::named("log-writer");
        let thread = thread
            .start(move || theirs.write_all(sink))
            .map_err(|error| error.to_string())?;
        Ok(Writer {
            shared,
            thread: Some(thread),
        })
    }

    /// Waits until the thread has written everything and has ended.
    pub(super) fn end(mut self) -> Result<Batches, String> {
        self.close();
        let state = self.shared.lock();
        match &state.failed {
            Some(said) => Err(said.clone()),
            None => Ok(state.stream.batches()),
        }
    }

    fn close(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// A thread that panicked has left nothing half-done behind this lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that the thread does.
    fn write_all(&self, mut sink: Sink) {
        let mut state = self.lock();
        loop {
            let Some(batch) = state.stream.take() else {
                if state.closing {
                    return;
                }
                state.sleeps = true;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleeps = false;
                continue;
            };
            state.writing = batch.number;
            drop(state);
            let mut batch = batch;
            let written = sink.write(&mut batch);
            state = self.lock();
            if let Err(error) = written {
                state.failed = Some(format!("write: {error}"));
                drop(state);
                self.written.iter().for_each(Condvar::notify_all);
                return;
            }
            state.durable = batch.end;
            let condition = batch.number as usize % CONDITIONS;
            state.stream.give_back(batch);
            if state.waiting[condition] > 0 {
                drop(state);
                self.written[condition].notify_all();
                state = self.lock();
            }
        }
    }
}

impl Sink {
    pub(super) fn open(area: Area<'_>, direct: bool) -> Result<Sink, String> {
        let flags = if direct { libc::O_DIRECT | libc::O_DSYNC } else { 0 };
        let file = OpenOptions::new().write(true).custom_flags(flags).open(area.path);
        Ok(Sink {
            file: file.map_err(|error| format!("open: {error}"))?,
            direct,
            block: area.block,
            size: area.size,
            next: 0,
        })
    }

    pub(super) fn write(&mut self, batch: &mut Batch) -> std::io::Result<()> {
        let bytes = if self.direct {
            batch.blocks(self.block)
        } else {
            batch.bytes()
        };
        let place = place_of(&mut self.next, bytes.len(), self.size);
        self.file.write_all_at(bytes, place)?;
        if self.direct { Ok(()) } else { self.file.sync_data() }
    }
}

impl Appender for Writer {
    fn append(&self, record: &[u8]) -> Result<Option<u64>, String> {
        let mut state = self.shared.lock();
        if let Some(said) = &state.failed {
            return Err(said.clone());
        }
        let end = state.stream.append(record);
        // Once for each time that it went to sleep.
        let wakes = std::mem::take(&mut state.sleeps);
        drop(state);
        if wakes {
            self.shared.work.notify_one();
        }
        Ok(end)
    }

    fn wait(&self, end: u64, until: Option<Instant>) -> Result<u64, String> {
        let mut state = self.shared.lock();
        loop {
            if let Some(said) = &state.failed {
                return Err(said.clone());
            }
            if state.durable >= end {
                return Ok(state.durable);
            }
            let batch = state.stream.batch_of(end).unwrap_or(state.writing);
            let condition = batch as usize % CONDITIONS;
            let on = &self.shared.written[condition];
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(state.durable);
            }
            state.waiting[condition] += 1;
            state = match left {
                None => on.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => on.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.waiting[condition] -= 1;
        }
    }
}
