//! Driving a local link from tokio's reactor, without ever blocking its thread.

#![allow(unsafe_code)]

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use baio_engine::{Time, Wait};
use baio_storage::{Error, Fault};
use tokio::io::unix::AsyncFd;
use tokio::time::{Sleep, sleep};

use crate::link::Link;
use crate::local::Local;

impl Local {
    /// Drives the link from a tokio runtime with an I/O driver, on the thread that owns it (a `LocalSet`, or
    /// `spawn_local`). The returned future never ends, and has the role of reaping from this call until it is dropped.
    ///
    /// It sleeps on the engine's event fd: armed, turned once more, then awaited, so that no completion is missed. The event fd tells
    /// of no deadline, and of no page that has grown old in the cache: until the first of these at most it sleeps.
    ///
    /// # Panics
    /// The future does, when there is such a moment and the runtime has no timers (tokio's `enable_time`).
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
        link.wake_late();
        let until = link.next_wake();
        let mut timer = pin!(until.map(|at| timer(link, at)));
        let mut has_yielded = false;
        poll_fn(|context| {
            link.set_driver(context.waker());
            // Something was queued between the turn and here, or was refused at once; or there is less time to sleep.
            if link.has_news() || is_sooner(link.next_wake(), until) {
                return Poll::Ready(Ok(()));
            }
            if let Some(timer) = timer.as_mut().as_pin_mut() {
                if timer.poll(context).is_ready() {
                    return Poll::Ready(Ok(()));
                }
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

/// Ends at this moment, which the turn that has just been made has compared with its own. What was due then and could not be done is
/// looked at again soon, and not at once: others of the thread go on meanwhile.
fn timer(link: &Local, at: Time) -> Sleep {
    const SOON: Duration = Duration::from_millis(1);
    sleep(at.since(link.now()).max(SOON))
}

fn is_sooner(at: Option<Time>, than: Option<Time>) -> bool {
    at.is_some_and(|at| than.is_none_or(|than| at < than))
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
