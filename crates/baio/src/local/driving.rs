//! Who reaps the completions of a local link, and whoever has to be called for that.

use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use baio_engine::{Errno, Time, Wait};
use baio_storage::{Error, Result};

use super::Local;
use crate::fired::Fired;
use crate::transport::Transport;

/// The role of reaping, given back when dropped.
pub(crate) struct Role(Local);

impl Drop for Role {
    fn drop(&mut self) {
        let left = self.0.0.reapers.get().saturating_sub(1);
        self.0.0.reapers.set(left);
        if left == 0 {
            self.0.leave_role();
        }
    }
}

impl Local {
    /// Drives the link from inside any executor: the returned future never ends; run it beside the work (`select`, or a
    /// task of its own). It has the role of reaping from now on until it is dropped.
    ///
    /// It is the place where the executor's thread sleeps: each poll submits what is queued and waits for one completion.
    /// Where other tasks of the thread must not be kept waiting so long, use an adapter for the executor's own reactor.
    #[must_use = "the link is driven only while this is polled"]
    pub fn drive(&self) -> Drive {
        Drive {
            link: self.clone(),
            _role: self.take_role(),
        }
    }

    pub(crate) fn take_role(&self) -> Role {
        self.0.reapers.set(self.0.reapers.get().saturating_add(1));
        Role(self.clone())
    }

    /// Nobody reaps any more: whoever waits is woken, to be told so. While the core is borrowed that is put off until the end of the borrow.
    pub(super) fn leave_role(&self) {
        if self.is_inside() {
            self.0.left.set(true);
            return;
        }
        let drivers = self.0.drivers.take();
        // First those who wait for room: the end of a borrow would wake some of them here.
        let mut waiting = self.take_who_wait();
        let _ = self.with(|core| {
            core.take_wakers(&mut waiting);
            Ok(())
        });
        self.0.ours.take_wakers(&mut waiting);
        let count = waiting.len();
        waiting.extend(drivers);
        Fired::first(waiting, count).fire();
    }

    /// The wakers of those who wait for a place or a slot.
    pub(super) fn take_who_wait(&self) -> Vec<Waker> {
        let mut waiting = Vec::new();
        self.0.room.take_wakers(&mut waiting);
        self.0.slots.take_wakers(&mut waiting);
        waiting
    }

    /// Has whoever drives the link from outside look again.
    pub(crate) fn call_driver(&self) {
        if !self.0.drivers.borrow().is_empty() {
            Fired::all(self.0.drivers.take()).fire();
        }
    }

    /// Names whom a request that is started while the loop of [`Local::ready_fd`] sleeps wakes, so that a turn submits it: once, so it is said
    /// again before each sleep.
    pub fn set_driver(&self, waker: &Waker) {
        let waker = waker.clone(); // Not under the borrow: a clone may run anybody's code.
        let mut drivers = self.0.drivers.borrow_mut();
        let is_known = drivers.iter().any(|driver| driver.will_wake(&waker));
        let left = match is_known {
            true => Some(waker),
            false => {
                drivers.push(waker);
                None
            }
        };
        drop(drivers);
        drop(left);
    }

    /// A descriptor that polls readable when a turn would find something, for a loop that sleeps elsewhere: arm, turn without waiting, sleep
    /// on it unless there is news, until [`Local::next_wake`] at most, or until somebody starts a request ([`Local::set_driver`]); disarm. None: nobody tells when this backend has ended something; the loop turns again soon while anything is in flight.
    ///
    /// # Errors
    /// The link was closed; there is no descriptor left for a copy.
    pub fn ready_fd(&self, armed: bool) -> Result<Option<OwnedFd>> {
        self.with(|core| {
            let copy = core.engine_mut().ready_fd(armed).map(|fd| fd.try_clone_to_owned());
            let failed = |error| Error::new("wait for", "the engine's event fd", Errno::of(&error));
            copy.transpose().map_err(failed)
        })
    }

