//! Threads that sleep in io_getevents(2) of the kernel's: when their context goes over, they must sleep in the ring.
//!
//! The kernel lets them go when events are there. So who takes the context over makes some: reads of no bytes, which end in the call. Those
//! who wake drop these events, and go on in the ring.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::abi::{IoEvent, Iocb, command};
use crate::calls;
use crate::patience::pause;

/// How often they are called; a thread that a debugger has stopped does not come.
const CALLS_MAX: u32 = 500;
const PAUSE: Duration = Duration::from_micros(20);

#[derive(Default)]
pub(crate) struct Sleepers {
    asleep: AtomicU32,
    woken: AtomicBool,
}

// SeqCst everywhere: who takes the context over has closed it before it counts them, and they look whether it is closed before they are counted.
impl Sleepers {
    pub(crate) fn come(&self) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn asleep(&self) -> u32 {
        self.asleep.load(Ordering::SeqCst)
    }

    /// May there be events that were made to wake them?
    pub(crate) fn were_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// Lets all of them go; no more come meanwhile. Did they?
    pub(crate) fn all_leave(&self, mut wake: impl FnMut(u32) -> bool) -> bool {
        for _ in 0..CALLS_MAX {
            let asleep = self.asleep();
            if asleep == 0 {
                return true;
            }
            self.woken.store(true, Ordering::SeqCst);
            // There may be no room for more, until those who wake have taken them.
            let _ = wake(asleep);
            pause(PAUSE);
        }
        false
    }
}

/// By whose address such an event is known.
static WAKE: u8 = 0;

fn mark() -> u64 {
    std::ptr::from_ref(&WAKE).addr() as u64
}

/// Makes so many events that nobody has asked for, on any file of the program; how many there are.
pub(crate) fn wake(context: usize, fd: u32, wakes: u32) -> u64 {
    let mut request = Iocb {
        data: mark(),
        key: 0,
        rw_flags: 0,
        opcode: command::PREAD,
        priority: 0,
        fd,
        buffer: 0,
        bytes: 0,
        offset: 0,
        reserved: 0,
        flags: 0,
        event_fd: 0,
    };
    let mut list = [&raw mut request];
    // SAFETY: the request is there until the call returns, when it has ended; it reads nothing.
    let sends = (0..wakes).take_while(|_| unsafe { calls::submit(context, 1, list.as_mut_ptr()) } == 1);
    sends.count() as u64
}

/// Whatever became of it: the file may not be one that can be read so.
pub(crate) fn is_wake(event: &IoEvent) -> bool {
    event.data == mark()
}

/// Takes such events out of an array; how many are left.
///
/// # Safety
/// It holds so many.
pub(crate) unsafe fn without_wakes(events: *mut IoEvent, count: usize) -> usize {
    let mut kept = 0;
    for at in 0..count {
        // SAFETY: the caller's promise.
        let event = unsafe { events.add(at).read_unaligned() };
        if !is_wake(&event) {
            // SAFETY: as above; it moves to the front.
            unsafe { events.add(kept).write_unaligned(event) };
            kept += 1;
        }
    }
    kept
}
