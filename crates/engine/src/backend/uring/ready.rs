//! What an outside loop sleeps on: either a request has completed, or the doorbell rings.
//!
//! An event fd is registered for completions, because polling the ring's own descriptor misses some under DEFER_TASKRUN. It is disarmed,
//! by a flag in the completion ring, while the owner is awake.
//!
//! Before Linux 5.18 registering waits until nothing is under way on the ring, for ever where that is an accept. So on such a kernel it is
//! done once, while the ring is new; on later ones when somebody first asks, because the kernel looks after a registered event fd at
//! each completion. A kernel that takes a set-up flag of 5.18 or later is a later one, whatever a policy lets it say to a probe.
//!
//! What a policy refuses is found out while the ring is new. Where no event fd can be registered, the ring's own descriptor is slept on;
//! where none can be registered again, one is registered once. Such a ring has no DEFER_TASKRUN (`setup.rs`).
//!
//! The doorbell is watched beside the ring, not through it. A completion that is caused by a write to an event fd, as the
//! doorbell's is, signals a registered event fd only after an RCU grace period, and since Linux 6.10 only the first time:
//! `io_eventfd_do_signal` (io_uring/eventfd.c) never clears the bit that says it is under way. For polls and reads of other
//! event fds the registration is therefore renewed at each arming, once there is a stream. Kernels that would wait for that have
//! not that fault.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use baio_process::kernel::{self, Feature};
use io_uring::IoUring;
use rustix::event::epoll;

use super::setup::{Features, was_taken};
use crate::backend::Doorbell;
use crate::error::Errno;

/// Set-up flags that no kernel took before it registered an event fd late.
const YOUNG: [Feature; 4] = [
    Feature::SubmitAll,
    Feature::SingleIssuer,
    Feature::DeferTaskrun,
    Feature::NoSqarray,
];

pub(super) struct Ready {
    /// May an event fd be registered while requests are under way, and again?
    is_late: bool,
    /// Why not.
    why_early: Option<String>,
    /// Registered; none before somebody asks, or where that is refused.
    completed: Option<OwnedFd>,
    either: Option<OwnedFd>,
}

impl Ready {
    /// Of a ring that has nothing under way, on a kernel that `knows_messages`.
    ///
    /// # Errors
    /// An outside loop would sleep through completions; why no event fd can be had that tells of them.
    pub(super) fn of(ring: &mut IoUring, features: &Features, knows_messages: bool) -> Result<Ready, String> {
        let found_late = knows_messages || YOUNG.iter().any(|flag| was_taken(features, *flag));
        let mut ready = Ready {
            is_late: kernel::has(Feature::LateEventFd, found_late),
            why_early: None,
            completed: None,
            either: None,
        };
        ring.completion().disable_eventfd();
        let why = match ready.try_registering(ring) {
            Ok(()) if ready.is_late => return Ok(ready),
            Ok(()) => Feature::LateEventFd.missing(),
            Err(refused) => refused,
        };
        if was_taken(features, Feature::DeferTaskrun) {
            return Err(why);
        }
        (ready.is_late, ready.why_early) = (false, Some(why));
        Ok(ready)
    }

    /// Registers an event fd, and then no longer where that can be done again when somebody asks; else what was refused.
    fn try_registering(&mut self, ring: &IoUring) -> Result<(), String> {
        self.register(ring)
            .map_err(|errno| format!("an event fd cannot be registered: {errno}"))?;
        if self.is_late {
            let left = ring.submitter().unregister_eventfd();
            left.map_err(|error| format!("an event fd cannot be registered again: {}", Errno::of(&error)))?;
            self.completed = None;
        }
        Ok(())
    }

    fn register(&mut self, ring: &IoUring) -> Result<(), Errno> {
        let completed = baio_process::descriptor::event()?;
        let registered = ring.submitter().register_eventfd(completed.as_raw_fd());
        registered.map_err(|error| Errno::of(&error))?;
        self.completed = Some(completed);
        Ok(())
    }

    /// Makes what is still missing; how many system calls that took.
    pub(super) fn prepare(&mut self, ring: &IoUring, doorbell: &Doorbell) -> Result<u64, Errno> {
        if self.either.is_some() {
            return Ok(0);
        }
        if self.is_late && self.completed.is_none() {
            self.register(ring)?;
        }
        let either = baio_process::descriptor::epoll()?;
        // SAFETY: the ring is open as long as it is borrowed.
        let itself = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let completed = self.completed.as_ref().map_or(itself, AsFd::as_fd);
        for fd in [completed, doorbell.fd().as_fd()] {
            epoll::add(&either, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        self.either = Some(either);
        Ok(5)
    }

    /// From here on a completion makes the descriptor readable; how many system calls that took.
    pub(super) fn arm(&mut self, ring: &mut IoUring, streams: bool) -> Result<u64, Errno> {
        let mut calls = 0;
        if let Some(completed) = self.completed.as_ref().filter(|_| streams && self.is_late) {
            let submitter = ring.submitter();
            match submitter.unregister_eventfd().map_err(|error| Errno::of(&error)) {
                // The last arming came no further than to here.
                Ok(()) | Err(Errno::ENXIO) => {}
                Err(errno) => return Err(errno),
            }
            let renewed = submitter.register_eventfd(completed.as_raw_fd());
            renewed.map_err(|error| Errno::of(&error))?;
            calls = 2;
        }
        ring.completion().enable_eventfd();
        // The kernel says that there is work and then looks whether it shall signal; the turn that follows looks
        // whether there is work. Without a barrier both could miss the other's store.
        fence(Ordering::SeqCst);
        Ok(calls)
    }

    pub(super) fn disarm(&self, ring: &mut IoUring) {
        ring.completion().disable_eventfd();
        if let Some(completed) = &self.completed {
            let _ = rustix::io::read(completed, &mut [0; 8]);
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.either.as_ref().map(AsFd::as_fd)
    }

    /// For `explain`.
    pub(super) fn feature(&self) -> (&'static str, Result<(), String>) {
        let had = self.why_early.clone().map_or(Ok(()), Err);
        (Feature::LateEventFd.line().name, had)
    }
}
