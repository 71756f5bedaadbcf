//! The functions behind ours: glibc's own, where there is no io_uring.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use baio_engine::Errno;

use crate::abi::{Aiocb, SigEvent};

fn find(name: &CStr, cache: &AtomicPtr<c_void>) -> *mut c_void {
    let found = cache.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(found, Ordering::Relaxed);
    found
}

/// aio_init(3), which returns nothing.
///
/// # Safety
/// As for the function of this name.
pub(crate) unsafe fn aio_init(parameters: *const c_void) {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: null is none, and what libc has by this name takes this argument.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*const c_void)>>(find(c"aio_init", &FOUND))
    };
    if let Some(function) = function {
        // SAFETY: the caller's promise.
        unsafe { function(parameters) };
    }
}

/// `ENOSYS`, as a function says that is not there.
fn missing() -> c_int {
    // SAFETY: the address of this thread's `errno`, which it alone uses.
    unsafe { *libc::__errno_location() = Errno::ENOSYS.raw() };
    -1
}

macro_rules! next {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        /// As the function of this name.
        ///
        /// # Safety
        /// As for the function of this name.
        pub(crate) unsafe fn $name($($argument: $kind),*) -> c_int {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let name = concat!(stringify!($name), "\0");
            let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { return missing() };
            // SAFETY: null is none, and what libc has by this name takes these arguments.
            let function = unsafe {
                std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($kind),*) -> c_int>>(find(name, &FOUND))
            };
            match function {
                // SAFETY: the caller's promise.
                Some(function) => unsafe { function($($argument),*) },
                None => missing(),
            }
        }
    )*};
}

next! {
    aio_read(request: *mut Aiocb);
    aio_write(request: *mut Aiocb);
    aio_fsync(how: c_int, request: *mut Aiocb);
    aio_cancel(fd: c_int, request: *mut Aiocb);
    aio_suspend(list: *const *const Aiocb, count: c_int, limit: *const libc::timespec);
    lio_listio(mode: c_int, list: *const *mut Aiocb, count: c_int, event: *mut SigEvent);
}
