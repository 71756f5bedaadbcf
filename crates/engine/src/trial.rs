//! The trial: what the kernel's page cache can answer at once needs no backend.
//!
//! A kernel-cached read is first tried with `RWF_NOWAIT` (preadv2(2)) in the caller's thread: a hit costs one system call and
//! the copy, less than any way through a queue. A miss costs one call for nothing, so a file that misses again and again is
//! left alone for a while, twice as long each time. Direct reads and durable writes are never tried: `RWF_NOWAIT` does not
//! keep them from waiting for the device (measured: 50 of 50 cold direct reads waited). Buffered writes are not either:
//! ext4 refuses to try them.

#![allow(unsafe_code)]

use crate::file::Kind;
use crate::policy::Caching;
use crate::request::Op;
use crate::slot::Slot;
use crate::sys;

/// Longer reads would keep the caller copying: they go to the backend at once.
const BYTES_MAX: usize = 64 << 10;

/// So many misses in a row, and trying stops for a while.
const PATIENCE: u32 = 8;

/// Requests that are not tried the first time, and at most.
const REST: u32 = 32;
const REST_MAX: u32 = 4096;

/// How trying has worked on one file so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record {
    misses: u32,
    resting: u32,
    last_rest: u32,
    /// The file does not know `RWF_NOWAIT`.
    refused: bool,
}

impl Record {
    /// Shall the next read be tried? Counts down the rest when not.
    fn admits(&mut self) -> bool {
        if self.refused {
            return false;
        }
        let rested = self.resting == 0;
        self.resting = self.resting.saturating_sub(1);
        rested
    }

    fn hit(&mut self) {
        *self = Record::default();
    }

    fn miss(&mut self) {
        self.misses += 1;
        if self.misses >= PATIENCE || self.last_rest > 0 {
            self.last_rest = (self.last_rest * 2).clamp(REST, REST_MAX);
            self.resting = self.last_rest;
            self.misses = 0;
        }
    }
}

/// Tries the first iteration of a request. `None`: it was not tried; else the raw result, negative when it missed.
pub(crate) fn attempt(slot: &mut Slot) -> Option<i32> {
    if !is_candidate(slot) {
        return None;
    }
    let record = slot.file.as_ref()?.trial();
    let mut fared = record.get();
    let admitted = fared.admits();
    record.set(fared);
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
        _ if raw == -libc::EOPNOTSUPP => fared.refused = true,
        _ => fared.miss(),
    }
    slot.file.as_ref()?.trial().set(fared);
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
        && slot.file.as_ref().is_some_and(|file| file.kind() != Kind::Simulated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_make_it_rest_longer_each_time_and_a_hit_makes_good() {
        let mut record = Record::default();
        let mut rests = Vec::new();
        for _ in 0..12 {
            let mut rest = 0;
            while !record.admits() {
                rest += 1;
            }
            rests.push(rest);
            record.miss();
        }
        assert_eq!(rests, [0, 0, 0, 0, 0, 0, 0, 0, 32, 64, 128, 256]);
        record.hit();
        assert!((0..PATIENCE).all(|_| record.admits()));
        record.refused = true;
        assert!(!record.admits());
    }
}
