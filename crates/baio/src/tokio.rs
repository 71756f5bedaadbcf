//! Driving a local link from tokio's reactor, without ever blocking its thread.

#![allow(unsafe_code)]

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::task::Poll;

use baio_engine::Wait;
use baio_storage::{Error, Fault};
use tokio::io::unix::AsyncFd;

use crate::local::Local;

impl Local {
    /// Drives the link from a tokio runtime with an I/O driver, on the thread that owns it (a `LocalSet`, or
    /// `spawn_local`). The returned future never ends, and has the role of reaping from this call until it is dropped.
    ///
    /// It sleeps on the engine's event fd: armed, turned once more, then awaited, so that no completion is missed.
    pub fn drive_tokio(&self) -> impl Future<Output = Error> + use<> {
        let link = self.clone();
        let role = self.take_role();
        async move {
            let _role = role;
            match drive(&link).await {
                Ok(never) => match never {},
                Err(error) => error,
            }
        }
    }
}

async fn drive(link: &Local) -> Result<std::convert::Infallible, Error> {
    let ready = ready_fd(link)?;
    loop {
        arm(link, true)?;
        link.turn(Wait::No)?;
        let mut has_yielded = false;
        poll_fn(|context| {
            link.set_driver(context.waker());
            // Something was queued between the turn and here, or was refused at once.
            if link.has_news() {
                return Poll::Ready(Ok(()));
            }
            if ready.is_none() && is_at_work(link) {
                // Nobody tells its end. Others go on between two looks.
                if std::mem::replace(&mut has_yielded, true) {
                    return Poll::Ready(Ok(()));
                }
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match &ready {
                Some(ready) => ready.poll_read_ready(context).map_ok(|mut guard| guard.clear_ready()),
                None => Poll::Pending,
            }
        })
        .await
        .map_err(|error| failed(&error))?;
        arm(link, false)?;
    }
}

/// A descriptor of our own for the reactor; a backend that has none completes everything within a turn.
fn ready_fd(link: &Local) -> Result<Option<AsyncFd<OwnedFd>>, Error> {
    let fd = link.with(|core| Ok(core.engine_mut().ready_fd(false).map(|fd| fd.try_clone_to_owned())))?;
    let Some(fd) = fd.transpose().map_err(|error| failed(&error))? else {
        return Ok(None);
    };
    // SAFETY: the `AsyncFd` owns the descriptor, so it stays open, and the same, for as long as it is registered.
    let registered = unsafe { AsyncFd::register(fd) };
    registered.map(Some).map_err(|error| failed(&error.into_parts().1))
}

/// Has the engine begun anything?
fn is_at_work(link: &Local) -> bool {
    link.with(|core| Ok(core.engine().in_flight() > 0)).unwrap_or_default()
}

fn arm(link: &Local, armed: bool) -> Result<(), Error> {
    link.with(|core| {
        core.engine_mut().ready_fd(armed);
        Ok(())
    })
}

fn failed(error: &std::io::Error) -> Error {
    let errno = baio_engine::Errno::from_raw(error.raw_os_error().unwrap_or(5));
    Error::new("wait for", "the engine's event fd", Fault::from(errno))
}
