//! What a worker of the kernel's does, which looks for its file later than the call returns; so the ring keeps the file until then.
//!
//! Long reads and writes are some of it: what is in the cache is copied by whoever begins it, and that must not be the thread that calls
//! `aio_read`, for half a second. Syncs of files are all of it since Linux 5.18: a sync of what has that number by then would say that data are safe
//! which are not. Of a pipe or a socket there is nothing to sync, and one that is kept would stay open: who reads it would see no end.

use baio_engine::shared::{Call, SharedRing, What};
use baio_shim::file::File;

/// Bytes that the calling thread copies at most: a tenth of a millisecond's work.
const LONG: u32 = 1 << 20;

/// Keeps the file of a call that a worker does, and has one do what is long. Without a place for its file that is done in the call, and a sync
/// goes to what has its number when it begins: there is no other way that does not wait.
pub(crate) fn keep(ring: &SharedRing, call: &mut Call, file: Option<File>) {
    let is_stream = file.is_some_and(File::is_stream);
    match call.what {
        What::Sync { .. } if !is_stream && !ring.takes_files_at_once() => call.kept = ring.keep(call.fd),
        What::Read { len, .. } | What::Write { len, .. } if len > LONG && file.is_some() && !is_stream => {
            call.kept = ring.keep(call.fd);
            call.beside = call.kept.is_some();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_is_kept_for_its_sync_and_a_pipe_is_not() {
        let Ok((ring, _reaper)) = SharedRing::new(8) else {
            eprintln!("SKIPPED: long: needs io_uring");
            return;
        };
        let regular = tempfile::tempfile().unwrap();
        let (_end, pipe) = rustix::pipe::pipe().unwrap();
        let comes_late = !ring.takes_files_at_once();
        for (fd, is_kept) in [(regular.as_raw_fd(), comes_late), (pipe.as_raw_fd(), false)] {
            let mut call = Call {
                what: What::Sync { data_only: true },
                fd,
                kept: None,
                beside: false,
                priority: 0,
                name: 0,
            };
            keep(&ring, &mut call, File::of(fd));
            assert_eq!(call.kept.is_some(), is_kept);
        }
    }
}
