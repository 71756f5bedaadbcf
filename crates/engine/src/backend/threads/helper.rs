//! All that runs iterations without the kernel's own queues: a pool for what would block, readiness for streams, a heap of
//! timers. The `threads` backend is this and a loop around it; `aio` keeps one beside its context, and sleeps on its
//! descriptor too.
//!
//! One descriptor tells that there is something to collect: an epoll set with every stream that is waited for, the workers'
//! bell, the doorbell, and, while an outside loop sleeps, a timer.

#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::event::Timespec;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use super::earliest;
use super::pool::{Job, Limits, Pool, Ring};
use super::readiness::{Own, Readiness, Waiter, Watched};
use super::route::{Class, Way};
use super::streams::{self, Tried};
use crate::backend::{Done, Doorbell};
use crate::error::{Errno, SetupError};
use crate::memory::Window;
use crate::policy::Time;
use crate::request::RequestId;
use crate::slot::ready;
use crate::sys::{self, Action, Fd, Iteration, TRANSFER_MAX};
use crate::timers::Timers;

/// One in so many turns in a row that found something at once looks at the doorbell all the same.
pub(crate) const LOOK_EVERY: u32 = 32;

pub(crate) struct Helper {
    pool: Pool,
    readiness: Readiness,
    timers: Timers,
    /// The iteration of each slot that waits for a stream.
    waiting: Box<[Option<Waiting>]>,
    ready: Vec<Waiter>,
    finished: Vec<(RequestId, i32)>,
    batch: Vec<Job>,
    /// Given to the workers and not collected.
    jobs: usize,
    doorbell: Doorbell,
    rang: bool,
    /// Turns since the last look.
    unlooked: u32,
    /// An outside loop sleeps on our descriptor, or is about to.
    armed: bool,
    /// It wants to be woken then, whatever there is.
    tick: Option<Time>,
    timer: Option<OwnedFd>,
    system_calls: u64,
}

struct Waiting {
    id: RequestId,
    fd: RawFd,
    iteration: Iteration,
    /// Bytes that a receive which waits for all (`MSG_WAITALL`) has so far.
    moved: i32,
    connecting: bool,
}

impl Helper {
    pub(crate) fn new(name: &'static str, slots: u32, limits: Limits) -> Result<Helper, SetupError> {
        let slots = slots as usize;
        let refused = |errno: Errno| {
            SetupError::new("start the helper of a backend", "an epoll set".into(), errno)
                .cure("raise RLIMIT_NOFILE (`ulimit -n`)")
        };
        let readiness = Readiness::new().map_err(refused)?;
        let doorbell = Doorbell::new()?;
        let pool = Pool::new(name, slots, limits)?;
        readiness
            .watch_own(Own::Doorbell, doorbell.fd(), false)
            .map_err(refused)?;
        readiness.watch_own(Own::Bell, pool.bell(), true).map_err(refused)?;
        Ok(Helper {
            pool,
            readiness,
            timers: Timers::new(slots),
            waiting: (0..slots).map(|_| None).collect(),
            ready: Vec::with_capacity(slots),
            finished: Vec::with_capacity(slots),
            batch: Vec::with_capacity(slots),
            jobs: 0,
            doorbell,
            rang: false,
            unlooked: 0,
            armed: false,
            tick: None,
            timer: None,
            system_calls: 0,
        })
    }

    /// Takes an iteration. Jobs for workers gather until [`Helper::send`].
    pub(crate) fn take(&mut self, id: RequestId, iteration: Iteration, way: Way) {
        match way {
            Way::Timer => match iteration.action {
                Action::Timer { at } => self.timers.set(id, at),
                _ => self.finished.push((id, -libc::EINVAL)),
            },
            Way::Stream => self.begin(id, iteration),
            Way::Pool(class) => self.batch.push(Job { id, iteration, class }),
            // Who has a kernel queue uses it; this is what is left when the queue is full.
            Way::Kernel => self.batch.push(Job {
                id,
                iteration,
                class: Class::Wide,
            }),
        }
    }

    /// Hands the batch to the workers.
    pub(crate) fn send(&mut self) {
        self.jobs += self.batch.len();
        self.pool.submit(&mut self.batch);
    }

    /// Takes what has ended, timers included, and says when the workers are to ring from now on.
    pub(crate) fn collect(&mut self, done: &mut Done, ring: Ring) {
        if !self.timers.is_empty() {
            let now = sys::monotonic();
            while let Some(id) = self.timers.fire(now) {
                self.finished.push((id, 0));
            }
        }
        done.raw.append(&mut self.finished);
        done.rang |= std::mem::take(&mut self.rang);
        if self.jobs > 0 {
            let before = done.raw.len();
            self.pool
                .collect(&mut done.raw, if self.armed { Ring::Next } else { ring });
            self.jobs -= done.raw.len() - before;
        }
        if self.armed {
            if let Some(at) = earliest(self.tick, self.next_timer()) {
                self.set_timer(at);
            }
        }
    }

