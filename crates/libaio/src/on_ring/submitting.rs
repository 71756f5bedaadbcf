//! `io_submit`: looks at requests, lets them in, and hands them to the ring, or to the kernel what it does in the call.

#![allow(unsafe_code)]

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baio_engine::Errno;
use baio_engine::shared::{Call, What};

use super::in_kernel::Carried;
use super::{OnRing, locked};
use crate::abi::{FLAG_EVENT_FD, Iocb};
use crate::check::{self, Checked, Route};
use crate::cold::passed;
use crate::counted;
use crate::requests::Request;

/// A request that was let in.
enum Admitted {
    ToRing(Request),
    InCall(Carried),
}

impl OnRing {
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
        let (mut to_ring, mut in_call) = (Vec::new(), Vec::new());
        let mut taken = 0;
        let mut refused = None;
        for at in 0..count {
            // SAFETY: the caller's promise.
            let admitted = unsafe { self.admit(list.wrapping_add(at), started) };
            // In their order: what is of the other kind goes off first.
            let goes_off = match &admitted {
                Ok(Admitted::ToRing(_)) => !in_call.is_empty(),
                Ok(Admitted::InCall(_)) => !to_ring.is_empty(),
                Err(_) => true,
            };
            if goes_off {
                // SAFETY: the caller's promise.
                match unsafe { self.go_off(list, &mut taken, &mut to_ring, &mut in_call, started) } {
                    Ok(()) => {}
                    Err(errno) => {
                        if let Ok(late) = admitted {
                            self.let_go(&late);
                        }
                        refused = Some(errno);
                        break;
                    }
                }
            }
            match admitted {
                Ok(Admitted::ToRing(request)) => to_ring.push(request),
                Ok(Admitted::InCall(carried)) => in_call.push(carried),
                Err(errno) => {
                    refused = Some(errno);
                    break;
                }
            }
        }
        if refused.is_none() {
            // SAFETY: the caller's promise.
            refused = unsafe { self.go_off(list, &mut taken, &mut to_ring, &mut in_call, started) }.err();
        }
        match refused {
            Some(errno) if taken == 0 => Err(errno),
            _ => Ok(taken as u32),
        }
    }

    /// Sends off what was gathered: it begins in the list behind what was taken. Only one of the two has any.
    ///
    /// # Safety
    /// As for [`OnRing::submit`].
    unsafe fn go_off(
        &self,
        list: *const *mut Iocb,
        taken: &mut usize,
        to_ring: &mut Vec<Request>,
        in_call: &mut Vec<Carried>,
        started: u64,
    ) -> Result<(), Errno> {
        let requests = std::mem::take(to_ring);
        if !requests.is_empty() {
            let count = requests.len();
            // SAFETY: the caller's promise.
            let left = unsafe { self.start(requests, started) };
            *taken += count - left.len();
            in_call.extend(left.into_iter().map(|request| Carried {
                object: request.object,
                operation: counted::operation(&request.call.what),
                event_fd: request.event_fd,
                started,
                stray: false,
                hidden_by: 0,
            }));
        }
        let row = std::mem::take(in_call);
        if !row.is_empty() {
            let count = row.len();
            // SAFETY: the caller's promise.
            let went = unsafe { self.in_call(list.wrapping_add(*taken), row, started) }?;
            *taken += went;
            if went < count {
                // What is wrong with the next is told when it is the first.
                return Err(Errno::EAGAIN);
            }
        }
        Ok(())
    }

    /// Looks at one request, and lets it in.
    ///
    /// # Safety
    /// As for [`OnRing::submit`].
    unsafe fn admit(&self, place: *const *mut Iocb, started: u64) -> Result<Admitted, Errno> {
        // SAFETY: an address is any bytes, and so is a request.
        let object: *mut Iocb = unsafe { self.read(place.addr()) }?;
        // SAFETY: as above.
        let iocb: Iocb = unsafe { self.read(object.addr()) }?;
        check::numbers(&iocb)?;
        self.let_in()?;
        // SAFETY: the caller's promise.
        let admitted = unsafe { self.prepare(object, &iocb, started) };
        if admitted.event_fd().is_some() {
            self.signalling.fetch_add(1, Ordering::SeqCst);
        }
        Ok(admitted)
    }

    /// What lies there. The kernel is asked for a page that was never read before; a program that takes one away again and passes it is on its own.
    ///
    /// # Safety
    /// Any bytes are a valid `T`.
    unsafe fn read<T: Copy>(&self, address: usize) -> Result<T, Errno> {
        let page = rustix::param::page_size();
        let (first, last) = (address / page, address.wrapping_add(size_of::<T>() - 1) / page);
        let place = &self.known_pages[first % self.known_pages.len()];
        if first == last && first > 0 && place.load(Ordering::Relaxed) == first {
            // SAFETY: it was there; see above.
            return Ok(unsafe { std::ptr::with_exposed_provenance::<T>(address).read_unaligned() });
        }
        // SAFETY: the caller's promise.
        let copy = unsafe { passed(address, 1) }?.pop().ok_or(Errno::EFAULT)?;
        place.store(first, Ordering::Relaxed);
        Ok(copy)
    }

    /// # Safety
    /// As for [`OnRing::submit`].
    unsafe fn prepare(&self, object: *mut Iocb, iocb: &Iocb, started: u64) -> Admitted {
        let signals = iocb.flags & FLAG_EVENT_FD != 0;
        let event_fd = signals
            .then(|| locked(&self.event_fds).of(iocb.event_fd).ok())
            .flatten();
        // What is wrong with it, the kernel says.
        let to_ring = match self.kinds.route(iocb) {
            _ if self.broken.load(Ordering::Relaxed) || signals != event_fd.is_some() => None,
            Route::InCall => None,
            // SAFETY: the caller's promise.
            Route::ToRing(open) => unsafe { check::request(iocb, open) }.ok(),
        };
        let to_ring = to_ring.and_then(|checked| match checked.what {
            // A worker looks for its file by the number, and may come late.
            What::Sync { .. } => self.ring.keep(iocb.fd as RawFd).map(|kept| (checked, Some(kept))),
            _ => Some((checked, None)),
        });
        match to_ring {
            Some((checked, kept)) => {
                // SAFETY: the caller's promise; the kernel writes it too.
                unsafe { (&raw mut (*object).key).write_unaligned(0) };
                let mut request = made(object, iocb, checked, event_fd, started);
                request.call.kept = kept;
                Admitted::ToRing(request)
            }
            None => Admitted::InCall(Carried {
                object,
                operation: counted::operation_of(iocb),
                event_fd,
                started,
                stray: false,
                hidden_by: 0,
            }),
        }
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

    /// Hands requests to the ring; gives those back that it did not take, since it is broken.
    ///
    /// # Safety
    /// As for [`OnRing::submit`].
    unsafe fn start(&self, good: Vec<Request>, started: u64) -> Vec<Request> {
        let signals = good.iter().any(|request| request.event_fd.is_some());
        let mut requests = locked(&self.requests);
        let calls: Vec<Call> = good.into_iter().map(|request| requests.insert(request)).collect();
        drop(requests);
        // SAFETY: the caller's promise; lists are in the table.
        let told = unsafe { self.ring.submit(&calls) };
        let went = told.map_or_else(|(taken, _)| taken, |()| calls.len());
        let left = self.forget(&calls[went..]);
        if told.is_err() {
            self.broken.store(true, Ordering::Relaxed);
        }
        self.cancel_what_was_cancelled(&calls);
        self.look(Some(started));
        if self.in_flight() > 0 {
            locked(&self.requests).know_files(&calls);
        }
        self.keep_watch(signals);
        left
    }

    /// Somebody else must move what is in flight still, if the program calls nothing.
    pub(super) fn keep_watch(&self, signals: bool) {
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

    /// Takes calls out that the ring will never see.
    pub(super) fn forget(&self, calls: &[Call]) -> Vec<Request> {
        let mut requests = locked(&self.requests);
        calls.iter().filter_map(|call| requests.remove(call.name)).collect()
    }

    /// One that was let in, and goes nowhere.
    fn let_go(&self, admitted: &Admitted) {
        if let Admitted::ToRing(Request {
            call: Call { kept: Some(kept), .. },
            ..
        }) = admitted
        {
            self.ring.give_back(*kept);
        }
        self.count_out(admitted.event_fd().is_some());
    }

    pub(super) fn count_out(&self, signalled: bool) {
        if signalled {
            self.signalling.fetch_sub(1, Ordering::SeqCst);
        }
        // One out of the low half, and one on in the high half.
        self.counts.fetch_add((1 << 32) - 1, Ordering::SeqCst);
    }
}

impl Admitted {
    fn event_fd(&self) -> Option<&Arc<OwnedFd>> {
        match self {
            Admitted::ToRing(request) => request.event_fd.as_ref(),
            Admitted::InCall(carried) => carried.event_fd.as_ref(),
        }
    }
}

fn made(object: *mut Iocb, iocb: &Iocb, checked: Checked, event_fd: Option<Arc<OwnedFd>>, started: u64) -> Request {
    let call = Call {
        what: checked.what,
        fd: iocb.fd as RawFd,
        kept: None,
        beside: false,
        priority: checked.priority,
        name: 0,
    };
    Request {
        data: iocb.data,
        object,
        call,
        file: None,
        list: checked.list,
        event_fd,
        again: 0,
        cancelled: false,
        sequence: 0,
        started,
    }
}
