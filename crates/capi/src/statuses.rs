//! Status words: the library moves one when its request ends, and whoever likes looks at it.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use baio::{Remote, Status, StatusWord};

use crate::abi::baio_status;
use crate::border::{Out, guard};
use crate::failure::Result;
use crate::handles::{Found, find, forget, keep, look};
use crate::things::{Kind, Thing};

/// The request has not ended, or its end was not collected yet (baio_reap(), baio_wait()).
pub const BAIO_IN_FLIGHT: i64 = i64::MIN;

/// The word of a handle: words are of no link, and kept with what any thread may use.
pub(crate) fn word_of(status: *const baio_status) -> Result<StatusWord> {
    let (Found::Here(handle) | Found::Anywhere(handle)) = find(status, Kind::Status)?;
    look::<Remote>(handle, Kind::Status)?.as_status().cloned()
}

/// Makes a status word, for one request at a time.
///
/// Owner: the caller owns it, and gives it back by baio_status_free().
/// Threads: any.
/// Returns: 0 and the word in `*status`; or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_status_new(status: *mut *mut baio_status) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(status, "status")? };
        out.put(keep(Arc::new(Thing::<Remote>::Status(StatusWord::new())))?);
        Ok(0)
    })
}

/// Whether its request has ended, and how. The word changes in a call of baio_reap() or baio_wait(). A thread that sees that a read has ended also
/// sees its bytes, but the buffer is the library's until the outcome is taken.
///
/// Threads: any.
/// Returns: BAIO_IN_FLIGHT, also before the first request; bytes; or a negative error number, of the request or of this call.
#[unsafe(no_mangle)]
pub extern "C" fn baio_status_get(status: *mut baio_status) -> i64 {
    guard(|| {
        Ok(match word_of(status)?.get() {
            Status::InFlight => BAIO_IN_FLIGHT,
            Status::Done(bytes) => i64::from(bytes),
            Status::Failed(errno) => -i64::from(errno.raw()),
        })
    })
}

/// Gives a status word back. A request under way goes on without it.
///
/// Owner: the word is gone.
/// Threads: any.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_status_free(status: *mut baio_status) -> c_int {
    guard(|| {
        let (Found::Here(handle) | Found::Anywhere(handle)) = find(status, Kind::Status)?;
        drop(forget::<Remote>(handle, Kind::Status)?);
        Ok(0)
    })
}
