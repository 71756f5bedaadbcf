//! Peers without a thread: whoever appends also posts batches, while fewer than a window are under way, and learns of their ends when it
//! waits. So batches form by themselves, as in a log with a thread, and nobody has to be woken.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Instant;

use super::Area;
use super::appender::Appender;
use super::stream::{Batches, Stream, place_of};
use super::sys::{Calls, WINDOW};

pub(super) struct Queue<C>(RefCell<Inner<C>>);

struct Inner<C> {
    calls: C,
    stream: Stream,
    /// Where each batch under way ends, and whether it has; in the order of the stream.
    under_way: VecDeque<(u64, bool)>,
    /// All up to here.
    durable: u64,
    next: u64,
    size: u64,
    block: u64,
}

impl<C: Calls> Queue<C> {
    pub(super) fn new(calls: C, area: Area<'_>) -> Result<Queue<C>, String> {
        Ok(Queue(RefCell::new(Inner {
            calls,
            stream: Stream::new(area.record)?,
            under_way: VecDeque::with_capacity(WINDOW),
            durable: 0,
            next: 0,
            size: area.size,
            block: area.block,
        })))
    }

    /// Waits until everything is durable.
    pub(super) fn end(self) -> Result<Batches, String> {
        let end = self.0.borrow().stream.end;
        self.wait(end, None)?;
        Ok(self.0.into_inner().stream.batches())
    }
}

impl<C: Calls> Appender for Queue<C> {
    fn append(&self, record: &[u8]) -> Result<Option<u64>, String> {
        Ok(self.0.borrow_mut().stream.append(record))
    }

    fn wait(&self, end: u64, until: Option<Instant>) -> Result<u64, String> {
        let mut inner = self.0.borrow_mut();
        loop {
            inner.post()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if inner.durable >= end {
                return Ok(inner.durable);
            }
            if inner.under_way.is_empty() {
                return Err("waits for what was never appended".to_owned());
            }
            let ended = inner.calls.ended(left).map_err(|error| format!("wait: {error}"))?;
            for (batch, result) in ended {
                let (at, bytes) = (batch.end, batch.bytes().len());
                let written = result.map_err(|error| format!("write: {error}"))?;
                if written < bytes {
                    return Err(format!("a write of {bytes} bytes ended after {written}"));
                }
                inner.stream.give_back(batch);
                inner.ended(at);
            }
            if left.is_some_and(|left| left.is_zero()) {
                inner.post()?;
                return Ok(inner.durable);
            }
        }
    }
}

impl<C: Calls> Inner<C> {
    /// Posts what is gathered, as far as the window goes.
    fn post(&mut self) -> Result<(), String> {
        while self.under_way.len() < WINDOW {
            let Some(mut batch) = self.stream.take() else {
                break;
            };
            let len = batch.blocks(self.block).len();
            let place = place_of(&mut self.next, len, self.size);
            self.under_way.push_back((batch.end, false));
            let posted = self.calls.post(batch, self.block, place);
            posted.map_err(|error| format!("post: {error}"))?;
        }
        Ok(())
    }

    /// A write may end before the one in front of it: durable is only what has no gap.
    fn ended(&mut self, end: u64) {
        if let Some(entry) = self.under_way.iter_mut().find(|entry| entry.0 == end) {
            entry.1 = true;
        }
        while let Some(&(end, true)) = self.under_way.front() {
            self.durable = end;
            self.under_way.pop_front();
        }
    }
}
