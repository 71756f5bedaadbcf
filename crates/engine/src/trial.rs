//! The trial: what the kernel's page cache can answer at once needs no backend.
//!
//! A kernel-cached read is first tried with `RWF_NOWAIT` (preadv2(2)) in the caller's thread: a hit costs one system call and
//! the copy, less than any way through a queue. A miss costs one call for nothing, so a file that misses again and again is
//! left alone for a while, twice as long each time. Direct reads and durable writes are never tried: `RWF_NOWAIT` does not
//! keep them from waiting for the device (measured: 50 of 50 cold direct reads waited). Buffered writes are not either:
//! ext4 refuses to try them.

#![allow(unsafe_code)]

use crate::device::Kind;
use crate::policy::Caching;
use crate::request::Op;
use crate::slot::Slot;
use crate::sys;

/// Longer reads would keep the caller copying: they go to the backend at once.
const BYTES_MAX: usize = 64 << 10;

/// Tries the first iteration of a request. `None`: it was not tried; else the raw result, negative when it missed.
pub(crate) fn attempt(slot: &mut Slot) -> Option<i32> {
    if !is_candidate(slot) {
        return None;
    }
    let trials = slot.file.as_ref()?.trials();
    let mut fared = trials.get();
    let admitted = fared.admits();
    trials.set(fared);
    if !admitted {
        return None;
    }
    let iteration = slot.iteration(NO_BACKEND);
    // SAFETY: the slot owns the memory, and the call ends before anybody else can touch the slot.
    let raw = unsafe { sys::try_read(&iteration) };
    if raw == 0 {
        // The end of the file, or nothing in the cache: Linux 5.9 and 5.10 say 0 for either (preadv2(2), BUGS). A backend
        // can tell.
        return Some(-libc::EAGAIN);
    }
    match raw {
        1.. => fared.hit(),
        _ if raw == -libc::EOPNOTSUPP => fared.refuse(),
        _ => fared.miss(),
    }
    slot.file.as_ref()?.trials().set(fared);
    Some(raw)
}

/// The mark of no backend: the iteration names a descriptor, not a registered file.
const NO_BACKEND: u64 = 0;

/// Is this a read that the page cache may answer?
fn is_candidate(slot: &Slot) -> bool {
    matches!(slot.op, Op::Read { offset: Some(_) })
        && slot.policy.caching == Caching::Kernel
        && slot.iterations == 0
        && slot.may_wait()
        && slot.memory.len() <= BYTES_MAX
        && slot.file.as_ref().is_some_and(|file| file.kind() != Kind::Foreign)
}
