//! No panic crosses the border: the wrapper of every exported function, by itself, since nothing in the library panics on demand.

#![allow(dead_code, reason = "the parts of the library that are not tested here")]
#![allow(unsafe_code)]

#[path = "../src/border.rs"]
mod border;
#[path = "../src/failure.rs"]
mod failure;

use std::ffi::{CStr, c_int};
use std::panic::panic_any;

use baio::Errno;
use border::guard;
use failure::{Failure, Text, last};

fn said(which: &Text) -> String {
    // SAFETY: it is never null, and stays until the thread's next failure.
    unsafe { CStr::from_ptr(last(which)) }.to_string_lossy().into_owned()
}

/// What a program sees of a call that panics.
fn is_told(code: c_int) {
    assert_eq!(code, -Errno::ENOTRECOVERABLE.raw());
    assert_eq!(said(&Text::Name), "ENOTRECOVERABLE");
    assert!(said(&Text::Message).contains("the call panicked"));
    assert!(said(&Text::Cure).contains("close the link"));
}

#[test]
fn a_panic_is_an_error_of_the_call() {
    assert_eq!(said(&Text::Message), "");
    is_told(guard(|| panic!("on purpose")));
    let busy = guard::<i64>(|| Err(Failure::new(Errno::EBUSY, "use it", "wait")));
    assert_eq!(
        (busy, said(&Text::Message).as_str()),
        (-i64::from(Errno::EBUSY.raw()), "use it; wait")
    );
    assert_eq!(guard(|| Ok(7)), 7, "the next call is not disturbed");
}

#[test]
fn nor_does_a_panic_of_the_panic() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    is_told(guard(|| panic_any(Bomb)));
}

/// A frame of C below this one could not unwind: `extern "C"` would abort here.
#[test]
fn an_exported_function_returns() {
    extern "C" fn exported() -> c_int {
        guard(|| panic!("on purpose"))
    }
    is_told(exported());
}
