//! The records of a log, one after the other: whole batches are taken apart in the reader's thread. The latest lie in memory that is
//! shared with the core, and are taken without asking it; older ones are a command each time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use baio_storage::log::{Batches, LogAnswer, LogRequest, Lsn, RecordReader, WaitKey};
use baio_storage::{Error, Result};

use super::Log;
use super::waiting::WAIT;
use crate::operation::Operation;
use crate::transport::Transport;

/// A record that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct LogRecord {
    lsn: Lsn,
    payload: Vec<u8>,
    is_last: bool,
}

impl fmt::Debug for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogRecord({} bytes at LSN {})", self.payload.len(), self.lsn)
    }
}

impl LogRecord {
    /// Its LSN.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// What was appended.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The same, to keep.
    #[must_use]
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// Is it the last of its group? One that was appended alone is.
    #[must_use]
    pub fn is_last_of_group(&self) -> bool {
        self.is_last
    }
}

/// Reads a log from an LSN on: [`Log::records`] to its durable end, [`Log::follow`] beyond it.
pub struct Records<L: Transport> {
    log: Log<L>,
    reader: RecordReader,
    follows: bool,
    /// More batches are on their way.
    asked: Option<Operation<L, Option<Arc<Batches>>>>,
    /// Whoever follows has read what he knew to be durable: he waits for more before he asks.
    is_at_tail: bool,
    key: WaitKey,
}

impl<L: Transport> fmt::Debug for Records<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} from {})", self.log.name(), self.reader.next_batch())
    }
}

impl<L: Transport> Records<L> {
    pub(super) fn new(log: &Log<L>, from: Lsn, follows: bool) -> Records<L> {
        Records {
            log: log.clone(),
            reader: RecordReader::new(from),
            follows,
            asked: None,
            is_at_tail: false,
            key: WaitKey::default(),
        }
    }

    /// The next record; `None` at the durable end: ask again later. Dropping the future loses no record.
    pub fn next_record(&mut self) -> NextRecord<'_, L> {
        NextRecord { records: self }
    }

    /// One that has been read already.
    fn ready(&mut self) -> Option<LogRecord> {
        let record = self.reader.next_record()?;
        Some(LogRecord {
            lsn: record.lsn,
            payload: record.bytes.to_vec(),
            is_last: record.is_last,
        })
    }

    /// One that is in memory: nobody is asked, nothing waits.
    fn at_hand(&mut self) -> Option<LogRecord> {
        loop {
            if let Some(record) = self.ready() {
                return Some(record);
            }
            if self.asked.is_some() {
                return None;
            }
            let batches = self.log.shared.appender.recent(self.reader.next_batch())?;
            self.take_in(&batches);
        }
    }

    /// Until more is durable than was read.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let shared = &self.log.shared;
        let next = self.reader.next_batch();
        match shared.appender.poll_durable(next, &mut self.key, context.waker()) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(shared.failed(WAIT, error))),
            Poll::Pending => match self.log.nobody() {
                Some(fault) => Poll::Ready(Err(Error::new(WAIT, self.log.name(), fault))),
                None => Poll::Pending,
            },
        }
    }

    fn take_in(&mut self, batches: &Batches) {
        self.reader.push(batches);
        self.is_at_tail = self.follows;
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<LogRecord>>> {
        loop {
            if let Some(record) = self.at_hand() {
                return Poll::Ready(Ok(Some(record)));
            }
            if self.is_at_tail {
                match self.poll_more(context) {
                    Poll::Ready(Ok(())) => {
                        // It may be in memory by now; if not, it is to be asked for.
                        self.is_at_tail = false;
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let from = self.reader.next_batch();
            let ask = || {
                self.log.ask(LogRequest::Read { from }, |answer| match answer {
                    LogAnswer::Batches(batches) => Some(batches),
                    _ => None,
                })
            };
            let mut asked = self.asked.take().unwrap_or_else(ask);
            match Pin::new(&mut asked).poll(context) {
                Poll::Pending => {
                    self.asked = Some(asked);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(Some(batches))) => self.take_in(&batches),
                Poll::Ready(Ok(None)) if self.follows => match self.poll_more(context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                },
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(None)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// The next record of [`Records`].
#[must_use = "nothing is read before it is awaited, or `wait` is called"]
pub struct NextRecord<'a, L: Transport> {
    records: &'a mut Records<L>,
}

impl<L: Transport> fmt::Debug for NextRecord<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NextRecord({:?})", self.records)
    }
}

impl<L: Transport> NextRecord<'_, L> {
    /// Waits in this thread, and drives the link meanwhile. Do not call it in a signal handler: it may wait for what it interrupted.
    ///
    /// # Errors
    /// As the future; and that the link could not be driven.
    pub fn wait(self) -> Result<Option<LogRecord>> {
        // Most are: waiting takes locks of the link that others need.
        if let Some(record) = self.records.at_hand() {
            return Ok(Some(record));
        }
        let link = self.records.log.link().clone();
        link.run_on_link(self)?
    }
}

impl<L: Transport> Future for NextRecord<'_, L> {
    /// `ENODATA`, with the head, when what is asked for has been given up; rot, with its place; what the device said.
    type Output = Result<Option<LogRecord>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Option<LogRecord>>> {
        self.get_mut().records.poll_next(context)
    }
}
