//! Driving a local link from another runtime's loop, without ever blocking its thread.
//!
//! It sleeps on the engine's event fd: armed, turned once more, then awaited, so that no completion is missed. The event fd tells of no
//! deadline, and of no page that has grown old in the cache: until the first of these at most it sleeps.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use baio_engine::{Errno, Time, Wait};
use baio_storage::{Error, Fault};

use crate::local::Local;
use crate::transport::Transport;

/// Nobody looks again sooner: others of the thread go on meanwhile.
const SOON: Duration = Duration::from_millis(1);

/// What a runtime has for that.
pub(crate) trait Reactor: Sized {
    /// Watches this descriptor for being readable.
    fn watch(fd: OwnedFd) -> io::Result<Self>;

    /// The descriptor was readable since it was asked last, or is; else the task is woken when it is.
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends so long from now.
    fn sleep(duration: Duration) -> impl Future<Output = ()>;
}

/// Drives the link, with the role of reaping from this call until the future is dropped. It ends when the link does.
pub(crate) fn drive<R: Reactor>(link: &Local) -> impl Future<Output = Error> + use<R> {
    let link = link.clone();
    let role = link.take_role();
    async move {
        let _role = role;
        match drive_for_ever::<R>(&link).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }
}

async fn drive_for_ever<R: Reactor>(link: &Local) -> Result<std::convert::Infallible, Error> {
    let mut ready = ready_fd::<R>(link)?;
    loop {
        if ready.is_none() {
            // The system may have had no descriptor left for it.
            ready = ready_fd::<R>(link)?;
        }
        // The engine may have a descriptor, and fail to have the kernel tell by it.
        let is_told = arm(link, true)? && ready.is_some();
        link.turn_link(Wait::No)?;
        // Where nobody tells of an end it is looked for, now and then.
        let look = (!is_told && is_at_work(link)).then(|| link.link_clock().after(SOON));
        let until = link.next_wake().into_iter().chain(look).min();
        let mut timer = pin!(until.map(|at| R::sleep(how_long(link, at))));
        let mut has_yielded = false;
        poll_fn(|context| {
            link.set_driver(context.waker());
            // Something was queued between the turn and here, or was refused at once; or there is less time to sleep. Others of the
            // thread go on before the next turn: there may be many in a row.
            if link.core_has_news() || is_sooner(link.next_wake(), until) {
                if std::mem::replace(&mut has_yielded, true) {
                    return Poll::Ready(Ok(()));
                }
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if link.free_beside_waiters() != (0, 0) {
                // Those who were called go on first.
                if std::mem::replace(&mut has_yielded, true) {
                    link.call_the_next();
                    return Poll::Ready(Ok(()));
                }
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let timer = timer.as_mut().as_pin_mut();
            if timer.is_some_and(|timer| timer.poll(context).is_ready()) {
                return Poll::Ready(Ok(()));
            }
            // Somebody else's turn has begun something: it is looked for too.
            if !is_told && look.is_none() && is_at_work(link) {
                return Poll::Ready(Ok(()));
            }
            match &ready {
                Some(ready) => ready.poll_ready(context),
                None => Poll::Pending,
            }
        })
        .await
        .map_err(|error| failed(&error))?;
        arm(link, false)?;
    }
}

/// Until this moment, which the turn that has just been made has compared with its own. What was due then and could not be done is
/// looked at again soon, and not at once: others of the thread go on meanwhile.
fn how_long(link: &Local, at: Time) -> Duration {
    at.since(link.link_clock()).max(SOON)
}

fn is_sooner(at: Option<Time>, than: Option<Time>) -> bool {
    at.is_some_and(|at| than.is_none_or(|than| at < than))
}

/// A descriptor of our own for the reactor. None: the backend completes everything within a turn, or no descriptor is left just now.
fn ready_fd<R: Reactor>(link: &Local) -> Result<Option<R>, Error> {
    let fd = link.with(|core| Ok(core.engine_mut().ready_fd(false).map(|fd| fd.try_clone_to_owned())))?;
    match fd.map(|fd| fd.and_then(R::watch)).transpose() {
        Err(error) if matches!(Errno::of(&error), Errno::EMFILE | Errno::ENFILE) => Ok(None), // It is asked for again.
        watched => watched.map_err(|error| failed(&error)),
    }
}

/// Has the engine begun anything?
fn is_at_work(link: &Local) -> bool {
    link.with(|core| Ok(core.engine().in_flight() > 0)).unwrap_or_default()
}

/// Whether the engine's descriptor tells of what ends from here on, if it was armed.
fn arm(link: &Local, armed: bool) -> Result<bool, Error> {
    link.with(|core| Ok(core.engine_mut().ready_fd(armed).is_some()))
}

fn failed(error: &io::Error) -> Error {
    Error::new("wait for", "the engine's event fd", Fault::from(Errno::of(error)))
}
