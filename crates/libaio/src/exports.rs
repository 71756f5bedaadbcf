//! The functions that programs call. Three of them have two forms, whose names and versions are in `c/exports.c`; the versions of the
//! others are in `c/libaio.map`.
//!
//! Each looks whether the context is ours. One that is not goes to the kernel, who made it or says what is wrong with it. All return a
//! negated error number and leave `errno` alone.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use baio_engine::{Errno, SetupError};

use crate::abi::{IoEvent, Iocb};
use crate::calls::{self, keeping_errno};
use crate::context::{Context, Limit};
use crate::counted;
use crate::registry;

/// A ring has room for the results of so many requests; larger contexts are the kernel's, who also says which are too large.
const RING_REQUESTS_MAX: u32 = 16_384;

fn raw(errno: Errno) -> c_int {
    -errno.raw()
}

/// io_setup(2): a context for at least so many requests.
///
/// # Safety
/// `context` may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_setup(requests: c_int, context: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    keeping_errno(|| unsafe { set_up(requests, context) })
}

unsafe fn set_up(requests: c_int, context: *mut usize) -> c_int {
    if context.is_null() {
        return raw(Errno::EFAULT);
    }
    // SAFETY: the caller's promise.
    let before = unsafe { context.read() };
    let count = requests as u32;
    if before != 0 || count == 0 {
        return raw(Errno::EINVAL);
    }
    match begin(count) {
        Ok(address) => {
            // SAFETY: as above.
            unsafe { context.write(address) };
            0
        }
        Err(why) => {
            explain(count, Some(&why));
            // SAFETY: as above.
            unsafe { calls::setup(count, context) }
        }
    }
}

/// A context of ours.
fn begin(count: u32) -> Result<usize, SetupError> {
    static IDS: AtomicU32 = AtomicU32::new(0);
    let refused =
        |need: &str| SetupError::new("start a context", format!("{count} requests"), Errno::EAGAIN).need(need);
    if count > RING_REQUESTS_MAX {
        return Err(refused("at most 16384 requests"));
    }
    // SAFETY: no memory is involved.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let processors = u32::try_from(processors).unwrap_or(1).max(1);
    let context = Context::new(count, processors, IDS.fetch_add(1, Ordering::Relaxed))?;
    registry::insert(&context).map_err(|_| refused("fewer contexts"))?;
    explain(count, None);
    Ok(context.address())
}

/// Counts a context, and says on standard error what carries it, if `BAIO_EXPLAIN=1` asks for it.
fn explain(count: u32, why_not: Option<&SetupError>) {
    if let Some(sheet) = counted::sheet() {
        sheet.context(why_not.is_none());
    }
    if std::env::var_os("BAIO_EXPLAIN").is_none_or(|asked| asked != "1") {
        return;
    }
    let text = match why_not {
        None => format!("baio libaio: a context for {count} requests: io_uring\n"),
        Some(why) => format!("baio libaio: a context for {count} requests: the kernel's own io_* calls; {why}\n"),
    };
    // One write, so that nothing of others comes between; `eprintln` may be cancelled halfway.
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
}

/// io_destroy(2): waits for what is in flight; polls end at once.
#[unsafe(no_mangle)]
pub extern "C" fn io_destroy(context: usize) -> c_int {
    keeping_errno(|| match registry::remove(context) {
        Some(removed) => {
            removed.context.end(|| removed.is_alone());
            0
        }
        None => calls::destroy(context),
    })
}

/// io_submit(2).
///
/// # Safety
/// `requests` has `count` pointers to requests; these, and what they name, are there and theirs until their events are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_submit(context: usize, count: c_long, requests: *mut *mut Iocb) -> c_int {
    keeping_errno(|| match registry::enter(context) {
        // SAFETY: the caller's promise.
        Some(context) => match unsafe { context.submit(count, requests) } {
            Ok(taken) => taken as c_int,
            Err(errno) => raw(errno),
        },
        // SAFETY: the caller's promise.
        None => unsafe { calls::submit(context, count, requests) },
    })
}

/// io_cancel(2): only polls; `EINPROGRESS` says that the event will come.
///
/// # Safety
/// The request may be read.
#[unsafe(export_name = "baio_cancel")]
pub unsafe extern "C" fn io_cancel(context: usize, request: *mut Iocb, event: *mut IoEvent) -> c_int {
    keeping_errno(|| {
        let Some(context) = registry::enter(context) else {
            // SAFETY: the caller's promise; the kernel has not written the event since Linux 4.18.
            return unsafe { calls::cancel(context, request, event) };
        };
        if request.is_null() {
            return raw(Errno::EFAULT);
        }
        // SAFETY: the caller's promise.
        let key = unsafe { (&raw const (*request).key).read_unaligned() };
        match key {
            0 => context.cancel(request).map_or_else(raw, |()| 0),
            _ => raw(Errno::EINVAL),
        }
    })
}

