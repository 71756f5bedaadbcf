//! Futures of a log: they ask the part that is shared with the core, and cross no ring.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use baio_engine::Wait;
use baio_storage::log::{Lsn, WaitKey};
use baio_storage::{Error, Result};

use super::Log;
use crate::transport::Transport;

/// What is being done by whoever waits, for messages.
pub(super) const WAIT: &str = "wait for the log in";

/// Waits until a record is durable, and gives its LSN. Dropping it takes nothing back.
#[must_use = "nobody waits before it is awaited, or `wait` is called"]
pub struct Durable<L: Transport> {
    log: Log<L>,
    /// What is waited for; or why it was not appended, once.
    lsn: Option<Result<Lsn>>,
    key: WaitKey,
}

impl<L: Transport> fmt::Debug for Durable<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Durable({})", self.log.name())
    }
}

impl<L: Transport> Durable<L> {
    pub(super) fn new(log: &Log<L>, lsn: Result<Lsn>) -> Durable<L> {
        Durable {
            log: log.clone(),
            lsn: Some(lsn),
            key: WaitKey::default(),
        }
    }

    /// Waits in this thread: over [`Local`](crate::Local) it drives the link meanwhile; over [`Remote`](crate::Remote) it sleeps, and all threads
    /// whose records went out as one batch are woken together.
    ///
    /// # Errors
    /// The record never becomes durable, because a write failed or the log was closed before. It may or may not be there after the next
    /// opening. Or the link could not be driven.
    pub fn wait(self) -> Result<Lsn> {
        let link = self.log.link().clone();
        if let Some(Ok(lsn)) = self.lsn {
            let shared = &self.log.shared;
            let sleep = || shared.appender.wait_durable(lsn, None);
            if let Some(Poll::Ready(durable)) = link.while_others_drive(sleep) {
                return durable.map(|()| lsn).map_err(|error| shared.failed(WAIT, error));
            }
        }
        link.run_on_link(self)?
    }

    /// The same for so long at most: `None` if it is not durable by then. It may become durable later; wait for its LSN again.
    ///
    /// # Errors
    /// As [`Durable::wait`].
    pub fn wait_within(mut self, limit: Duration) -> Result<Option<Lsn>> {
        let link = self.log.link().clone();
        let lsn = match self.lsn.take() {
            Some(lsn) => lsn?,
            None => return Err(Error::new(WAIT, self.log.name(), baio_storage::Fault::Stale)),
        };
        let shared = &self.log.shared;
        let failed = |error| shared.failed(WAIT, error);
        let sleep = || shared.appender.wait_durable(lsn, Instant::now().checked_add(limit));
        match link.while_others_drive(sleep) {
            Some(Poll::Ready(durable)) => return durable.map(|()| Some(lsn)).map_err(failed),
            Some(Poll::Pending) => return Ok(None),
            None => {}
        }
        let until = link.link_clock().after(limit);
        loop {
            match shared.appender.poll_durable(lsn, &mut self.key, Waker::noop()) {
                Poll::Ready(durable) => return durable.map(|()| Some(lsn)).map_err(failed),
                Poll::Pending if link.link_clock() >= until => return Ok(None),
                Poll::Pending => {}
            }
            link.turn_link(Wait::Until {
                count: 1,
                min_wait: Duration::ZERO,
                deadline: Some(until),
            })?;
        }
    }
}

impl<L: Transport> Future for Durable<L> {
    type Output = Result<Lsn>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Lsn>> {
        let this = self.get_mut();
        let lsn = match this.lsn.take() {
            Some(Ok(lsn)) => lsn,
            Some(Err(error)) => return Poll::Ready(Err(error)),
            None => return Poll::Ready(Err(Error::new(WAIT, this.log.name(), baio_storage::Fault::Stale))),
        };
        let shared = &this.log.shared;
        match shared.appender.poll_durable(lsn, &mut this.key, context.waker()) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(lsn)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(shared.failed(WAIT, error))),
            Poll::Pending => match this.log.nobody() {
                Some(fault) => Poll::Ready(Err(Error::new(WAIT, this.log.name(), fault))),
                None => {
                    this.lsn = Some(Ok(lsn));
                    Poll::Pending
                }
            },
        }
    }
}

/// Waits until an append of so many bytes may succeed.
#[must_use = "nobody waits before it is awaited, or `wait` is called"]
pub struct Room<L: Transport> {
    log: Log<L>,
    bytes: usize,
    key: WaitKey,
}

impl<L: Transport> fmt::Debug for Room<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({} bytes in {})", self.bytes, self.log.name())
    }
}

impl<L: Transport> Room<L> {
    pub(super) fn new(log: &Log<L>, bytes: usize) -> Room<L> {
        Room {
            log: log.clone(),
            bytes,
            key: WaitKey::default(),
        }
    }

    /// Waits in this thread, and drives the link meanwhile. Do not call it in a signal handler: it may wait for what it interrupted.
    ///
    /// # Errors
    /// A write failed, or the log was closed; it is more than the log ever takes; or the link could not be driven.
    pub fn wait(self) -> Result<()> {
        let link = self.log.link().clone();
        link.run_on_link(self)?
    }
}

impl<L: Transport> Future for Room<L> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let shared = &this.log.shared;
        match shared.appender.poll_room(this.bytes, &mut this.key, context.waker()) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(shared.failed(WAIT, error))),
            Poll::Pending => match this.log.nobody() {
                Some(fault) => Poll::Ready(Err(Error::new(WAIT, this.log.name(), fault))),
                None => Poll::Pending,
            },
        }
    }
}
