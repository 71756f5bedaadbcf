//! Buffers: memory of a link's arena, aligned for every device, that a request takes and its outcome gives back.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::{baio_buffer, baio_link};
use crate::border::{Out, guard};
use crate::failure::{Result, keep as keep_failure};
use crate::handles::{Handle, Home, forget, keep, look, on_either};
use crate::things::{BufferState, Kind, Place, Thing};

fn new<L: Home>(handle: Handle, bytes: usize) -> Result<*mut baio_buffer> {
    let thing = look::<L>(handle, Kind::Link)?;
    let buffer = thing.as_link()?.link.buffer(bytes)?;
    keep(Arc::new(Thing::<L>::Buffer(BufferState::new(buffer))))
}

/// Takes a buffer of `bytes` bytes from the link's arena; it begins at a multiple of 4096. Its bytes are zeros, or those of an earlier buffer.
///
/// Owner: the caller owns the buffer, and gives it back by baio_buffer_free().
/// Threads: the link's.
/// Returns: 0 and the buffer in `*buffer`; or a negative error number: -ENOBUFS when the arena is used up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_buffer_new(link: *mut baio_link, bytes: usize, buffer: *mut *mut baio_buffer) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(buffer, "buffer")? };
        out.put(on_either!(link, Kind::Link, new, bytes)?);
        Ok(0)
    })
}

fn data<L: Home>(handle: Handle) -> Result<*mut c_void> {
    let thing = look::<L>(handle, Kind::Buffer)?;
    let mut place = thing.as_buffer()?.place();
    match &mut *place {
        Place::Here(buffer) => Ok(buffer.as_mut_ptr().cast()),
        other => Err(other.refusal()),
    }
}

/// Where the bytes of a buffer are: always at the same place. While a request has the buffer they are the library's. If you write them
/// then, anything may reach the device; if you read them, you may read anything.
///
/// Threads: the link's.
/// Returns: the address; NULL while a request has the buffer, and after an error: see baio_error_message().
#[unsafe(no_mangle)]
pub extern "C" fn baio_buffer_data(buffer: *mut baio_buffer) -> *mut c_void {
    struct Address(*mut c_void);
    impl From<c_int> for Address {
        fn from(_: c_int) -> Address {
            Address(std::ptr::null_mut())
        }
    }
    guard(|| on_either!(buffer, Kind::Buffer, data).map(Address)).0
}

fn size<L: Home>(handle: Handle) -> Result<i64> {
    let thing = look::<L>(handle, Kind::Buffer)?;
    Ok(i64::try_from(thing.as_buffer()?.len).unwrap_or(i64::MAX))
}

/// How many bytes it has.
///
/// Threads: the link's.
/// Returns: bytes, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_buffer_size(buffer: *mut baio_buffer) -> i64 {
    guard(|| on_either!(buffer, Kind::Buffer, size))
}

fn free<L: Home>(handle: Handle) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Buffer)?;
    let place = thing.as_buffer()?.place();
    if matches!(*place, Place::InFlight) {
        return Ok(keep_failure(&place.refusal()));
    }
    drop(place);
    drop(forget::<L>(handle, Kind::Buffer)?);
    Ok(0)
}

/// Gives a buffer back.
///
/// Owner: the buffer is gone. While a request has it nothing happens: -EBUSY.
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_buffer_free(buffer: *mut baio_buffer) -> c_int {
    guard(|| on_either!(buffer, Kind::Buffer, free))
}
