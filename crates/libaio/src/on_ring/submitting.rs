//! `io_submit`: looks at requests, lets them in, and hands them to the ring, or to the kernel what it does in the call.

#![allow(unsafe_code)]

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baio_engine::Errno;
use baio_engine::shared::{Call, What};

use super::state::Carried;
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
        if count == 1 {
            // SAFETY: the caller's promise.
            return unsafe { self.submit_one(list, started) }.map(|()| 1);
        }
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

    /// The usual list has one request: it takes no memory.
    ///
    /// # Safety
    /// As for [`OnRing::submit`].
    unsafe fn submit_one(&self, list: *const *mut Iocb, started: u64) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let carried = match unsafe { self.admit(list, started) }? {
            Admitted::InCall(carried) => carried,
            Admitted::ToRing(request) => {
                let signals = request.event_fd.is_some();
                let call = self.state().requests.insert(request);
                // SAFETY: the caller's promise; lists are in the table.
                match unsafe { self.hand_over(&[call], signals, started) }.pop() {
                    None => return Ok(()),
                    Some(left) => carried_of(left, started),
                }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.in_call(list, vec![carried], started) }.map(|_| ())
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
            in_call.extend(left.into_iter().map(|request| carried_of(request, started)));
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
        let event_fd = self.event_fd_of(&iocb).inspect_err(|_| self.count_out(false))?;
        // SAFETY: the caller's promise.
        let admitted = unsafe { self.prepare(object, &iocb, event_fd, started) };
        if admitted.event_fd().is_some() {
            self.signalling.fetch_add(1, Ordering::SeqCst);
        }
        Ok(admitted)
    }

    /// A duplicate of the event fd that a request names. None if it names none, or one with which something is wrong: the kernel says it.
    ///
    /// # Errors
    /// `EAGAIN` without room for a duplicate. The kernel would do without, and signal before the event is where the program looks: who
    /// looks then, and finds nothing, may sleep for ever.
    fn event_fd_of(&self, iocb: &Iocb) -> Result<Option<Arc<OwnedFd>>, Errno> {
        if iocb.flags & FLAG_EVENT_FD == 0 {
            return Ok(None);
        }
        match locked(&self.event_fds).of(iocb.event_fd) {
            Err(Errno::EAGAIN) => Err(Errno::EAGAIN),
            told => Ok(told.ok()),
        }
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
    unsafe fn prepare(&self, object: *mut Iocb, iocb: &Iocb, event_fd: Option<Arc<OwnedFd>>, started: u64) -> Admitted {
        let signals = iocb.flags & FLAG_EVENT_FD != 0;
        // What is wrong with it, the kernel says.
        let to_ring = match self.kinds.route(iocb) {
            _ if self.broken.load(Ordering::Relaxed) || signals != event_fd.is_some() => None,
            Route::InCall => None,
            // SAFETY: the caller's promise.
            Route::ToRing(open) => unsafe { check::request(iocb, open) }.ok(),
        };
        let to_ring = to_ring.and_then(|checked| match checked.what {
            // A worker looks for its file by the number, and may come late. What is kept stays open longer than it must (`give_back`).
            What::Sync { .. } if !self.ring.takes_files_at_once() => {
                self.ring.keep(iocb.fd as RawFd).map(|kept| (checked, Some(kept)))
            }
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
                stray: None,
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
        let mut state = self.state();
        let calls: Vec<Call> = good.into_iter().map(|request| state.requests.insert(request)).collect();
        drop(state);
        // SAFETY: the caller's promise; lists are in the table.
        unsafe { self.hand_over(&calls, signals, started) }
    }

    /// Hands what is in the table to the ring; takes those out again, and gives them back, that it did not take.
    ///
    /// # Safety
    /// As for [`OnRing::submit`].
    unsafe fn hand_over(&self, calls: &[Call], signals: bool, started: u64) -> Vec<Request> {
        // SAFETY: the caller's promise.
        let told = unsafe { self.ring.submit(calls) };
        let went = told.map_or_else(|(taken, _)| taken, |()| calls.len());
        if told.is_err() {
            self.broken.store(true, Ordering::Relaxed);
        }
        self.cancel_what_was_cancelled(calls);
        let mut state = self.state();
        let left = state.requests.forget(&calls[went..]);
        let looked = self.look_at(&mut state, Some(started));
        if self.in_flight() > 0 {
            state.requests.know_files(calls);
        }
        drop(state);
        self.settle(looked);
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
        let state = self.state();
        for call in calls {
            if state.requests.is_cancelled(call.name) {
                let _ = self.ring.cancel(call.name);
            }
        }
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

/// One that the ring did not take, for the kernel to do.
fn carried_of(request: Request, started: u64) -> Carried {
    Carried {
        object: request.object,
        operation: counted::operation(&request.call.what),
        event_fd: request.event_fd,
        started,
        stray: None,
        hidden_by: 0,
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

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;
    use std::os::fd::AsRawFd;

    use super::super::LOCKS;
    use super::*;
    use crate::abi::{IoEvent, command};
    use crate::calls;
    use crate::wait::Limit;

    thread_local! {
        static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
    }

    struct Counting;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    // SAFETY: the system's allocator does it all.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
            // SAFETY: the caller's promise.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[test]
    fn one_request_takes_the_lock_twice_and_no_memory() {
        let mut address = 0;
        // SAFETY: the one context is ours.
        assert_eq!(unsafe { calls::setup(8, &raw mut address) }, 0);
        // SAFETY: nothing is in flight there.
        let Ok(ring) = (unsafe { OnRing::over(address, 8) }) else {
            eprintln!("SKIPPED: submitting: needs io_uring");
            return;
        };
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let mut bytes = [1_u8; 512];
        let mut read = Iocb {
            data: 7,
            key: 0,
            rw_flags: 0,
            opcode: command::PREAD,
            priority: 0,
            fd: file.as_raw_fd() as u32,
            buffer: bytes.as_mut_ptr().expose_provenance() as u64,
            bytes: 512,
            offset: 0,
            reserved: 0,
            flags: 0,
            event_fd: 0,
        };
        let list = [&raw mut read];
        let mut event = IoEvent::default();
        // The first makes the table, the helper, and learns what the file and the pages are.
        for first in [true, false, false] {
            let before = (LOCKS.get(), ALLOCATIONS.get());
            // SAFETY: all of it is here until the event is.
            assert_eq!(unsafe { ring.submit(1, list.as_ptr()) }, Ok(1));
            let taken = (LOCKS.get() - before.0, ALLOCATIONS.get() - before.1);
            if !first {
                assert_eq!(taken, (2, 0));
            }
            // SAFETY: there is room for one.
            let got = unsafe { ring.get_events(1, 1, &raw mut event, Limit::Ever, None) };
            assert_eq!((got, event.data, event.result), (Ok(1), 7, 512));
        }
        assert_eq!(bytes, [0; 512]);
        ring.end(|| true);
        calls::destroy(address);
    }
}
