//! What this kernel's ring cannot do: a thread makes the system call, and its end is a completion of the ring like any other.
//!
//! That is so for a truncation before Linux 6.9. The entry of such a request is a poll of an event fd, which the thread signals when
//! the call has said what came of it: so a turn waits for it as for everything else. Nothing calls it back, neither a cancel nor the
//! end of the thread that has submitted it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use io_uring::{opcode, squeue, types};
use rustix::event::{PollFd, PollFlags, poll};

use crate::file::File;
use crate::request::RequestId;
use crate::sys;

/// The requests that threads have.
#[derive(Default)]
pub(super) struct Beside(Vec<(u64, Arc<Call>)>);

struct Call {
    /// None where the thread's work has been done at once.
    bell: Option<OwnedFd>,
    raw: AtomicI32,
}

impl Call {
    fn ended(&self, raw: i32) {
        // Release: who finds the bell rung sees it.
        self.raw.store(raw, Ordering::Release);
        if let Some(bell) = &self.bell {
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Beside {
    /// Has a thread make the file so long; gives the entry that ends with it. The thread keeps the file open until it has. Where the
    /// system has no descriptor or no thread to give, the owner waits for the call himself.
    pub(super) fn truncate(&mut self, id: RequestId, file: &File, len: u64) -> squeue::Entry {
        let bell = baio_process::descriptor::event().ok();
        let entry = match &bell {
            Some(bell) => opcode::PollAdd::new(types::Fd(bell.as_raw_fd()), libc::POLLIN as u32).build(),
            None => opcode::Nop::new().build(),
        };
        let raw = AtomicI32::new(-libc::EINTR);
        let call = Arc::new(Call { bell, raw });
        let work = {
            let (call, file) = (Arc::clone(&call), file.clone());
            move || call.ended(truncate(&file, len))
        };
        let thread = baio_process::thread::named("baio-truncate");
        if call.bell.is_none() || thread.start(work).is_err() {
            call.ended(truncate(file, len));
        }
        self.0.push((id.to_bits(), call));
        entry.user_data(id.to_bits())
    }

    /// Does a thread have it?
    pub(super) fn has(&self, id: RequestId) -> bool {
        self.0.iter().any(|(bits, _)| *bits == id.to_bits())
    }

    /// What came of a request that has ended in the ring with `raw`.
    pub(super) fn ended(&mut self, bits: u64, raw: i32) -> i32 {
        let Some(at) = self.0.iter().position(|(its, _)| *its == bits) else {
            return raw;
        };
        let (_, call) = self.0.swap_remove(at);
        // The kernel ends polls with the thread that had submitted them, before the bell rings: a truncation does not take long.
        if let Some(bell) = &call.bell {
            while poll(&mut [PollFd::new(bell, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {}
        }
        call.raw.load(Ordering::Acquire)
    }
}

fn truncate(file: &File, len: u64) -> i32 {
    let fd = file.raw_fd(file.any_caching());
    fd.map_or(-libc::EBADF, |fd| sys::truncate(fd, len))
}
