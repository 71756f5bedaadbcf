//! What every function does at the border: no panic crosses it, null pointers are errors, texts are read, structures may grow.

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::mem::{ManuallyDrop, MaybeUninit, size_of};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use baio::Errno;

use crate::failure::{Failure, Result, keep};

/// Runs a call; its failure becomes a negative number and the thread's last text, and so does a panic.
pub(crate) fn guard<T: From<c_int>>(act: impl FnOnce() -> Result<T>) -> T {
    if baio_shim::forks::is_child() {
        return T::from(keep(&forked()));
    }
    // A thread that is cancelled unwinds, which must not pass through Rust.
    match baio_shim::cancel::held_off(|| catch_unwind(AssertUnwindSafe(act))) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => T::from(keep(&failure)),
        Err(panic) => {
            // Its drop may panic too.
            let _kept = ManuallyDrop::new(panic);
            let text = "a bug in baio: the call panicked, and what it was about may be half done";
            let cure = "close the link, and report what standard error says";
            T::from(keep(&Failure::new(Errno::ENOTRECOVERABLE, text, cure)))
        }
    }
}

/// A forked child must not touch its copies: a ring that it shares with its parent, threads that are not there, locks that nobody will
/// release.
fn forked() -> Failure {
    Failure::new(
        Errno::ECHILD,
        "use baio in a forked child: its links are the parent's",
        "fork before the first link is opened, or call exec in the child",
    )
}

pub(crate) fn null(what: &str) -> Failure {
    let text = format!("the argument `{what}` is null");
    Failure::new(Errno::EINVAL, text, "pass an address, as baio.h says")
}

pub(crate) fn invalid(text: impl Into<String>, cure: &str) -> Failure {
    Failure::new(Errno::EINVAL, text, cure)
}

/// Where a result goes.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// It is null, or may be written as a `T` for as long as the call lasts.
    pub(crate) unsafe fn new(pointer: *mut T, what: &str) -> Result<Out<T>> {
        match pointer.is_null() {
            true => Err(null(what)),
            false => Ok(Out(pointer)),
        }
    }

    pub(crate) fn put(&self, value: T) {
        // SAFETY: promised to `new`. Unaligned: whether it is aligned cannot be told to C by a type.
        unsafe { self.0.write_unaligned(value) }
    }
}

/// A text from C.
///
/// # Safety
/// It is null, or ends with a zero byte.
pub(crate) unsafe fn text(pointer: *const c_char, what: &str) -> Result<String> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map(str::to_owned)
        .map_err(|_| invalid(format!("the argument `{what}` is not UTF-8"), "pass a name in UTF-8"))
}

/// A path from C: any bytes.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path(pointer: *const c_char, what: &str) -> Result<PathBuf> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: promised by the caller.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// A structure whose every pattern of bits is a value, zeros the default, and whose first field is its size as a `u32`.
///
/// # Safety
/// It is so.
pub(crate) unsafe trait Growing: Copy {
    /// Its size in version 0: nobody has a smaller one.
    const LEAST: usize;
}

/// A structure from C, which may be of an older or newer header: what it does not have is zero, and what we do not know must be.
///
/// # Safety
/// It is null, or its first field says how many bytes may be read there.
pub(crate) unsafe fn grown<T: Growing>(pointer: *const T, what: &str) -> Result<T> {
    let mut own = MaybeUninit::<T>::zeroed();
    if pointer.is_null() {
        // SAFETY: zeros are a value, by the contract of `Growing`.
        return Ok(unsafe { own.assume_init() });
    }
    // SAFETY: the first field is there in every version.
    let size = unsafe { pointer.cast::<u32>().read_unaligned() } as usize;
    if !(T::LEAST..=4096).contains(&size) {
        let text = format!("`{what}.size` is {size}, and at least {} is needed", T::LEAST);
        return Err(invalid(text, "set it to sizeof of the structure"));
    }
    // SAFETY: so many bytes may be read there, and the part that is copied fits into ours.
    let rest = unsafe {
        let known = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), own.as_mut_ptr().cast::<u8>(), known);
        std::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known)
    };
    if rest.iter().any(|byte| *byte != 0) {
        let text = format!("`{what}` asks for something that this libbaio does not know");
        return Err(Failure::new(
            Errno::E2BIG,
            text,
            "use a newer libbaio.so.0, or leave the newer fields 0",
        ));
    }
    // SAFETY: every pattern of bits is a value, by the contract of `Growing`.
    Ok(unsafe { own.assume_init() })
}

/// Reserved words must be 0, so that they can mean something later.
pub(crate) fn unused(words: &[u64], what: &str) -> Result<()> {
    match words.iter().all(|word| *word == 0) {
        true => Ok(()),
        false => Err(invalid(
            format!("reserved words of `{what}` are not 0"),
            "set the structure to zeros first",
        )),
    }
}
