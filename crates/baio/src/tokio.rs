//! Driving a local link from tokio's reactor.

#![allow(unsafe_code)]

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

use baio_storage::Error;
use tokio::io::unix::AsyncFd;

use crate::local::Local;
use crate::reactor::{self, Reactor};

impl Local {
    /// Drives the link from a tokio runtime with an I/O driver, on the thread that owns it (a `LocalSet`, or
    /// `spawn_local`). The returned future never ends, and has the role of reaping from this call until it is dropped.
    ///
    /// It sleeps on the engine's event fd: armed, turned once more, then awaited, so that no completion is missed. The event fd tells
    /// of no deadline, and of no page that has grown old in the cache: until the first of these at most it sleeps. While no descriptor is free it
    /// looks each millisecond whether something has ended.
    ///
    /// # Panics
    /// The future does at its first poll outside of a tokio runtime, or where the runtime has no I/O driver (tokio's `enable_io`); and when there
    /// is such a moment, or no descriptor is free while something is under way, and the runtime has no timers (`enable_time`).
    pub fn drive_tokio(&self) -> impl Future<Output = Error> + use<> {
        reactor::drive::<AsyncFd<OwnedFd>>(self)
    }
}

impl Reactor for AsyncFd<OwnedFd> {
    fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
        // SAFETY: the `AsyncFd` owns the descriptor, so it stays open, and the same, for as long as it is registered.
        let registered = unsafe { AsyncFd::register(fd) };
        registered.map_err(|error| error.into_parts().1)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(context).map_ok(|mut guard| guard.clear_ready())
    }

    fn sleep(duration: Duration) -> impl Future<Output = ()> {
        tokio::time::sleep(duration)
    }
}
