//! The functions that programs call. Three of them have two forms, whose names and versions are in `c/exports.c`; the versions of the
//! others are in `c/libaio.map`.
//!
//! Each looks whether the context is ours. One that is not goes to the kernel, who made it or says what is wrong with it. All return a
//! negated error number and leave `errno` alone.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_void};

use baio_engine::Errno;

use crate::abi::{IoEvent, Iocb};
use crate::calls::{self, keeping_errno};
use crate::context::{Context, Side};
use crate::on_ring::OnRing;
use crate::registry;
use crate::wait::{Limit, Wait, limit_of};

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
    // SAFETY: the caller's promise; the kernel looks whether the place is there.
    let told = unsafe { calls::setup(requests as u32, context) };
    if told == 0 {
        // SAFETY: the kernel has just written it.
        let address = unsafe { context.read_unaligned() };
        registry::begin(address, requests as u32);
        if let Some(begun) = registry::enter(address) {
            begun.choose(begun.users());
        }
    }
    told
}

/// io_destroy(2): waits for what is in flight; polls end at once.
#[unsafe(no_mangle)]
pub extern "C" fn io_destroy(context: usize) -> c_int {
    keeping_errno(|| match registry::remove(context) {
        Some(removed) => removed.context.end(|| removed.is_alone()),
        None if registry::is_leaving(context) => raw(Errno::EINVAL),
        None => calls::destroy(context),
    })
}

/// io_submit(2).
///
/// # Safety
/// `requests` has `count` pointers to requests; these, and what they name, are there and theirs until their events are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_submit(context: usize, count: c_long, requests: *mut *mut Iocb) -> c_int {
    match registry::enter(context) {
        // SAFETY: the caller's promise.
        Some(entered) => unsafe { entered.submit(entered.users(), count, requests) },
        // SAFETY: the caller's promise.
        None => unsafe { calls::submit(context, count, requests) },
    }
}

/// io_cancel(2): only polls; `EINPROGRESS` says that the event will come.
///
/// # Safety
/// The request may be read.
#[unsafe(export_name = "baio_cancel")]
pub unsafe extern "C" fn io_cancel(context: usize, request: *mut Iocb, event: *mut IoEvent) -> c_int {
    keeping_errno(|| {
        let entered = registry::enter(context);
        let Some(Side::Ring(ring)) = entered.as_deref().map(Context::side) else {
            // SAFETY: the caller's promise; the kernel has not written the event since Linux 4.18.
            return unsafe { calls::cancel(context, request, event) };
        };
        if request.is_null() {
            return raw(Errno::EFAULT);
        }
        // SAFETY: the caller's promise.
        let key = unsafe { (&raw const (*request).key).read_unaligned() };
        match key {
            0 => ring.cancel(request).map_or_else(raw, |()| 0),
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
    let wait = Wait {
        least,
        most,
        events,
        limit,
    };
    // SAFETY: the caller's promise.
    unsafe {
        events_of(context, wait, None, |wait| {
            calls::get_events(context, wait.least, wait.most, wait.events, wait.limit)
        })
    }
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
    // The kernel's set is the first 64 bits of libc's.
    // SAFETY: the caller's promise.
    let own = (!mask.is_null()).then(|| unsafe { mask.cast::<u64>().read_unaligned() });
    let wait = Wait {
        least,
        most,
        events,
        limit,
    };
    // SAFETY: the caller's promise.
    unsafe {
        events_of(context, wait, own, |wait| {
            calls::get_events_masked(context, wait.least, wait.most, wait.events, wait.limit, mask)
        })
    }
}

/// # Safety
/// As for [`io_getevents`].
unsafe fn events_of(context: usize, mut wait: Wait, mask: Option<u64>, ask: impl Fn(&Wait) -> c_int) -> c_int {
    // Who will not wait is not woken. The kernel says EINTR of whoever has found nothing and has work of a ring to do, as a thread of ours
    // has now and then (`signal_pending`, fs/aio.c).
    let by_kernel = |wait: &Wait| match ask(wait) {
        // SAFETY: the caller's promise.
        told if told == raw(Errno::EINTR) && unsafe { is_never(wait.limit) } => 0,
        told => told,
    };
    let Some(entered) = registry::enter(context) else {
        return by_kernel(&wait);
    };
    let mut got = 0;
    let mut left = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let told = match entered.side() {
            // SAFETY: the caller's promise.
            Side::Ring(ring) => keeping_errno(|| unsafe { get_events(ring, &wait, mask) }),
            Side::Kernel => {
                // SAFETY: the caller's promise.
                match unsafe { entered.events_of_kernel(entered.users(), &wait, is_never(wait.limit), by_kernel) } {
                    Ok(told) => told,
                    // It goes over: the rest comes from the ring.
                    Err((more, slept)) => {
                        got += more as c_int;
                        // SAFETY: the caller's promise.
                        unsafe { wait.go_on(more, slept, &mut left) };
                        continue;
                    }
                }
            }
        };
        return if got > 0 { got + told.max(0) } else { told };
    }
}

/// Is this limit that of who will not wait?
///
/// # Safety
/// It may be read, or is null.
unsafe fn is_never(limit: *mut libc::timespec) -> bool {
    if limit.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let limit = unsafe { limit.read_unaligned() };
    limit.tv_sec == 0 && limit.tv_nsec == 0
}

unsafe fn get_events(context: &OnRing, wait: &Wait, mask: Option<u64>) -> c_int {
    let Wait {
        least,
        most,
        events,
        limit,
    } = *wait;
    let limit = match limit.is_null() {
        true => Limit::Ever,
        // SAFETY: the caller's promise.
        false => limit_of(unsafe { limit.read_unaligned() }),
    };
    let (least, most) = match counts(least, most, events) {
        Ok(counts) => counts,
        // With a zero timeout and no events, libaio returns 0 before it validates the rest.
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
