//! Keeps the program's signals from a thread of a shim.

#![allow(unsafe_code)]

/// Runs `work` with all signals blocked in this thread, and in those that it makes.
pub fn all_blocked<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: zeros are a signal set, which `sigfillset` fills.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // SAFETY: both sets are ours.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let told = work();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    told
}
