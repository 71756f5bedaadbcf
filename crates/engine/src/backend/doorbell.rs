//! Wakes a sleeping turn from any thread.
//!
//! Two kinds of callers share one event fd. A caller that got the bell from the engine wants the turn to end. A helper (`router.rs`) only
//! wants the turn to look at it and go on. A flag beside the descriptor says which of them has rung. It is set before the descriptor is
//! written. So a turn that reads the descriptor and then finds the flag has heard the ring, even if the descriptor is written once more.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Errno, SetupError};
use crate::policy::Time;
use crate::sys;

/// Ends a turn from any thread: an event fd (eventfd(2)).
#[derive(Clone, Debug)]
pub struct Doorbell {
    bell: Arc<Bell>,
    /// A helper has it, which rings and does not listen: a ring that it took might be somebody else's.
    for_helper: bool,
}

#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    /// Somebody has rung who is no helper, since this was last looked at.
    called: AtomicBool,
}

impl Doorbell {
    /// A silent one.
    ///
    /// # Errors
    /// When the event fd cannot be made, with the cure.
    pub fn new() -> Result<Doorbell, SetupError> {
        let fd = baio_process::descriptor::event().map_err(|errno| {
            SetupError::new("make a doorbell", "an event fd".into(), errno.into())
                .cure("raise RLIMIT_NOFILE (`ulimit -n`)")
        })?;
        let called = AtomicBool::new(false);
        Ok(Doorbell {
            bell: Arc::new(Bell { fd, called }),
            for_helper: false,
        })
    }

    /// Rings it. Rings between two turns merge into one.
    pub fn ring(&self) {
        if !self.for_helper {
            // Release: the router that finds it sees what was posted before the ring.
            self.bell.called.store(true, Ordering::Release);
        }
        // A full counter means that it is ringing already.
        let _ = rustix::io::write(&self.bell.fd, &1_u64.to_ne_bytes());
    }

    /// Stops the ringing; says whether it rang. A helper's says no, and leaves it ringing.
    pub fn silence(&self) -> bool {
        let mut count = [0; 8];
        !self.for_helper && rustix::io::read(&self.bell.fd, &mut count).is_ok()
    }

    /// Sleeps until it rings, and silences it, or until this engine time has come on the system's clock; says whether it
    /// rang. A signal may end the sleep early.
    ///
    /// # Errors
    /// What `poll` said.
    pub fn sleep(&self, until: Option<Time>) -> Result<bool, Errno> {
        let timeout = until.map(|at| {
            let limit = at.since(sys::monotonic());
            Timespec {
                tv_sec: limit.as_secs() as i64,
                tv_nsec: i64::from(limit.subsec_nanos()),
            }
        });
        match poll(&mut [PollFd::new(&self.bell.fd, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(self.silence()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The same bell for a helper to ring.
    pub(crate) fn for_helper(&self) -> Doorbell {
        Doorbell {
            bell: Arc::clone(&self.bell),
            for_helper: true,
        }
    }

    /// Is it a helper's end of this bell?
    pub(crate) fn is_helpers_of(&self, engine: &Doorbell) -> bool {
        self.for_helper && Arc::ptr_eq(&self.bell, &engine.bell)
    }

    /// Of rings that were heard: has anybody rung who is no helper?
    pub(crate) fn take_call(&self) -> bool {
        self.bell.called.swap(false, Ordering::Acquire)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.bell.fd
    }
}

impl AsFd for Doorbell {
    /// Readable while it rings; [`Doorbell::silence`] ends that.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_rings_and_does_not_listen_nor_call() {
        let bell = Doorbell::new().unwrap();
        let helper = bell.for_helper();
        assert!(helper.is_helpers_of(&bell) && !bell.is_helpers_of(&bell));
        helper.clone().ring();
        assert!(!helper.silence() && helper.sleep(None) == Ok(false), "it rings still");
        assert!(bell.silence() && !bell.take_call());
        bell.ring();
        helper.ring();
        assert!(!helper.silence() && bell.silence() && bell.take_call() && !bell.take_call());
    }
}
