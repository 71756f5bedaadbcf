//! Which of the standard descriptors were closed when the program began. The language's start-up puts /dev/null in their places, so that
//! what is opened later gets no such number; a copy to standard output must not take that for a target.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each of the three.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Was this one of the three closed?
pub(crate) fn was_closed(descriptor: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << descriptor) != 0
}

extern "C" fn look() {
    for descriptor in 0..3 {
        // SAFETY: it asks for flags of a number; no memory is involved, and a number that is no descriptor is an error.
        if unsafe { libc::fcntl(c_int::from(descriptor), libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

// SAFETY: functions of this section are called with no thread but one, before `main`; it touches an atomic and makes system calls,
// neither of which needs the language's start-up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
