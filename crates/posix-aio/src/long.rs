//! Long reads and writes: what is in the cache is copied by whoever begins it, and that must not be the thread that calls `aio_read`, for half a
//! second. So a worker of the kernel's does what is long. It looks for the file later than the call returns; so the ring keeps the file until
//! then.

use baio_engine::shared::{Call, SharedRing, What};
use baio_shim::file::File;

/// Bytes that the calling thread copies at most: a tenth of a millisecond's work.
const LONG: u32 = 1 << 20;

/// Has a worker do the call, if it is long. Without a place for its file it is done in the call.
pub(crate) fn keep(ring: &SharedRing, call: &mut Call, file: Option<File>) {
    let bytes = match call.what {
        What::Read { len, .. } | What::Write { len, .. } => len,
        _ => 0,
    };
    if bytes > LONG && file.is_some_and(|file| !file.is_stream()) {
        call.kept = ring.keep(call.fd);
        call.beside = call.kept.is_some();
    }
}
