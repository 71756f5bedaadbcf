//! What a worker of the kernel's does, which looks for its file later than the call returns; so the ring keeps the file until then.
//!
//! Long reads and writes are some of it: what is in the cache is copied by whoever begins it, and that must not be the thread that calls
//! `aio_read`, for half a second. Syncs are all of it since Linux 5.18: a sync of what has that number by then would say that data are safe which
//! are not.

use baio_engine::shared::{Call, SharedRing, What};
use baio_shim::file::File;

/// Bytes that the calling thread copies at most: a tenth of a millisecond's work.
const LONG: u32 = 1 << 20;

/// Keeps the file of a call that a worker does, and has one do what is long. Without a place for its file that is done in the call.
pub(crate) fn keep(ring: &SharedRing, call: &mut Call, file: Option<File>) {
    match call.what {
        What::Sync { .. } if !ring.takes_files_at_once() => call.kept = ring.keep(call.fd),
        What::Read { len, .. } | What::Write { len, .. }
            if len > LONG && file.is_some_and(|file| !file.is_stream()) =>
        {
            call.kept = ring.keep(call.fd);
            call.beside = call.kept.is_some();
        }
        _ => {}
    }
}
