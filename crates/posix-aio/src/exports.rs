//! The functions that programs call, under both names. `aio_suspend` and `lio_listio` have a skin in C around them (`c/exports.c`).
//!
//! They return 0, or -1 with `errno`. What goes well leaves `errno` alone.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::time::Duration;

use baio_engine::Errno;

use crate::abi::{Aiocb, SigEvent, operation};
use crate::calls::is_under_way;
use crate::check;
use crate::next;
use crate::process::{Carrier, carrier, known};

/// Answers of `aio_cancel`.
const CANCELED: c_int = 0;
const NOT_CANCELED: c_int = 1;
const ALL_DONE: c_int = 2;

/// Modes of `lio_listio`.
const WAIT: c_int = 0;
const NO_WAIT: c_int = 1;

/// Runs `work`; `errno` is what it says, or as it was.
fn telling(work: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    // SAFETY: the address of this thread's `errno`, which it alone uses.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *place };
    let (told, errno) = match work() {
        Ok(told) => (told, before),
        Err(errno) => (-1, errno.raw()),
    };
    // SAFETY: as above.
    unsafe { *place = errno };
    told
}

/// Both names of a function.
macro_rules! exported {
    ($($(#[$doc:meta])* $name:ident / $large:ident ($($argument:ident: $kind:ty),*) -> $result:ty $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// A request is one, and with its bytes the library's from here until it has ended.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result $body

        /// The same: both have one form of request.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "C programs reach it")]
        pub unsafe extern "C" fn $large($($argument: $kind),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { $name($($argument),*) }
        }
    )*};
}

exported! {
    /// aio_read(3).
    aio_read / aio_read64 (request: *mut Aiocb) -> c_int {
        match carrier() {
            // SAFETY: the caller's promise.
            Carrier::Ours(context) => telling(|| unsafe { context.submit(request, operation::READ) }.map(|()| 0)),
            // SAFETY: the caller's promise.
            Carrier::Glibc => unsafe { next::aio_read(request) },
        }
    }

    /// aio_write(3).
    aio_write / aio_write64 (request: *mut Aiocb) -> c_int {
        match carrier() {
            // SAFETY: the caller's promise.
            Carrier::Ours(context) => telling(|| unsafe { context.submit(request, operation::WRITE) }.map(|()| 0)),
            // SAFETY: the caller's promise.
            Carrier::Glibc => unsafe { next::aio_write(request) },
        }
    }

    /// aio_fsync(3).
    aio_fsync / aio_fsync64 (how: c_int, request: *mut Aiocb) -> c_int {
        let Carrier::Ours(context) = carrier() else {
            // SAFETY: the caller's promise.
            return unsafe { next::aio_fsync(how, request) };
        };
        telling(|| {
            let opcode = match how {
                libc::O_SYNC => operation::SYNC,
                libc::O_DSYNC => operation::DATA_SYNC,
                _ => return Err(Errno::EINVAL),
            };
            // SAFETY: the caller's promise.
            if !check::is_open(unsafe { (*request).fd }) {
                return Err(Errno::EBADF);
            }
            // SAFETY: the caller's promise.
            unsafe { context.submit(request, opcode) }.map(|()| 0)
        })
    }

    /// aio_error(3): the status, which lies in the request. While that is under way it moves results.
    aio_error / aio_error64 (request: *const Aiocb) -> c_int {
        // SAFETY: the caller's promise.
        if unsafe { !is_under_way(request) } {
            // SAFETY: the caller's promise.
            return unsafe { Aiocb::error(request) };
        }
        if let Some(Carrier::Ours(context)) = known() {
            telling(|| {
                context.poll();
                Ok(0)
            });
        }
        // SAFETY: the caller's promise.
        unsafe { Aiocb::error(request) }
    }

    /// aio_return(3).
    aio_return / aio_return64 (request: *mut Aiocb) -> isize {
        // SAFETY: the caller's promise.
        unsafe { Aiocb::result(request) }
    }

    /// aio_cancel(3): ends what has not begun.
    aio_cancel / aio_cancel64 (fd: c_int, request: *mut Aiocb) -> c_int {
        let ours = match known() {
            Some(Carrier::Ours(context)) => Some(context),
            // SAFETY: the caller's promise.
            Some(Carrier::Glibc) => return unsafe { next::aio_cancel(fd, request) },
            None => None,
        };
        telling(|| {
            if !check::is_open(fd) {
                return Err(Errno::EBADF);
            }
            // SAFETY: the caller's promise.
            if !request.is_null() && unsafe { (*request).fd } != fd {
                return Err(Errno::EINVAL);
            }
            let told = match ours {
                Some(context) if request.is_null() => Ok(context.cancel_all(fd)),
                // SAFETY: the caller's promise.
                Some(context) => unsafe { context.cancel_one(fd, request) },
                // SAFETY: the caller's promise.
                None if !request.is_null() && unsafe { is_under_way(request) } => Err(Errno::EINVAL),
                None => Ok((0, 0)),
            };
            told.map(|(ended, begun)| match (ended, begun) {
                (0, 0) => ALL_DONE,
                (_, 0) => CANCELED,
                _ => NOT_CANCELED,
            })
        })
    }
}

/// `aio_init(3)`: how many threads glibc should use. There are none, unless glibc will carry the requests: it is told in any case, and only
/// makes a note of it.
///
/// # Safety
/// The parameters may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_init(parameters: *const libc::c_void) {
    telling(|| {
        // SAFETY: the caller's promise.
        unsafe { next::aio_init(parameters) };
        Ok(0)
    });
}

