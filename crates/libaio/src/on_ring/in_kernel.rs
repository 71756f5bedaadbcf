//! What the kernel does in the call, handed to the context of its own that lies under ours: its events are moved into our live ring.
//!
//! A request may name an event fd, which the kernel would signal before the event is where the program looks. So it is taken out of the
//! request while the kernel copies it, and signalled here. Who finds the event first puts it back: from then on the request is the program's,
//! though the call that has submitted it may go on.

#![allow(unsafe_code)]

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Instant;

use baio_engine::Errno;

use super::OnRing;
use super::state::{After, Carried, State};
use crate::abi::{FLAG_EVENT_FD, IoEvent, Iocb};
use crate::{calls, counted};

/// Events that are moved at a time.
const EVENTS: usize = 16;

// SAFETY: the pointer is compared; and used while the call that has submitted the request goes on, by one thread at a time, under the lock.
unsafe impl Send for Carried {}

impl Carried {
    /// Takes the event fd out of the request.
    ///
    /// # Safety
    /// The request is the library's.
    unsafe fn hide(&mut self, row: u64) {
        if self.event_fd.is_some() {
            // SAFETY: the caller's promise.
            unsafe { (*self.object).flags &= !FLAG_EVENT_FD };
            self.hidden_by = row;
        }
    }

    /// Puts it back.
    ///
    /// # Safety
    /// If it is hidden, the request is still the library's.
    unsafe fn show(&mut self) {
        if std::mem::take(&mut self.hidden_by) > 0 {
            // SAFETY: the caller's promise.
            unsafe { (*self.object).flags |= FLAG_EVENT_FD };
        }
    }
}

/// Takes what is there.
fn take_events(address: usize, events: &mut [IoEvent; EVENTS]) -> usize {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for so many.
    let told = unsafe { calls::get_events(address, 0, EVENTS as i64, events.as_mut_ptr(), &raw mut now) };
    usize::try_from(told).unwrap_or(0).min(EVENTS)
}

pub(super) fn drop_events(address: usize) {
    while take_events(address, &mut [IoEvent::default(); EVENTS]) > 0 {}
}

impl OnRing {
    /// Has the kernel do a row of requests, which lie one behind the other in the program's list; says how many it took.
    ///
    /// # Safety
    /// As for [`OnRing::submit`]; all of them are counted in.
    pub(super) unsafe fn in_call(
        &self,
        list: *const *mut Iocb,
        row: Vec<Carried>,
        started: u64,
    ) -> Result<usize, Errno> {
        let count = row.len();
        let objects: Vec<(*mut Iocb, bool)> = row.iter().map(|it| (it.object, it.event_fd.is_some())).collect();
        let number = self.rows.fetch_add(1, Ordering::Relaxed) + 1;
        self.state().carried.extend(row.into_iter().map(|mut it| {
            // SAFETY: the caller's promise: a request is the library's from `io_submit` on.
            unsafe { it.hide(number) };
            it
        }));
        // SAFETY: the caller's promise.
        let told = unsafe { calls::submit(self.address, count as i64, list.cast_mut()) };
        // Only what is there still: another thread may have handed out the rest, which is the program's, or another row's, by now.
        let mut state = self.state();
        for it in state.carried.iter_mut().filter(|it| it.hidden_by == number) {
            // SAFETY: nobody has its event, and the call goes on.
            unsafe { it.show() };
        }
        let taken = usize::try_from(told).unwrap_or(0).min(count);
        for &(object, _) in &objects[taken..] {
            if let Some(refused) = state.carries(object) {
                self.count_out(refused.event_fd.is_some());
            }
        }
        if taken > 0 {
            self.move_events_of(state, &objects[..taken], started);
        }
        if taken == 0 {
            Err(Errno::from_raw(-told))
        } else {
            Ok(taken)
        }
    }

    fn move_events_of(&self, mut state: MutexGuard<'_, State>, objects: &[(*mut Iocb, bool)], started: u64) {
        let mut after = After::default();
        self.move_events(&mut state, Some(started), &mut after);
        let mut strays = 0;
        for it in &mut state.carried {
            if objects.iter().any(|(object, _)| std::ptr::eq(*object, it.object)) {
                it.stray.get_or_insert_with(Instant::now);
            }
            strays += usize::from(it.stray.is_some());
        }
        let (waiters, gathering) = (state.waiters, state.gathering);
        drop(state);
        self.finish(after);
        if waiters > 0 {
            // They take what is there, or look for strays from time to time.
            let _ = self.ring.wake(gathering.max(1));
        }
        if strays > 0 {
            self.helper.be_there(&self.me, true);
        } else if objects.iter().any(|(_, signals)| *signals) {
            self.keep_watch(true);
        }
    }

    /// Moves what the kernel has ended into the live ring.
    pub(super) fn move_events(&self, state: &mut State, submitted: Option<u64>, after: &mut After) {
        loop {
            let mut events = [IoEvent::default(); EVENTS];
            let count = take_events(self.address, &mut events);
            for event in &events[..count] {
                let Some(carried) = state.carries(std::ptr::with_exposed_provenance_mut(event.object as usize)) else {
                    continue;
                };
                counted::tell(carried.operation, carried.started, event, submitted);
                after.moved += 1;
                self.live.publish(*event);
                self.count_out(carried.event_fd.is_some());
                if let Some(event_fd) = carried.event_fd {
                    after.signals.add(event_fd);
                }
            }
            if count < EVENTS {
                return;
            }
        }
    }
}

impl State {
    /// Takes the request at this address out of those that the kernel carries.
    fn carries(&mut self, object: *mut Iocb) -> Option<Carried> {
        let at = self.carried.iter().position(|it| std::ptr::eq(it.object, object))?;
        let mut it = self.carried.swap_remove(at);
        // SAFETY: its event has not been handed out, and while its flag is hidden the call goes on.
        unsafe { it.show() };
        Some(it)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use baio_shim::counters::Operation;

    use super::*;
    use crate::abi::command;

    #[test]
    fn a_context_that_is_gone_takes_no_events_of_the_next_at_its_address() {
        let mut address = 0;
        // SAFETY: the one context is ours.
        assert_eq!(unsafe { calls::setup(8, &raw mut address) }, 0);
        // SAFETY: nothing is in flight there.
        let Ok(ring) = (unsafe { OnRing::over(address, 8) }) else {
            eprintln!("SKIPPED: in_kernel: needs io_uring");
            return;
        };
        let never_ended = std::ptr::without_provenance_mut(64);
        ring.state().carried.push(Carried {
            object: never_ended,
            operation: Operation::Read,
            event_fd: None,
            started: 0,
            stray: Some(Instant::now()),
            hidden_by: 0,
        });
        ring.end(|| true);
        let file = tempfile::tempfile().unwrap();
        let mut write = Iocb {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: command::PWRITE,
            priority: 0,
            fd: file.as_raw_fd() as u32,
            buffer: b"next".as_ptr().expose_provenance() as u64,
            bytes: 4,
            offset: 0,
            reserved: 0,
            flags: 0,
            event_fd: 0,
        };
        let mut list = [&raw mut write];
        // SAFETY: the request ends in the call. The kernel knows its next context by the same address.
        assert_eq!(unsafe { calls::submit(address, 1, list.as_mut_ptr()) }, 1);
        // As the helper does, which may look once more.
        ring.look(None);
        assert_eq!(take_events(address, &mut [IoEvent::default(); EVENTS]), 1);
        calls::destroy(address);
    }
}
