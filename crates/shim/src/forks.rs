//! Is this a child that was forked from a process which had begun to use a library? It has copies of things that are its parent's.

#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn born() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// From the first call on, children are told from their parents.
pub fn watch() {
    static WATCHED: Once = Once::new();
    // SAFETY: the function stores one word; a library that asks for it is never unloaded.
    WATCHED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(born));
    });
}

/// Was this process forked from one that watched?
#[must_use]
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}
