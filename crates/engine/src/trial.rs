//! The trial: what the kernel's page cache can answer at once needs no backend.
//!
//! A kernel-cached read is first tried with `RWF_NOWAIT` (preadv2(2)) in the caller's thread: a hit costs one system call and
//! the copy, less than any way through a queue. A miss costs one call for nothing, so a file that misses again and again is
//! left alone for a while, twice as long each time. Direct reads and durable writes are never tried: `RWF_NOWAIT` does not
//! keep them from waiting for the device (measured: 50 of 50 cold direct reads waited). Buffered writes are not either:
//! ext4 refuses to try them.
//!
//! A file that is nothing but memory (tmpfs, ramfs, hugetlbfs) does not know the flag and needs none: a read of it is a copy, and
//! is done at once. Only tmpfs can make it wait, for what has been swapped out, as the caller's own memory can. Such a wait is
//! short: no more than the pages of one read, at most 64 KiB. It is seldom: a read that took longer than a copy can makes the
//! file rest as a miss does, so that of 33 reads in a row one at most waits in the caller's thread.

#![allow(unsafe_code)]

use std::time::Duration;

use crate::device::Kind;
use crate::file::Fared;
use crate::policy::Caching;
use crate::request::Op;
use crate::slot::Slot;
use crate::sys::{self, Iteration};

/// Longer reads would keep the caller copying: they go to the backend at once.
const BYTES_MAX: usize = 64 << 10;

/// Longer than it takes to copy so many bytes on any machine: the read has waited for its pages.
const COPIED_WITHIN: Duration = Duration::from_micros(200);

/// What came of a trial.
pub(crate) struct Tried {
    /// The raw result, negative when it missed.
    pub(crate) raw: i32,
    /// Of a file that is nothing but memory.
    pub(crate) in_memory: bool,
}

/// Tries the first iteration of a request. `None`: it was not tried.
pub(crate) fn attempt(slot: &mut Slot) -> Option<Tried> {
    if !is_candidate(slot) {
        return None;
    }
    let file = slot.file.as_ref()?;
    let (trials, in_memory) = (file.trials(), file.reads_are_copies());
    let mut fared = trials.get();
    let admitted = fared.admits();
    trials.set(fared);
    if !admitted {
        return None;
    }
    let iteration = slot.iteration(NO_BACKEND);
    // SAFETY: the slot owns the memory, and the call ends before anybody else can touch the slot.
    let raw = unsafe {
        if in_memory {
            copy(&iteration, &mut fared)
        } else {
            ask(&iteration, &mut fared)
        }
    };
    slot.file.as_ref()?.trials().set(fared);
    Some(Tried { raw, in_memory })
}

/// Reads what the page cache has.
///
/// # Safety
/// As for [`sys::execute`].
unsafe fn ask(iteration: &Iteration, fared: &mut Fared) -> i32 {
    // SAFETY: the caller's promise.
    let raw = unsafe { sys::try_read(iteration) };
    match raw {
        // The end of the file, or nothing in the cache: Linux 5.9 and 5.10 say 0 for either (preadv2(2), BUGS). A backend
        // can tell.
        0 => return -libc::EAGAIN,
        1.. => fared.hit(),
        _ if raw == -libc::EOPNOTSUPP => fared.refuse(),
        _ => fared.miss(),
    }
    raw
}

/// Reads what is in memory already.
///
/// # Safety
/// As for [`sys::execute`].
unsafe fn copy(iteration: &Iteration, fared: &mut Fared) -> i32 {
    let begun = sys::monotonic();
    // SAFETY: the caller's promise.
    let raw = unsafe { sys::execute(iteration) };
    if sys::monotonic().since(begun) > COPIED_WITHIN {
        fared.waited();
    } else {
        fared.hit();
    }
    raw
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
