//! The kernel's own io_* calls, for contexts that are not ours: where io_uring is refused, and whatever else a program passes. So the
//! kernel itself says what is wrong with an address that nobody knows.
//!
//! Every wrapper returns a negated error number and leaves `errno` alone, as libaio's do.

#![allow(unsafe_code)]

use std::ffi::{c_long, c_void};

use crate::abi::{IoEvent, Iocb};

/// One of the calls, straight to the kernel: `libc::syscall` may be this library's own (`c/exports.c`), which would come back here.
///
/// # Safety
/// As for the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: c_long, words: [usize; 6]) -> i32 {
    let told: isize;
    // SAFETY: the caller's promise; the kernel changes no registers but these.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as isize => told, in("rdi") words[0], in("rsi") words[1], in("rdx") words[2],
            in("r10") words[3], in("r8") words[4], in("r9") words[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    told as i32
}

/// The same where the library has no `syscall` of its own.
///
/// # Safety
/// As for the system call.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn call(number: c_long, words: [usize; 6]) -> i32 {
    let [a, b, c, d, e, f] = words;
    // SAFETY: the caller's promise.
    let told = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if told < 0 {
        -baio_engine::Errno::last().raw()
    } else {
        told as i32
    }
}

/// io_setup(2).
///
/// # Safety
/// `context` may be read and written.
pub(crate) unsafe fn setup(requests: u32, context: *mut usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        call(
            libc::SYS_io_setup,
            [requests as usize, context.expose_provenance(), 0, 0, 0, 0],
        )
    }
}

/// io_destroy(2).
pub(crate) fn destroy(context: usize) -> i32 {
    // SAFETY: the kernel checks the address.
    unsafe { call(libc::SYS_io_destroy, [context, 0, 0, 0, 0, 0]) }
}

/// io_submit(2).
///
/// # Safety
/// As for the system call: the requests and what they name.
pub(crate) unsafe fn submit(context: usize, count: c_long, requests: *mut *mut Iocb) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        call(
            libc::SYS_io_submit,
            [context, count as usize, requests.expose_provenance(), 0, 0, 0],
        )
    }
}

/// io_cancel(2).
///
/// # Safety
/// The event may be written.
pub(crate) unsafe fn cancel(context: usize, request: *mut Iocb, event: *mut IoEvent) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        call(
            libc::SYS_io_cancel,
            [context, request.expose_provenance(), event.expose_provenance(), 0, 0, 0],
        )
    }
}

/// io_getevents(2).
///
/// # Safety
/// The events may be written, `most` of them.
pub(crate) unsafe fn get_events(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut IoEvent,
    limit: *const libc::timespec,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        call(
            libc::SYS_io_getevents,
            [
                context,
                least as usize,
                most as usize,
                events.expose_provenance(),
                limit.expose_provenance(),
                0,
            ],
        )
    }
}

/// The libc crate does not name it everywhere; 292 in the table that all newer architectures share.
const SYS_IO_PGETEVENTS: c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// `struct __aio_sigset`, fs/aio.c.
#[repr(C)]
struct SignalMask {
    mask: *const c_void,
    bytes: usize,
}

/// io_pgetevents(2).
///
/// # Safety
/// As for [`get_events`]; the mask may be read.
pub(crate) unsafe fn get_events_masked(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut IoEvent,
    limit: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> i32 {
    let mask = SignalMask {
        mask: mask.cast(),
        bytes: 8,
    };
    let mask = std::ptr::from_ref(&mask);
    // SAFETY: the caller's promise.
    unsafe {
        call(
            SYS_IO_PGETEVENTS,
            [
                context,
                least as usize,
                most as usize,
                events.expose_provenance(),
                limit.expose_provenance(),
                mask.expose_provenance(),
            ],
        )
    }
}

/// Runs one of the above and the rest of the library without touching the program's `errno`, and without being a place where a thread can
/// be cancelled, as `close` in libc is.
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address of this thread's `errno`, which it alone uses.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *place };
    let told = baio_shim::cancel::held_off(work);
    // SAFETY: as above.
    unsafe { *place = before };
    told
}
