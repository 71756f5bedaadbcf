//! `io_submit`: looks at requests, lets them in, and hands them to the kernel.

#![allow(unsafe_code)]

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baio_engine::Errno;
use baio_engine::shared::{Call, What};

use super::{Context, locked};
use crate::abi::{FLAG_EVENT_FD, Iocb};
use crate::check::{self, Checked, Looked};
use crate::counted;
use crate::requests::{Request, Trial};

impl Context {
    /// `io_submit`: how many were taken, or what is wrong with the first.
    ///
    /// # Safety
    /// The list and the requests can be read and written, and what the requests name is theirs until their events are there.
    pub(crate) unsafe fn submit(&self, count: i64, list: *const *mut Iocb) -> Result<u32, Errno> {
        let count = u64::try_from(count).map_err(|_| Errno::EINVAL)?;
        let count = count.min(u64::from(self.live.nr())) as usize;
        if self.is_dead() {
            return Err(Errno::EINVAL);
        }
        let started = counted::now();
        if count == 1 {
            // SAFETY: the caller's promise.
            return unsafe { self.submit_one(list, started) };
        }
        let mut good = Vec::with_capacity(count);
        let mut looked = Looked::default();
        let mut refused = None;
        for at in 0..count {
            // SAFETY: the caller's promise.
            match unsafe { self.admit(list.wrapping_add(at), Some(&mut looked)) } {
                Ok(mut request) => {
                    request.started = started;
                    good.push(request);
                }
                Err(errno) => {
                    refused = Some(errno);
                    break;
                }
            }
        }
        let taken = good.len() as u32;
        if taken > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.start(good, started) }?;
        }
        match refused {
            Some(errno) if taken == 0 => Err(errno),
            _ => Ok(taken),
        }
    }

    /// A request alone. Nothing stands behind it, so the kernel may look at the descriptor when it takes the call: its word comes before
    /// `io_submit` returns.
    ///
    /// # Safety
    /// As for [`Context::submit`].
    unsafe fn submit_one(&self, list: *const *mut Iocb, started: u64) -> Result<u32, Errno> {
        // Where somebody waits, results are theirs to move, and it is cheaper to ask than to take them away.
        let somebody_waits = locked(&self.arrivals).waiters > 0;
        let mut looked = somebody_waits.then(Looked::default);
        // SAFETY: the caller's promise.
        let mut request = unsafe { self.admit(list, looked.as_mut()) }?;
        request.started = started;
        let (signals, on_trial) = (request.event_fd.is_some(), request.trial == Trial::On);
        if signals {
            self.signalling.fetch_add(1, Ordering::SeqCst);
        }
        let Some(call) = locked(&self.requests).insert(request, |fd| self.ring.keep(fd)) else {
            self.look(None);
            self.keep_watch(signals);
            return Ok(1);
        };
        // SAFETY: the caller's promise; a list is in the table.
        unsafe { self.hand_over(&[call], signals, started, on_trial) }?;
        if on_trial {
            let refused = locked(&self.requests).end_trial(call.name);
            if let Some((errno, request)) = refused {
                self.count_out(request.event_fd.is_some());
                // Another may wait for it.
                if self.look(None).is_none() {
                    self.look_beside_waiters(started);
                }
                return Err(errno);
            }
        }
        Ok(1)
    }

    /// Looks at one request, and lets it in. Without `looked` the kernel may look at the descriptor.
    ///
    /// # Safety
    /// As for [`Context::submit`].
    unsafe fn admit(&self, place: *const *mut Iocb, looked: Option<&mut Looked>) -> Result<Request, Errno> {
        if place.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: the caller's promise.
        let object = unsafe { place.read_unaligned() };
        if object.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: the caller's promise.
        let iocb = unsafe { object.read_unaligned() };
        check::numbers(&iocb)?;
        self.let_in()?;
        // SAFETY: the caller's promise.
        let admitted = unsafe { self.prepare(object, &iocb, looked) };
        if admitted.is_err() {
            self.count_out(false);
        }
        admitted
    }

    /// # Safety
    /// As for [`Context::submit`].
    unsafe fn prepare(&self, object: *mut Iocb, iocb: &Iocb, looked: Option<&mut Looked>) -> Result<Request, Errno> {
        let fd = iocb.fd as RawFd;
        if looked.is_none() && check::is_transfer(iocb) {
            let event_fd = match iocb.flags & FLAG_EVENT_FD {
                0 => Ok(None),
                _ => locked(&self.event_fds).of(iocb.event_fd).map(Some),
            };
            // SAFETY: the caller's promise. What is wrong with anything but the descriptor is told in order, below.
            if let (Ok(event_fd), Ok(checked)) = (event_fd, unsafe { check::request(iocb, libc::O_RDWR) }) {
                // SAFETY: as below.
                unsafe { (&raw mut (*object).key).write_unaligned(0) };
                return Ok(made(object, iocb, checked, event_fd, Trial::On));
            }
        }
        let mut own = Looked::default();
        let (open, file) = looked.unwrap_or(&mut own).at(fd)?;
        let event_fd = match iocb.flags & FLAG_EVENT_FD {
            0 => None,
            _ => Some(locked(&self.event_fds).of(iocb.event_fd)?),
        };
        // SAFETY: the caller's promise; the kernel writes it too.
        unsafe { (&raw mut (*object).key).write_unaligned(0) };
        // SAFETY: the caller's promise.
        let checked = unsafe { check::request(iocb, open) }?;
        let mut request = made(object, iocb, checked, event_fd, Trial::Over);
        request.file = Some(file);
        Ok(request)
    }

    /// Counts a request in, if its event will find room in any case.
    fn let_in(&self) -> Result<(), Errno> {
        let mut now = self.counts.load(Ordering::SeqCst);
        // An event is counted twice for a moment, and never not at all: it is published before its request is counted out, which moves
        // the word. So no event has come since they were counted, where the word is still the same.
        while now as u32 + self.live.len() < self.capacity {
            let counted = self
                .counts
                .compare_exchange_weak(now, now + 1, Ordering::SeqCst, Ordering::SeqCst);
            match counted {
                Ok(_) => return Ok(()),
                Err(other) => now = other,
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Hands requests to the kernel.
    ///
    /// # Safety
    /// As for [`Context::submit`].
    unsafe fn start(&self, good: Vec<Request>, started: u64) -> Result<(), Errno> {
        let signalling = good.iter().filter(|request| request.event_fd.is_some()).count() as u32;
        if signalling > 0 {
            self.signalling.fetch_add(signalling, Ordering::SeqCst);
        }
        let mut requests = locked(&self.requests);
        let calls: Vec<Call> = good
            .into_iter()
            .filter_map(|request| requests.insert(request, |fd| self.ring.keep(fd)))
            .collect();
        drop(requests);
        // SAFETY: the caller's promise; lists are in the table.
        unsafe { self.hand_over(&calls, signalling > 0, started, false) }
    }

    /// # Safety
    /// As for [`Context::submit`].
    unsafe fn hand_over(&self, calls: &[Call], signals: bool, started: u64, on_trial: bool) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let told = unsafe { self.ring.submit(calls) };
        if let Err((taken, errno)) = told {
            self.forget(&calls[taken..]);
            if taken == 0 {
                return Err(errno);
            }
        }
        self.cancel_what_was_cancelled(calls);
        if self.look(Some(started)).is_none() && on_trial {
            self.look_beside_waiters(started);
        }
        self.keep_watch(signals);
        Ok(())
    }

    /// What the kernel says of a descriptor must not be left to those who wait, who would make an event of it. What else has arrived they
    /// are told of.
    fn look_beside_waiters(&self, started: u64) {
        let arrivals = locked(&self.arrivals);
        let after = self.gather(Some(started));
        let gathering = arrivals.gathering;
        drop(arrivals);
        let moved = after.moved;
        self.finish(after);
        if moved > 0 {
            let _ = self.ring.wake(gathering.max(1));
        }
    }

    /// Somebody else must move what is in flight still, if the program calls nothing.
    fn keep_watch(&self, signals: bool) {
        if self.in_flight() > 0 {
            self.helper.be_there(&self.me, self.signalling() > 0);
        } else if signals {
            // It gives the event fd back.
            self.helper.exist(&self.me);
        }
    }

    /// Polls that were cancelled before the kernel had them, or had them again: it did not know what to cancel.
    pub(super) fn cancel_what_was_cancelled(&self, calls: &[Call]) {
        if !calls.iter().any(|call| matches!(call.what, What::Poll { .. })) {
            return;
        }
        let requests = locked(&self.requests);
        for call in calls {
            if requests.is_cancelled(call.name) {
                let _ = self.ring.cancel(call.name);
            }
        }
    }

    /// Calls that the kernel will never see.
    pub(super) fn forget(&self, calls: &[Call]) {
        let mut requests = locked(&self.requests);
        for call in calls {
            if let Some(request) = requests.remove(call.name) {
                request.call.kept.into_iter().for_each(|kept| self.ring.give_back(kept));
                self.count_out(request.event_fd.is_some());
            }
        }
    }

    pub(super) fn count_out(&self, signalled: bool) {
        if signalled {
            self.signalling.fetch_sub(1, Ordering::SeqCst);
        }
        // One out of the low half, and one on in the high half.
        self.counts.fetch_add((1 << 32) - 1, Ordering::SeqCst);
    }
}

fn made(object: *mut Iocb, iocb: &Iocb, checked: Checked, event_fd: Option<Arc<OwnedFd>>, trial: Trial) -> Request {
    let call = Call {
        what: checked.what,
        fd: iocb.fd as RawFd,
        kept: None,
        priority: checked.priority,
        name: 0,
    };
    Request {
        data: iocb.data,
        object,
        call,
        file: None,
        list: checked.list,
        done: 0,
        event_fd,
        again: 0,
        cancelled: false,
        trial,
        sequence: 0,
        started: 0,
    }
}
