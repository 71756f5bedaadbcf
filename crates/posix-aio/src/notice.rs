//! How a program wants to hear that a request has ended: not at all, by a signal, by a thread.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use baio_engine::Errno;

use crate::abi::{BY_SIGNAL, BY_THREAD, SigEvent};

/// Signals that there are.
const SIGNAL_MAX: c_int = 64;
/// `SI_ASYNCIO`.
const ASYNC_IO: c_int = -4;

type Function = unsafe extern "C" fn(*mut c_void);

/// A copy of what a `sigevent` says: the program may free that with its request.
#[derive(Clone, Copy)]
pub(crate) enum Notice {
    None,
    Signal {
        signal: c_int,
        value: *mut c_void,
    },
    Thread {
        function: Function,
        value: *mut c_void,
        attributes: *mut libc::pthread_attr_t,
    },
}

// SAFETY: the pointers are the program's, which has promised that any thread may use them.
unsafe impl Send for Notice {}

/// `siginfo_t` as the kernel reads it from who queues a signal.
#[repr(C)]
struct SignalInfo {
    signal: c_int,
    errno: c_int,
    code: c_int,
    _gap: c_int,
    process: c_int,
    user: u32,
    value: *mut c_void,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<SignalInfo>() == 128);

struct Start {
    function: Function,
    value: *mut c_void,
}

impl Notice {
    pub(crate) fn of(event: &SigEvent) -> Notice {
        match (event.notify, event.function) {
            (BY_SIGNAL, _) => Notice::Signal {
                signal: event.signal,
                value: event.value,
            },
            (BY_THREAD, Some(function)) => Notice::Thread {
                function,
                value: event.value,
                attributes: event.attributes,
            },
            _ => Notice::None,
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Notice::None)
    }

    /// The result of a request with this notice: as in glibc one whose signal cannot be sent has failed.
    pub(crate) fn judge(&self, raw: i32) -> i32 {
        match self {
            Notice::Signal { signal, .. } if !(0..=SIGNAL_MAX).contains(signal) => -Errno::EINVAL.raw(),
            _ => raw,
        }
    }

    /// Sends it. A thread only outside of signal handlers.
    pub(crate) fn send(self) {
        match self {
            Notice::None => {}
            Notice::Signal { signal, value } => send_signal(signal, value),
            Notice::Thread {
                function,
                value,
                attributes,
            } => start_thread(Start { function, value }, attributes),
        }
    }
}

fn send_signal(signal: c_int, value: *mut c_void) {
    // SAFETY: these two touch no memory.
    let (process, user) = unsafe { (libc::getpid(), libc::getuid()) };
    let info = SignalInfo {
        signal,
        errno: 0,
        code: ASYNC_IO,
        _gap: 0,
        process,
        user,
        value,
        rest: [0; 12],
    };
    // SAFETY: the kernel reads the one structure.
    unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, process, signal, ptr::from_ref(&info)) };
}

fn start_thread(start: Start, attributes: *mut libc::pthread_attr_t) {
    let start = Box::into_raw(Box::new(start));
    // SAFETY: zeros are room for attributes, which `pthread_attr_init` makes; the program's own are good by its promise.
    let refused = unsafe {
        let mut own: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread = 0;
        libc::pthread_attr_init(&raw mut own);
        libc::pthread_attr_setdetachstate(&raw mut own, libc::PTHREAD_CREATE_DETACHED);
        let attributes = if attributes.is_null() { &raw mut own } else { attributes };
        let refused = libc::pthread_create(&raw mut thread, attributes, RUN, start.cast());
        libc::pthread_attr_destroy(&raw mut own);
        refused
    };
    if refused != 0 {
        // SAFETY: it is ours again, since no thread has it.
        drop(unsafe { Box::from_raw(start) });
    }
}

// A function of the program's may end its thread by `pthread_exit`, which unwinds.
extern "C-unwind" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `start_thread` made it for this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let (function, value) = (start.function, start.value);
    drop(start);
    // As glibc's: such a thread begins with no signal blocked.
    // SAFETY: zeros are the empty set.
    unsafe {
        let none: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    // SAFETY: the two forms differ in what may unwind, and nothing of ours is left on the stack.
    let function = unsafe { std::mem::transmute::<Function, unsafe extern "C-unwind" fn(*mut c_void)>(function) };
    // SAFETY: the program's promise.
    unsafe { function(value) };
    ptr::null_mut()
}

// SAFETY: the two types differ in what may unwind only; nothing between this frame and the thread's beginning is Rust's.
const RUN: extern "C" fn(*mut c_void) -> *mut c_void = unsafe {
    std::mem::transmute::<extern "C-unwind" fn(*mut c_void) -> *mut c_void, extern "C" fn(*mut c_void) -> *mut c_void>(
        run,
    )
};