    /// Looks at streams and bells, and sleeps until one of them has something, at most `limit`.
    pub(crate) fn look(&mut self, limit: Option<&Timespec>) -> Result<(), Errno> {
        self.system_calls += 1;
        self.unlooked = 0;
        let (doorbell, timer) = (&self.doorbell, &self.timer);
        let rang = &mut self.rang;
        self.readiness.wait(limit, &mut self.ready, |own| match own {
            Own::Doorbell => *rang |= doorbell.silence(),
            Own::Bell => {}
            Own::Timer => {
                let _ = timer.as_ref().map(|timer| rustix::io::read(timer, &mut [0; 8]));
            }
        })?;
        let mut ready = std::mem::take(&mut self.ready);
        for waiter in ready.drain(..) {
            self.go_on(waiter);
        }
        self.ready = ready;
        self.send();
        Ok(())
    }

    /// Asked in a turn that found something at once. Else nobody would hear a ring as long as workers always have something.
    pub(crate) fn is_look_due(&mut self) -> bool {
        self.unlooked += 1;
        self.unlooked >= LOOK_EVERY
    }

    /// Does anybody wait for a stream?
    pub(crate) fn has_streams(&self) -> bool {
        !self.readiness.is_idle()
    }

    /// Until when the owner may sleep because of timers, and of jobs that somebody has to look after.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        earliest(self.timers.next(), self.pool.next_look())
    }

    /// Ends a timer, a wait, or a job that has not begun, at once. What runs, ends by itself.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        let stopped = if self.timers.cancel(id) {
            Some(-libc::ECANCELED)
        } else if let Some(waiting) = self.take_waiting(id) {
            // SAFETY: the slot keeps the descriptor open while its request is in flight.
            let fd = unsafe { BorrowedFd::borrow_raw(waiting.fd) };
            self.readiness.remove(fd, id.slot);
            // What has been received may not be lost.
            Some(if waiting.moved > 0 {
                waiting.moved
            } else {
                -libc::ECANCELED
            })
        } else {
            let queued = self.pool.cancel(id);
            self.jobs -= usize::from(queued);
            queued.then_some(-libc::ECANCELED)
        };
        self.finished.extend(stopped.map(|raw| (id, raw)));
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    /// Polls readable when there is something to collect, if somebody waits for it.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.readiness.fd()
    }

    /// An outside loop is about to sleep on the descriptor, at the latest until `tick`, or has woken. What wakes it for a timer is made
    /// when it first asks: later nobody could be told that there is none.
    pub(crate) fn arm(&mut self, arm: bool, tick: Option<Time>) -> Result<(), Errno> {
        if self.timer.is_none() {
            let timer = baio_process::descriptor::timer(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
            self.readiness.watch_own(Own::Timer, &timer, false)?;
            self.timer = Some(timer);
            self.system_calls += 2;
        }
        self.armed = arm;
        self.tick = tick;
        // Takes in what would make the descriptor readable for nothing.
        self.look(Some(&NOW))
    }

    /// Makes the descriptor readable at `at`.
    fn set_timer(&mut self, at: Time) {
        let Some(timer) = &self.timer else { return };
        let (seconds, nanoseconds) = at.split();
        let value = Itimerspec {
            it_interval: NOW,
            // All zero would switch it off.
            it_value: Timespec {
                tv_sec: seconds,
                tv_nsec: nanoseconds.max(1),
            },
        };
        let _ = rustix::time::timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &value);
        self.system_calls += 1;
    }

    /// The process has forked, and this is the child: the workers are the parent's.
    pub(crate) fn disown(&mut self) {
        self.pool.disown();
    }

    pub(crate) fn system_calls(&self) -> u64 {
        self.system_calls
    }

    /// Why there are fewer workers than there might be.
    pub(crate) fn refused(&self) -> Option<Errno> {
        self.pool.refused()
    }

    fn begin(&mut self, id: RequestId, iteration: Iteration) {
        let Fd::Raw(fd) = iteration.fd else {
            self.finished.push((id, -libc::EBADF));
            return;
        };
        let waiting = Waiting {
            id,
            fd,
            iteration,
            moved: 0,
            connecting: false,
        };
        match iteration.action {
            Action::Poll { events } => self.wait_for(waiting, events),
            _ => self.attempt(waiting),
        }
    }

    fn attempt(&mut self, mut waiting: Waiting) {
        loop {
            self.system_calls += 1;
            // SAFETY: the slot owns the memory until its request has been reported.
            let raw = match unsafe { streams::attempt(&waiting.iteration) } {
                Tried::Ended(raw) => raw,
                Tried::NotReady(events) if streams::is_patient(&waiting.iteration) => {
                    return self.wait_for(waiting, events);
                }
                Tried::NotReady(_) => -libc::EAGAIN,
                Tried::Connecting => {
                    waiting.connecting = true;
                    return self.wait_for(waiting, libc::POLLOUT as u32);
                }
                Tried::Blocks => return self.leave_to_worker(&waiting),
            };
            if raw > 0 && advance(&mut waiting, raw) {
                continue;
            }
            return self.report(&waiting, raw);
        }
    }

    /// What came before an error, or the end, counts.
    fn report(&mut self, waiting: &Waiting, raw: i32) {
        let raw = match waiting.moved {
            0 => raw,
            moved => moved + raw.max(0),
        };
        self.finished.push((waiting.id, raw));
    }

    fn wait_for(&mut self, waiting: Waiting, events: u32) {
        let slot = waiting.id.slot;
        // SAFETY: the slot keeps the descriptor open while its request is in flight.
        let fd = unsafe { BorrowedFd::borrow_raw(waiting.fd) };
        self.system_calls += 1;
        match self.readiness.add(fd, Waiter { slot, events }) {
            Ok(Watched::Yes) => self.waiting[slot as usize] = Some(waiting),
            Ok(Watched::AlwaysReady) => match waiting.iteration.action {
                Action::Poll { events } => match ready(waiting.fd, events) {
                    // It never will be, as poll(2) sees it too; the wait can only be cancelled.
                    0 => self.waiting[slot as usize] = Some(waiting),
                    ready => self.finished.push((waiting.id, ready as i32)),
                },
                _ => self.leave_to_worker(&waiting),
            },
            Err(errno) => self.report(&waiting, -errno.raw()),
        }
    }

    fn leave_to_worker(&mut self, waiting: &Waiting) {
        let (id, iteration) = (waiting.id, waiting.iteration);
        let class = Class::Stream;
        self.batch.push(Job { id, iteration, class });
    }

    /// Its stream is ready.
    fn go_on(&mut self, waiter: Waiter) {
        let Some(waiting) = self.waiting[waiter.slot as usize].take() else {
            return;
        };
        match waiting.iteration.action {
            Action::Poll { .. } => self.finished.push((waiting.id, waiter.events as i32)),
            _ if waiting.connecting => {
                self.system_calls += 2;
                // SAFETY: the slot owns the memory until its request has been reported.
                let raw = unsafe { streams::connected(waiting.fd, &waiting.iteration) };
                self.finished.push((waiting.id, raw));
            }
            _ => self.attempt(waiting),
        }
    }

    fn take_waiting(&mut self, id: RequestId) -> Option<Waiting> {
        self.waiting
            .get_mut(id.slot as usize)?
            .take_if(|waiting| waiting.id == id)
    }
}

