//! What the threads of a context share, and what is left to do when they have moved results.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use baio_engine::shared::{Call, Reaper};
use baio_shim::counters::Operation;

use crate::abi::Iocb;
use crate::event_fd::Signals;
use crate::requests::Requests;

/// A request that the kernel carries.
pub(super) struct Carried {
    pub(super) object: *mut Iocb,
    pub(super) operation: Operation,
    pub(super) event_fd: Option<Arc<OwnedFd>>,
    pub(super) started: u64,
    /// It had not ended when `io_submit` returned: a kind of file of which nobody has thought.
    pub(super) stray: bool,
    /// The row that has taken the flag out of the request, and not yet put it back; 0 for none.
    pub(super) hidden_by: u64,
}

/// What the threads of a context share.
pub(super) struct State {
    /// In flight on the ring.
    pub(super) requests: Requests,
    /// In flight in the kernel's own context.
    pub(super) carried: Vec<Carried>,
    pub(super) reaper: Reaper,
    /// Threads in `io_getevents`.
    pub(super) waiters: u32,
    /// The only one of them may sleep until so many results have arrived.
    pub(super) gathering: u32,
}

impl State {
    /// Is the kernel at work on what was to end in the call?
    pub(super) fn any_stray(&self) -> bool {
        self.carried.iter().any(|it| it.stray)
    }
}

/// What is left to do when results have been moved, outside of locks.
#[derive(Default)]
pub(super) struct After {
    pub(super) signals: Signals,
    pub(super) again: Vec<Call>,
    /// How many results there were.
    pub(super) moved: u32,
}
