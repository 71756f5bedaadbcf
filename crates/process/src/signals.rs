//! Signals, kept from a thread for a while.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use libc::sigset_t;

/// Is this signal ignored? It was so when the program began, if nothing here has asked for it since: that is how a shell keeps SIGINT from what
/// runs in the background.
pub fn is_ignored(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: there is room for one, and nothing is changed. All zeros are one too, with the default.
    let now = unsafe {
        libc::sigaction(signal, ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

/// While it lives, this thread is not disturbed by the signals that it was made for, nor are threads that it starts.
#[must_use = "they are blocked while this lives"]
pub struct Blocked {
    before: sigset_t,
    // The mask is a thread's own: whoever dropped this in another one would change that one's.
    _here: PhantomData<*const ()>,
}

impl Blocked {
    /// All that can be blocked.
    pub fn all() -> Blocked {
        let mut all = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: the set is ours; zeros are one, which the call fills.
        let all = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            all.assume_init()
        };
        Blocked::these(&all)
    }

    fn these(set: &sigset_t) -> Blocked {
        let mut before = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: both sets are there, and zeros are a set: it is one whatever the call does.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, set, before.as_mut_ptr());
            before.assume_init()
        };
        Blocked {
            before,
            _here: PhantomData,
        }
    }
}

/// Lets all through to this thread: for one that starts programs, which inherit what it blocks.
pub fn let_all_through() {
    let mut none = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: the set is ours; zeros are one, which the call empties.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set that this thread had; nobody asks for the one that it has.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

/// From here on no write, truncation or allocation beyond the limit of file sizes (`ulimit -f`) ends this process: it fails with `EFBIG`.
/// For a program of ours, first of all; a library must not change what the program does with its signals ([`outlasting_limits`]).
/// A program that it runs inherits this, unless it is undone there.
pub fn ignore_file_limit() {
    // SAFETY: it names no function.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Is the size of files limited now? Mostly not, and then no call raises SIGXFSZ.
#[must_use]
pub fn files_are_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize)
        .current
        .is_some()
}

/// Runs `call`, which may meet the limit of file sizes, in a thread that may be the program's: it fails with `EFBIG`, and the SIGXFSZ that
/// goes with that is taken back, so that neither the program's end nor its handler comes of it.
pub fn outlasting_limits<T>(call: impl FnOnce() -> T) -> T {
    let mut limit = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: the set is ours; zeros are one, which is made empty and added to.
    let limit = unsafe {
        libc::sigemptyset(limit.as_mut_ptr());
        libc::sigaddset(limit.as_mut_ptr(), libc::SIGXFSZ);
        limit.assume_init()
    };
    let blocked = Blocked::these(&limit);
    let was_pending = is_pending(libc::SIGXFSZ);
    let told = call();
    if !was_pending && is_pending(libc::SIGXFSZ) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are there, and nobody asks about the signal. The kernel gives it to the thread that wrote: this one.
        unsafe { libc::sigtimedwait(&raw const limit, ptr::null_mut(), &raw const now) };
    }
    drop(blocked);
    told
}

fn is_pending(signal: libc::c_int) -> bool {
    let mut pending = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: there is room for a set, and zeros are one.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        libc::sigismember(pending.as_ptr(), signal) == 1
    }
}