pub(crate) const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A receive that waits for all its bytes goes on behind those that have come; true when some are missing.
fn advance(waiting: &mut Waiting, got: i32) -> bool {
    let Action::Receive { window, flags } = &mut waiting.iteration.action else {
        return false;
    };
    let Window::Flat { pointer, len } = window else {
        return false;
    };
    // As the kernel does: one receive has at most so many bytes in all, and their number fits into its result.
    let left = (*len)
        .min(TRANSFER_MAX - waiting.moved as usize)
        .saturating_sub(got as usize);
    if left == 0 || !streams::waits_for_all(waiting.fd, *flags) {
        return false;
    }
    waiting.moved += got;
    *pointer = pointer.wrapping_add(got as usize);
    *len = left;
    true
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_receive_that_waits_for_all_ends_before_its_count_overflows() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let receive = |moved: usize| Waiting {
            id: RequestId::default(),
            fd: socket.as_raw_fd(),
            iteration: Iteration {
                action: Action::Receive {
                    window: Window::Flat {
                        pointer: std::ptr::null_mut(),
                        len: u32::MAX as usize - moved,
                    },
                    flags: libc::MSG_WAITALL as u32,
                },
                fd: Fd::Raw(socket.as_raw_fd()),
                flags: 0,
            },
            moved: moved as i32,
            connecting: false,
        };
        assert!(advance(&mut receive(TRANSFER_MAX - 10), 9), "one byte is missing");
        assert!(!advance(&mut receive(TRANSFER_MAX - 10), 10));
    }
}
