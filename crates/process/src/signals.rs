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
