//! A request, as aio.h of glibc lays it out on 64-bit machines; `c/exports.c` does not compile where that is otherwise.
//!
//! `struct aiocb64` is the same. A request is the program's memory, and its status is read by whoever likes while we write it. So there
//! are no references to one here, only pointers, and its status is two atomics.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU64, Ordering};

use baio_engine::Errno;

/// `struct sigevent`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SigEvent {
    /// `sigev_value`: a number or a pointer.
    pub value: *mut c_void,
    /// `sigev_signo`.
    pub signal: c_int,
    /// `sigev_notify`.
    pub notify: c_int,
    /// `sigev_notify_function`.
    pub function: Option<unsafe extern "C" fn(*mut c_void)>,
    /// `sigev_notify_attributes`.
    pub attributes: *mut libc::pthread_attr_t,
    rest: [u64; 4],
}

/// `struct aiocb`.
#[repr(C)]
pub struct Aiocb {
    /// `aio_fildes`.
    pub fd: c_int,
    /// `aio_lio_opcode`.
    pub opcode: c_int,
    /// `aio_reqprio`.
    pub priority: c_int,
    /// `aio_buf`.
    pub buffer: *mut u8,
    /// `aio_nbytes`.
    pub bytes: usize,
    /// `aio_sigevent`.
    pub event: SigEvent,
    /// `__next_prio`, in which we keep the request's name.
    name: AtomicU64,
    _own: [c_int; 2],
    /// `__error_code`.
    error: AtomicI32,
    /// `__return_value`.
    result: AtomicIsize,
    /// `aio_offset`.
    pub offset: i64,
    _reserved: [u64; 4],
}

const _: () = assert!(size_of::<SigEvent>() == 64 && size_of::<Aiocb>() == 168);
const _: () = assert!(std::mem::offset_of!(Aiocb, event) == 32 && std::mem::offset_of!(Aiocb, error) == 112);
const _: () = assert!(std::mem::offset_of!(Aiocb, result) == 120 && std::mem::offset_of!(Aiocb, offset) == 128);

/// Operations, by the numbers that glibc uses in `aio_lio_opcode`.
pub(crate) mod operation {
    use std::ffi::c_int;

    pub(crate) const READ: c_int = 0;
    pub(crate) const WRITE: c_int = 1;
    pub(crate) const NOP: c_int = 2;
    pub(crate) const DATA_SYNC: c_int = 3;
    pub(crate) const SYNC: c_int = 4;
    /// Reads and writes may have a flag above these bits, which says nothing on 64-bit machines.
    pub(crate) const BITS: c_int = 127;
}

/// Values of `sigev_notify`, bits/sigevent-consts.h.
pub(crate) const BY_SIGNAL: c_int = 0;
pub(crate) const BY_THREAD: c_int = 2;

impl Aiocb {
    /// The status: `EINPROGRESS`, 0 or an error. Who sees that it has ended sees all that it has done.
    ///
    /// # Safety
    /// `request` is one.
    pub(crate) unsafe fn error(request: *const Aiocb) -> i32 {
        // SAFETY: the caller's promise. Acquire: see `end`.
        unsafe { (*request).error.load(Ordering::Acquire) }
    }

    /// # Safety
    /// `request` is one.
    pub(crate) unsafe fn result(request: *const Aiocb) -> isize {
        // SAFETY: the caller's promise.
        unsafe { (*request).result.load(Ordering::Relaxed) }
    }

    /// # Safety
    /// `request` is one.
    pub(crate) unsafe fn name(request: *const Aiocb) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { (*request).name.load(Ordering::Relaxed) }
    }

    /// Under way, by this name.
    ///
    /// # Safety
    /// `request` is one, and nobody else has it.
    pub(crate) unsafe fn begin(request: *mut Aiocb, name: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            (*request).name.store(name, Ordering::Relaxed);
            (*request).result.store(0, Ordering::Relaxed);
            (*request).error.store(Errno::EINPROGRESS.raw(), Ordering::Release);
        }
    }

    /// Ended, with what the system call said. From here on it is the program's, who may have freed it by now.
    ///
    /// # Safety
    /// `request` is one, and under way.
    pub(crate) unsafe fn end(request: *mut Aiocb, raw: i32) {
        let (result, error) = if raw < 0 { (-1, -raw) } else { (raw as isize, 0) };
        // SAFETY: the caller's promise. Release: whoever sees the error sees the result, and the bytes that were read.
        unsafe {
            (*request).result.store(result, Ordering::Relaxed);
            (*request).error.store(error, Ordering::Release);
        }
    }
}
