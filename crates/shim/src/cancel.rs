//! Keeps a thread from being cancelled in a shim: its unwinding must not pass through Rust.

#![allow(unsafe_code)]

use std::ffi::c_int;

/// `PTHREAD_CANCEL_DISABLE`, pthread.h of glibc and musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Runs `work`; what `pthread_cancel` asks for meanwhile comes at the next place for it after that.
pub fn held_off<T>(work: impl FnOnce() -> T) -> T {
    let mut before = DISABLE;
    // SAFETY: it changes this thread alone, and writes the one word.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    let told = work();
    // SAFETY: as above; libc takes null for not asking.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    told
}
