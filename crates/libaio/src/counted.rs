//! What the program does, counted for `baio run` where it asks for that.

#![allow(unsafe_code)]

use std::collections::HashMap;

use baio_engine::shared::What;
use baio_shim::counters::{self, Library, Operation, Sheet};

use crate::abi::{IoEvent, Iocb, command};
use crate::live::KernelRing;

extern "C" fn at_load() {
    counters::load(Library::Libaio);
}

// SAFETY: the linker gathers what lies in this section, and the loader calls each as a function of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// Where to count, if anywhere.
pub(crate) fn sheet() -> Option<&'static Sheet> {
    counters::sheet(Library::Libaio)
}

/// Nanoseconds of a clock that only goes on; 0 where nothing is counted.
pub(crate) fn now() -> u64 {
    if sheet().is_none() {
        return 0;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// What a call is counted as.
pub(crate) fn operation(what: &What) -> Operation {
    match what {
        What::Read { .. } | What::ReadList { .. } => Operation::Read,
        What::Write { .. } | What::WriteList { .. } => Operation::Write,
        What::Sync { .. } => Operation::Sync,
        What::Poll { .. } => Operation::Poll,
    }
}

/// What a request is counted as.
pub(crate) fn operation_of(request: &Iocb) -> Operation {
    match request.opcode {
        command::PREAD | command::PREADV => Operation::Read,
        command::PWRITE | command::PWRITEV => Operation::Write,
        command::POLL => Operation::Poll,
        _ => Operation::Sync,
    }
}

/// Counts the end of one, where that is asked for. Requests that were `submitted` then or later have ended at once.
pub(crate) fn tell(operation: Operation, started: u64, event: &IoEvent, submitted: Option<u64>) {
    if let Some(sheet) = sheet() {
        let at_once = submitted.is_some_and(|submitted| started >= submitted);
        sheet.ended(operation, at_once, event.result < 0, now().saturating_sub(started));
    }
}

/// Counts what the kernel carries, whose events go past us: it follows the tail of the live ring, at each call.
#[derive(Default)]
pub(crate) struct Follower {
    /// The place of the next event.
    next: u32,
    /// By the request's address: what, and when it was submitted. The last call's moment.
    started: HashMap<u64, (Operation, u64)>,
    last: u64,
}

impl Follower {
    /// These requests are about to be handed to the kernel.
    pub(crate) fn submits(&mut self, sheet: &Sheet, ring: &KernelRing, requests: impl Iterator<Item = (usize, Iocb)>) {
        self.follow(sheet, ring, false);
        self.last = now();
        for (address, request) in requests {
            self.started.insert(address as u64, (operation_of(&request), self.last));
        }
    }

    /// Counts what has come since; at once, if it was submitted by the last call, which has just returned.
    pub(crate) fn follow(&mut self, sheet: &Sheet, ring: &KernelRing, returned: bool) {
        let (_, tail) = ring.ends();
        while self.next != tail && self.next < ring.nr() {
            let event = ring.event(self.next);
            self.next = (self.next + 1) % ring.nr();
            if let Some((operation, started)) = self.started.remove(&event.object) {
                let at_once = returned && started >= self.last;
                sheet.ended(operation, at_once, event.result < 0, now().saturating_sub(started));
            }
        }
    }
}
