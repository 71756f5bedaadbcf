//! Does a context's `io_submit` wait for reads? Found by measuring it.
//!
//! The first request is tried: a buffered read of what is not in the cache shows at once what the program does. After that of a few requests one is
//! timed, with the call it comes in. A call that took long is looked into: if it had buffered reads, of a file whose reads can be started
//! without waiting (`RWF_NOWAIT`), and took longer than a copy of their bytes would, it has waited, or another thread had the processor. Which of
//! the two, the next few calls show: the first read of each is tried, as at the beginning.
//!
//! Requests may be gone when the call has returned: another thread may have taken their events. So they are read by
//! process_vm_readv(2), which says of memory that is not there that it is not there.

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use baio_engine::Errno;
use baio_shim::file::File;

use crate::abi::{Iocb, command};
use crate::descriptor::{self, own_id};

/// A call that takes longer is looked into.
const LONG: Duration = Duration::from_micros(25);
/// Bytes a nanosecond that a copy moves at least.
const COPY_RATE: u64 = 4;
/// Calls whose first read is tried when one has taken long.
const TRIALS: u32 = 64;
/// Requests of a call that are looked at.
const LOOKED_AT: u64 = 64;
/// Long calls that are passed by after one that had no reads, at most.
const PASSED_MAX: u32 = 1024;

/// One request of so many is measured, and the call that it comes with: reading the clock costs a tenth of a copy.
const ONE_OF: u64 = 8;

/// No request yet.
const NEW: u8 = 0;
const WATCHING: u8 = 1;
/// A call has taken long.
const TRYING: u8 = 2;
const WANTED: u8 = 3;
/// There is no ring to go over to, or nobody wants it.
const NEVER: u8 = 4;

#[derive(Default)]
pub(crate) struct Watch {
    state: AtomicU8,
    trials: AtomicU32,
    /// Long calls to be passed by before the next is looked into, and how many after that.
    passes: AtomicU32,
    step: AtomicU32,
}

// Relaxed everywhere: hints about what is the faster way.
impl Watch {
    /// May the time have come to go over?
    pub(crate) fn wants_ring(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), NEW | TRYING | WANTED)
    }

    /// Has it? A call on these requests is about to be made.
    pub(crate) fn says_to_go(&self, list: *mut *mut Iocb) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let tries = matches!(state, NEW | TRYING);
        if tries && requests_of(list, 1).next().is_some_and(|(_, first)| is_cold(&first)) {
            self.state.store(WANTED, Ordering::Relaxed);
            return true;
        }
        if tries {
            let left = self.trials.load(Ordering::Relaxed).saturating_sub(1);
            self.trials.store(left, Ordering::Relaxed);
            self.state
                .store(if left > 0 { TRYING } else { WATCHING }, Ordering::Relaxed);
        }
        state == WANTED
    }

    /// Is this call on so many requests to be measured, before which so many have been taken? One request of a few is, and its call.
    pub(crate) fn measures(&self, before: u64, count: u64) -> bool {
        let next = before.next_multiple_of(ONE_OF);
        next < before.saturating_add(count.max(1)) && self.state.load(Ordering::Relaxed) == WATCHING
    }

    /// It is to go over whatever it does.
    pub(crate) fn wish(&self) {
        self.state.store(WANTED, Ordering::Relaxed);
    }

    /// It is to stay.
    pub(crate) fn give_up(&self) {
        self.state.store(NEVER, Ordering::Relaxed);
    }

    /// A call on so many requests took so long.
    #[inline]
    pub(crate) fn took(&self, time: Duration, list: *mut *mut Iocb, taken: u64) {
        if time > LONG {
            crate::calls::keeping_errno(|| self.look_into(time, list, taken));
        }
    }

    #[cold]
    fn look_into(&self, time: Duration, list: *mut *mut Iocb, taken: u64) {
        let passes = self.passes.load(Ordering::Relaxed);
        if passes > 0 {
            self.passes.store(passes - 1, Ordering::Relaxed);
            return;
        }
        let count = taken.min(LOOKED_AT) as i64;
        let reads = requests_of(list, count).filter(|(_, request)| may_wait(request));
        let bytes = reads.map(|(_, request)| bytes_of(&request)).reduce(u64::saturating_add);
        // What was no wait is passed by for longer and longer.
        let step = (self.step.load(Ordering::Relaxed) * 2).clamp(1, PASSED_MAX);
        self.step.store(step, Ordering::Relaxed);
        self.passes.store(step, Ordering::Relaxed);
        if bytes.is_some_and(|bytes| time > LONG + Duration::from_nanos(bytes / COPY_RATE)) {
            self.trials.store(TRIALS, Ordering::Relaxed);
            self.state.store(TRYING, Ordering::Relaxed);
        }
    }
}