/// A thread that sleeps is asked this often whether it was cancelled.
const SLICE: Duration = Duration::from_millis(100);

/// aio_suspend(3), for a while: 1 says that it is to be called again. `until` is 0 at first, and then the time when it has to end.
///
/// # Safety
/// The list has so many places, of null pointers and requests; the limit may be read.
#[unsafe(export_name = "baio_suspend")]
pub unsafe extern "C" fn aio_suspend(
    list: *const *const Aiocb,
    count: c_int,
    limit: *const libc::timespec,
    until: &mut u64,
) -> c_int {
    if let Some(Carrier::Glibc) = known() {
        // SAFETY: the caller's promise.
        return unsafe { next::aio_suspend(list, count, limit) };
    }
    telling(|| {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        let list = match count {
            0 => &[],
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts(list, count) },
        };
        // SAFETY: the caller's promise.
        let over = list
            .iter()
            .any(|&object| !object.is_null() && unsafe { !is_under_way(object) });
        let Some(Carrier::Ours(context)) = known() else {
            return Ok(0);
        };
        if over {
            return Ok(0);
        }
        // SAFETY: the caller's promise.
        let limit = (!limit.is_null()).then(|| duration(unsafe { limit.read_unaligned() }));
        let left = limit.map(|limit| left(limit, until));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        // SAFETY: the caller's promise.
        match unsafe { context.suspend(list, slice) } {
            Err(Errno::ETIME) if left == Some(slice) => Err(Errno::EAGAIN),
            Err(Errno::ETIME) => Ok(1),
            told => told.map(|()| 0),
        }
    })
}

/// How much is left of a limit that began when `until` was 0.
fn left(limit: Duration, until: &mut u64) -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0);
    if *until == 0 {
        *until = now.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    }
    Duration::from_nanos(until.saturating_sub(now))
}

fn duration(time: libc::timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0).min(999_999_999);
    Duration::new(seconds, nanoseconds)
}

/// lio_listio(3).
///
/// # Safety
/// As for the others, for all requests of the list; the event may be read.
#[unsafe(export_name = "baio_listio")]
pub unsafe extern "C" fn lio_listio(mode: c_int, list: *const *mut Aiocb, count: c_int, event: *mut SigEvent) -> c_int {
    if !matches!(mode, WAIT | NO_WAIT) {
        return telling(|| Err(Errno::EINVAL));
    }
    let Carrier::Ours(context) = carrier() else {
        // SAFETY: the caller's promise.
        return unsafe { next::lio_listio(mode, list, count, event) };
    };
    telling(|| {
        // A negative count is none, as in glibc.
        let count = usize::try_from(count).unwrap_or(0);
        let list = match count {
            0 => &[],
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts(list, count) },
        };
        // SAFETY: the caller's promise.
        let event = unsafe { event.as_ref() };
        // SAFETY: the caller's promise.
        unsafe { context.list(mode == WAIT, list, event) }.map(|()| 0)
    })
}