    /// Is there anything that a turn would find or submit without waiting? Whoever stands beside a free slot is called now, because a loop asks
    /// this before it sleeps: another one may have been called for that slot whose task awaits something else.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.call_the_next() || self.core_has_news()
    }

    pub(crate) fn core_has_news(&self) -> bool {
        self.with(|core| Ok(core.has_news())).unwrap_or(true) // Closed: the next turn says so.
    }

    /// Until so many requests have completed, or somebody who waits for a slot gives up.
    pub(super) fn wait_for_next(&self, count: u32) -> Wait {
        Wait::Until {
            count,
            min_wait: Duration::ZERO,
            deadline: self.lines_until(),
        }
    }

    /// Until when a loop that is not the engine's may sleep: then a request is overdue, or somebody who waits for a slot gives up, or
    /// the cache has something to write.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        let of_core = self.with(|core| Ok(core.next_wake())).ok().flatten();
        of_core.into_iter().chain(self.lines_until()).min()
    }

    /// Wakes whoever has waited for a slot long enough.
    pub(crate) fn wake_late(&self) {
        if self.nobody_waits() {
            return;
        }
        self.0.room.wake_late(|| self.link_clock());
        self.0.slots.wake_late(|| self.link_clock());
    }

    /// So many places and slots are free beside somebody who waits for one.
    pub(crate) fn free_beside_waiters(&self) -> (usize, usize) {
        if self.nobody_waits() {
            return (0, 0);
        }
        let free = self.with(|core| Ok((core.places_freed().1, core.engine().free_slots().0)));
        let (places, slots) = free.unwrap_or_default();
        let places = if self.0.room.is_empty() { 0 } else { places.min(slots) };
        (places, if self.0.slots.is_empty() { 0 } else { slots })
    }

    /// Before a sleep, when all who were called have been polled. One of them may be a future whose task awaits another now: what it was called for is
    /// free beside those who stand behind it, and nobody else would call them. Was anybody called?
    pub(crate) fn call_the_next(&self) -> bool {
        let (places, slots) = self.free_beside_waiters();
        self.0.room.wake_next(places) | self.0.slots.wake_next(slots)
    }

    /// When the first of those who wait for a slot gives up.
    fn lines_until(&self) -> Option<Time> {
        self.0.room.until().into_iter().chain(self.0.slots.until()).min()
    }
}

/// See [`Local::drive`].
pub struct Drive {
    link: Local,
    _role: Role,
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive")
    }
}

/// For so long the executor's thread sleeps at most while nothing is at the device: what ends that may be a task of the same thread.
const IDLE_SLEEP: Duration = Duration::from_millis(1);

impl Drive {
    fn how_long(&self, in_flight: bool) -> Wait {
        let wait = self.link.wait_for_next(u32::from(in_flight));
        let idle = self
            .link
            .with(|core| Ok(core.is_engine_idle().then(|| core.engine().clock())));
        match (wait, idle) {
            (
                Wait::Until {
                    count,
                    min_wait,
                    deadline,
                },
                Ok(Some(now)),
            ) => Wait::Until {
                count,
                min_wait,
                deadline: deadline.into_iter().chain([now.after(IDLE_SLEEP)]).min(),
            },
            (wait, _) => wait,
        }
    }
}

impl Future for Drive {
    /// Only ever an error: the backend is broken, or the link was closed.
    type Output = Error;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        if let Err(closed) = self.link.with(|_| Ok(())) {
            return Poll::Ready(closed);
        }
        self.link.set_driver(context.waker());
        let in_flight = self.link.link_state().in_flight > 0;
        if !in_flight && self.link.next_wake().is_none() {
            if self.link.call_the_next() {
                context.waker().wake_by_ref(); // To look again, once they have been polled.
            }
            return Poll::Pending; // Woken by the next request.
        }
        match self.link.turn_link(self.how_long(in_flight)) {
            Ok(_) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(error),
        }
    }
}
