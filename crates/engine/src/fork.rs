//! After a fork, the child's copy of an engine must not touch what it shares with its parent.
//!
//! A ring's queues are shared memory: a child that queued a request would corrupt the parent's. Comparing process ids would
//! cost a system call per request, so the guard is one word in a page that the kernel wipes in the child
//! (`MADV_WIPEONFORK`, madvise(2), Linux 4.14).

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::Advice;

use crate::backend::{Backend, Done, Doorbell, Explain};
use crate::error::{Errno, Error, SetupError};
use crate::memory::Mapping;
use crate::request::{Op, RequestId, Wait};
use crate::slot::Slots;

/// What the word says in the process that made it; a wiped page says 0.
const HERE: u32 = 0x6261_696f;

pub(crate) struct ForkGuard(Mapping);

impl ForkGuard {
    pub(crate) fn new() -> Result<ForkGuard, SetupError> {
        let page = rustix::param::page_size();
        let refused = |errno| {
            SetupError::new(
                "guard an engine against forks",
                format!("{page} bytes of memory"),
                errno,
            )
            .cure("a kernel with MADV_WIPEONFORK (4.14 or newer), or more memory")
        };
        let mapping = Mapping::anonymous(page).map_err(refused)?;
        // SAFETY: the range is a mapping of our own, which nobody refers to yet.
        unsafe { rustix::mm::madvise(mapping.at(0).cast(), page, Advice::LinuxWipeOnFork) }
            .map_err(|errno| refused(errno.into()))?;
        let guard = ForkGuard(mapping);
        guard.word().store(HERE, Ordering::Relaxed);
        Ok(guard)
    }

    /// Is this another process than the one that made the guard?
    pub(crate) fn is_forked(&self) -> bool {
        // Relaxed: nobody writes the word but the kernel, between two lives of the process.
        self.word().load(Ordering::Relaxed) != HERE
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping is page-aligned, larger than the word and lives as long as `self`; the word is only ever used
        // as an atomic.
        unsafe { AtomicU32::from_ptr(self.0.at(0).cast()) }
    }
}

/// What is in a backend's place in the moment in which it has been disowned and the rest of its engine has not been dropped.
pub(crate) struct Disowned(pub(crate) Doorbell);

impl Backend for Disowned {
    fn start(&mut self, _: &mut Slots, _: &[RequestId]) -> usize {
        0
    }

    fn turn(&mut self, _: &mut Slots, _: Wait, _: &mut Done) -> Result<(), Errno> {
        Ok(())
    }

    fn doorbell(&self) -> Doorbell {
        self.0.clone()
    }

    fn explain(&self) -> Explain {
        Explain::named("disowned")
    }

    fn refuses(&self, _: Op) -> Option<Error> {
        Some(Error::Forked)
    }
}

#[cfg(test)]
mod tests {
    use super::ForkGuard;

    #[test]
    fn the_maker_is_not_forked() {
        assert!(!ForkGuard::new().unwrap().is_forked());
    }
}
