//! The kernel's own io_* calls, for contexts that are not ours: where io_uring is refused, and whatever else a program passes. So the
//! kernel itself says what is wrong with an address that nobody knows.
//!
//! Every wrapper returns a negated error number and leaves `errno` alone, as libaio's do.

#![allow(unsafe_code)]

use std::ffi::{c_long, c_void};

use baio_engine::Errno;

use crate::abi::{IoEvent, Iocb};

/// A raw result, or a negated error number.
fn told(result: c_long) -> i32 {
    if result < 0 {
        -Errno::last().raw()
    } else {
        result as i32
    }
}

/// io_setup(2).
///
/// # Safety
/// `context` may be read and written.
pub(crate) unsafe fn setup(requests: u32, context: *mut usize) -> i32 {
    // SAFETY: the caller's promise.
    told(unsafe { libc::syscall(libc::SYS_io_setup, requests, context) })
}

/// io_destroy(2).
pub(crate) fn destroy(context: usize) -> i32 {
    // SAFETY: the kernel checks the address.
    told(unsafe { libc::syscall(libc::SYS_io_destroy, context) })
}

/// io_submit(2).
///
/// # Safety
/// As for the system call: the requests and what they name.
pub(crate) unsafe fn submit(context: usize, count: c_long, requests: *mut *mut Iocb) -> i32 {
    // SAFETY: the caller's promise.
    told(unsafe { libc::syscall(libc::SYS_io_submit, context, count, requests) })
}

/// io_cancel(2).
///
/// # Safety
/// The event may be written.
pub(crate) unsafe fn cancel(context: usize, request: *mut Iocb, event: *mut IoEvent) -> i32 {
    // SAFETY: the caller's promise.
    told(unsafe { libc::syscall(libc::SYS_io_cancel, context, request, event) })
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
    told(unsafe { libc::syscall(libc::SYS_io_getevents, context, least, most, events, limit) })
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
    told(unsafe { libc::syscall(SYS_IO_PGETEVENTS, context, least, most, events, limit, mask) })
}

/// Runs one of the above and the rest of the library without touching the program's `errno`.
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address of this thread's `errno`, which it alone uses.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *place };
    let told = work();
    // SAFETY: as above.
    unsafe { *place = before };
    told
}