/// The requests of a list, each with its address, as far as they can be read.
pub(crate) fn requests_of(list: *mut *mut Iocb, count: i64) -> impl Iterator<Item = (usize, Iocb)> {
    let place = move |at: i64| list.wrapping_offset(at as isize).addr();
    (0..count).map_while(move |at| {
        // SAFETY: any bytes are a number.
        let address: usize = unsafe { copy_of(place(at)) }?;
        // SAFETY: any bytes are a request.
        let request = unsafe { copy_of(address) }?;
        Some((address, request))
    })
}

/// What lies at an address, if anything does, and the kernel says so.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn copy_of<T: Copy>(address: usize) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { copies_of(address, 1) }.ok()?.pop()
}

/// What a program has passed, so many of a kind. Where the kernel may not say whether it is there (a seccomp filter, another kernel's
/// emulation), it is read all the same.
///
/// # Errors
/// `EFAULT` where it is not there.
///
/// # Safety
/// Any bytes are a valid `T`. Where the kernel may not say so, it is there.
pub(crate) unsafe fn passed<T: Copy>(address: usize, count: usize) -> Result<Vec<T>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { copies_of(address, count) }.or_else(|errno| match errno {
        Errno::EFAULT => Err(errno),
        _ => {
            let first = std::ptr::with_exposed_provenance::<T>(address);
            // SAFETY: the caller's promise.
            let all = (0..count).map(|at| unsafe { first.wrapping_add(at).read_unaligned() });
            Ok(all.collect())
        }
    })
}

/// # Errors
/// `EFAULT` where it is not there, or not all of it; else why the kernel does not say.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn copies_of<T: Copy>(address: usize, count: usize) -> Result<Vec<T>, Errno> {
    let mut copies = Vec::<T>::with_capacity(count);
    let bytes = size_of::<T>() * count;
    let here = libc::iovec {
        iov_base: copies.as_mut_ptr().cast(),
        iov_len: bytes,
    };
    let there = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: bytes,
    };
    let (one, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    let (here, there) = (&raw const here, &raw const there);
    // SAFETY: the kernel writes the copies, and looks itself whether the rest may be read.
    let told = unsafe { libc::syscall(libc::SYS_process_vm_readv, own_id(), here, one, there, one, none) };
    if told < 0 {
        return Err(Errno::last());
    }
    if told != bytes as libc::c_long {
        return Err(Errno::EFAULT);
    }
    // SAFETY: all of them have been written, and any bytes are valid, by the caller's promise.
    unsafe { copies.set_len(count) };
    Ok(copies)
}

fn bytes_of(request: &Iocb) -> u64 {
    match request.opcode {
        command::PREAD => request.bytes,
        // Of a list, a guess.
        _ => request.bytes.saturating_mul(64 << 10),
    }
}

/// Is it a read that the kernel's AIO would wait for, and a ring would not?
fn may_wait(request: &Iocb) -> bool {
    waits_for_the_device(request) && nowait_read(request) != -Errno::EOPNOTSUPP.raw()
}

/// Is it such a read, of what is not in the cache now?
fn is_cold(request: &Iocb) -> bool {
    waits_for_the_device(request) && nowait_read(request) == -Errno::EAGAIN.raw()
}

/// Does it read a file or a device through the cache?
fn waits_for_the_device(request: &Iocb) -> bool {
    let reads = matches!(request.opcode, command::PREAD | command::PREADV);
    if !reads || request.rw_flags & libc::RWF_NOWAIT != 0 || request.offset < 0 {
        return false;
    }
    let fd = request.fd as RawFd;
    let buffered = descriptor::flags(fd).is_ok_and(|flags| flags & (libc::O_DIRECT | libc::O_NONBLOCK) == 0);
    buffered && File::of(fd).is_some_and(|file| matches!(file.kind(), libc::S_IFREG | libc::S_IFBLK))
}

/// Its first byte, without waiting.
fn nowait_read(request: &Iocb) -> i32 {
    let mut byte = 0_u8;
    let into = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let one: libc::c_ulong = 1;
    let high: libc::c_ulong = 0;
    // SAFETY: the kernel writes the one byte. By `syscall`: a thread can be cancelled in libc's own function.
    let told = unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            request.fd,
            &raw const into,
            one,
            request.offset,
            high,
            libc::RWF_NOWAIT,
        )
    };
    if told < 0 { -Errno::last().raw() } else { told as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_a_few_is_measured_however_many_come_at_once() {
        let watch = Watch::default();
        watch.state.store(WATCHING, Ordering::Relaxed);
        for count in [1, 3, 7, 8, 16] {
            // After one first request.
            let befores = (0..ONE_OF).map(|call| 1 + call * count);
            let measured = befores.filter(|&before| watch.measures(before, count)).count() as u64;
            assert_eq!(measured, count.min(ONE_OF), "of eight calls on {count}");
        }
    }
}