/// io_getevents(2).
///
/// # Safety
/// `events` has room for `most`; the limit may be read.
#[unsafe(export_name = "baio_getevents")]
pub unsafe extern "C" fn io_getevents(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut IoEvent,
    limit: *mut libc::timespec,
) -> c_int {
    keeping_errno(|| match registry::enter(context) {
        // SAFETY: the caller's promise.
        Some(context) => unsafe { get_events(&context, least, most, events, limit, None) },
        // SAFETY: the caller's promise.
        None => unsafe { calls::get_events(context, least, most, events, limit) },
    })
}

/// io_pgetevents(2): with this mask of signals meanwhile.
///
/// # Safety
/// As for [`io_getevents`]; the mask may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_pgetevents(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut IoEvent,
    limit: *mut libc::timespec,
    mask: *mut libc::sigset_t,
) -> c_int {
    keeping_errno(|| {
        let Some(context) = registry::enter(context) else {
            // SAFETY: the caller's promise.
            return unsafe { calls::get_events_masked(context, least, most, events, limit, mask) };
        };
        // The kernel's set is the first 64 bits of libc's.
        // SAFETY: the caller's promise.
        let mask = (!mask.is_null()).then(|| unsafe { mask.cast::<u64>().read_unaligned() });
        // SAFETY: the caller's promise.
        unsafe { get_events(&context, least, most, events, limit, mask) }
    })
}

unsafe fn get_events(
    context: &Context,
    least: c_long,
    most: c_long,
    events: *mut IoEvent,
    limit: *mut libc::timespec,
    mask: Option<u64>,
) -> c_int {
    let limit = match limit.is_null() {
        true => Limit::Ever,
        // SAFETY: the caller's promise.
        false => limit_of(unsafe { limit.read_unaligned() }),
    };
    let (least, most) = match counts(least, most, events) {
        Ok(counts) => counts,
        // libaio looks for events before it asks the kernel: who will not wait, and finds none, is not told what is wrong with the rest.
        Err(_) if matches!(limit, Limit::Never) && context.is_empty() => return 0,
        Err(errno) => return raw(errno),
    };
    // SAFETY: the caller's promise.
    match unsafe { context.get_events(least, most, events, limit, mask) } {
        Ok(taken) => taken as c_int,
        Err(errno) => raw(errno),
    }
}

fn counts(least: c_long, most: c_long, events: *mut IoEvent) -> Result<(usize, usize), Errno> {
    let (Ok(least), Ok(most)) = (usize::try_from(least), usize::try_from(most)) else {
        return Err(Errno::EINVAL);
    };
    if least > most {
        return Err(Errno::EINVAL);
    }
    if events.is_null() && most > 0 {
        return Err(Errno::EFAULT);
    }
    Ok((least, most))
}

fn limit_of(time: libc::timespec) -> Limit {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0).min(999_999_999);
    match Duration::new(seconds, nanoseconds) {
        Duration::ZERO => Limit::Never,
        time => Limit::For(time),
    }
}

/// A context, as the oldest programs make it.
///
/// # Safety
/// As for [`io_setup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_queue_init(requests: c_int, context: *mut usize) -> c_int {
    if requests <= 0 {
        return raw(Errno::EINVAL);
    }
    if context.is_null() {
        return raw(Errno::EFAULT);
    }
    // SAFETY: the caller's promise.
    unsafe {
        context.write(0);
        io_setup(requests, context)
    }
}

/// The same as [`io_destroy`].
#[unsafe(no_mangle)]
pub extern "C" fn io_queue_release(context: usize) -> c_int {
    io_destroy(context)
}

/// What a program has put in the `data` of a request, to be called with context, request and both results.
type Callback = unsafe extern "C" fn(usize, *mut Iocb, c_long, c_long);

/// Takes events that are there, and calls for each what its request names.
///
/// # Safety
/// The `data` of every request of the context is null or a function that takes context,
/// request and both results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_queue_run(context: usize) -> c_int {
    loop {
        let mut event = IoEvent {
            data: 0,
            object: 0,
            result: 0,
            result2: 0,
        };
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there is room for the one event.
        let told = unsafe { io_getevents(context, 0, 1, &raw mut event, &raw mut now) };
        if told != 1 {
            return told;
        }
        // SAFETY: the caller's promise; null is none.
        let callback = unsafe { std::mem::transmute::<*mut c_void, Option<Callback>>(address(event.data)) };
        if let Some(callback) = callback {
            // SAFETY: the caller's promise.
            unsafe {
                callback(
                    context,
                    address(event.object),
                    event.result as c_long,
                    event.result2 as c_long,
                )
            };
        }
    }
}

fn address<T>(number: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(number as usize)
}

/// Waits for no event at all: as in libaio, it returns at once.
///
/// # Safety
/// The limit may be read.
#[unsafe(export_name = "baio_queue_wait")]
pub unsafe extern "C" fn io_queue_wait(context: usize, limit: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's promise; no event needs room.
    unsafe { io_getevents(context, 0, 0, std::ptr::null_mut(), limit) }
}
