//! Ways to execute iterations: one file each.
//!
//! A backend does one thing: it takes the iteration that a slot has to run now ([`Slots`] tells which), lets the system
//! run it without blocking the caller more than it must, and reports the raw result. Exactness, retries, deadlines,
//! order, error state and statistics live in the engine, once; that is what makes every backend give the same answers.
//!
//! | file | runs an iteration by | cannot |
//! |---|---|---|
//! | `sync.rs` | blocking system calls, in `start` | cancel, poll, timers, give a ready fd |
//! | `threads/` | blocking system calls, in a bounded pool of workers; streams and timers beside it | stop a running disk request |
//! | `aio/` | native Linux AIO for direct I/O and syncs; the rest as `threads` | stop a running disk request |
//! | `uring.rs` | io_uring | (nothing of the present operations) |
//! | `sim/` | its own disk in memory, recorded write by write | poll, give a ready fd |
//!
//! One of your own is as good ([`Engine::with_backend`](crate::Engine::with_backend)): it takes its iterations by
//! [`Slots::begin`], finds its [`Device`](crate::Device) behind the file and moves the bytes by copies. The methods that have
//! a body here are right for a backend that has nothing to say to them. `sim/` uses nothing else of the slots, and
//! `examples/ram/device.rs` is the shortest.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};

use crate::error::{Errno, Error, SetupError};
use crate::file::File;
use crate::memory::Arena;
use crate::policy::Time;
use crate::request::{RequestId, Wait};
use crate::slot::Slots;
use crate::sys;

pub(crate) mod aio;
pub mod sim;
pub(crate) mod sync;
pub(crate) mod threads;
pub(crate) mod uring;

/// Requests that are queued at most before they are submitted without a turn.
pub const BATCH_MAX: usize = 256;

/// What a backend reported in one turn.
#[derive(Debug, Default)]
pub struct Done {
    /// Requests whose iteration has ended, with the raw result: a count, or a negated error number.
    pub raw: Vec<(RequestId, i32)>,
    /// Did the doorbell end the turn?
    pub rang: bool,
}

/// Something a backend may register with the kernel for speed.
#[derive(Debug)]
pub enum Attach<'a> {
    /// The descriptions of a file.
    File(&'a File),
    /// The memory of an arena.
    Arena(&'a Arc<Arena>),
}

/// Something that a backend must forget.
#[derive(Debug)]
pub enum Detached<'a> {
    /// A file that is about to be closed: a registered file keeps a lock alive.
    File(&'a File),
}

/// What a backend says about itself.
#[derive(Clone, Debug, Default)]
pub struct Explain {
    /// The backend's name.
    pub backend: &'static str,
    /// Properties and whether they could be had: ("defer_taskrun", Ok) or the reason why not.
    pub features: Vec<(&'static str, Result<(), String>)>,
}

impl Explain {
    /// A name, and no properties to tell of.
    #[must_use]
    pub fn named(backend: &'static str) -> Explain {
        let features = Vec::new();
        Explain { backend, features }
    }
}

/// Executes ONE iteration of a request at a time. See the module for who does what.
///
/// Every method is called by whichever thread has the engine, one at a time; a backend that cannot be moved between threads
/// says so in its documentation and is started with [`Affinity::OneThread`](crate::Affinity::OneThread). None may panic on what
/// the system says.
pub trait Backend: Send {
    /// Takes iterations in order ([`Slots::begin`]), as many as it can now; returns how many. Those are `Running` and will
    /// be reported by `turn` exactly once each, whatever happens. May not wait, except in a backend that can do nothing else
    /// (`sync`).
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize;

    /// Hands what `start` took to the system now, without waiting for a turn: so a device need not run dry while the
    /// caller is busy with a burst of completions. Reports nothing.
    fn flush(&mut self) {}

    /// Submits what `start` took, sleeps as long as `wait` allows and no longer than until `wait.count` iterations have
    /// ended or the doorbell rang, and reports what has ended. One call into the kernel when it can.
    ///
    /// # Errors
    /// The backend itself is broken (never the failure of a request); what was started may still be reported later.
    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno>;

    /// Asks that a running iteration end early. Best effort: the target still reports once, cancelled or not.
    fn cancel(&mut self, _slots: &Slots, _id: RequestId) {}

    /// Registers a file or an arena.
    ///
    /// # Errors
    /// A refusal is normal (RLIMIT_MEMLOCK, an old kernel): everything works unregistered.
    fn attach(&mut self, _what: Attach<'_>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Forgets it. Must be called before the descriptor is closed.
    fn detach(&mut self, _what: Detached<'_>) {}

    /// A descriptor that polls readable when a turn would find something, for outside loops. `arm` asks for wake-ups:
    /// arm, turn once more without waiting, then sleep elsewhere. `None`: this backend has none.
    fn ready_fd(&mut self, _arm: bool) -> Option<BorrowedFd<'_>> {
        None
    }

    /// What another thread rings to end a sleeping turn.
    fn doorbell(&self) -> Doorbell;

    /// Engine time: monotonic, or virtual in a simulation.
    fn now(&self) -> Time {
        sys::monotonic()
    }

    /// Random bytes for identities: from the system, or from a simulation's seed.
    ///
    /// # Errors
    /// What `getrandom` said.
    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        system_random(bytes)
    }

    /// What was chosen, and what could not be had.
    fn explain(&self) -> Explain;

    /// Why this backend cannot run `op` at all, if so.
    fn refuses(&self, op: crate::request::Op) -> Option<Error>;

    /// System calls made so far.
    fn system_calls(&self) -> u64 {
        0
    }

    /// The process has forked, this is the child, and its copy of the engine is being dropped. A drop would end what the parent
    /// goes on using: join threads that are not here, close a session on a connection that both have. So whatever does not say
    /// here how it is dropped in a child is leaked.
    fn disown(self: Box<Self>) {
        std::mem::forget(self);
    }

    /// Is a cached read of an inode that need not wait better run by the engine itself, before it comes here?
    fn gains_by_trial(&self) -> bool {
        true
    }

    /// Is one sleep for many iterations cheaper here than a sleep for each? If not, no turn asks for more than one.
    fn gains_by_gathering(&self) -> bool {
        false
    }

    /// The mark with which this backend registers files.
    fn mark(&self) -> u64 {
        0
    }
}

/// Ends a turn from any thread: an event fd (eventfd(2)).
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<OwnedFd>);

impl Doorbell {
    /// A silent one.
    ///
    /// # Errors
    /// When the event fd cannot be made, with the cure.
    pub fn new() -> Result<Doorbell, SetupError> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Doorbell(Arc::new(fd)))
            .map_err(|errno| {
                SetupError::new("make a doorbell", "an event fd".into(), errno.into())
                    .cure("raise RLIMIT_NOFILE (`ulimit -n`)")
            })
    }

    /// Rings it. Rings between two turns merge into one.
    pub fn ring(&self) {
        // A full counter means that it is ringing already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Stops the ringing; says whether it rang.
    pub fn silence(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&*self.0, &mut count).is_ok()
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
        match poll(&mut [PollFd::new(&*self.0, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(self.silence()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// Fills `bytes` from the system's random source.
fn system_random(mut bytes: &mut [u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let got = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
        bytes = &mut bytes[got..];
    }
    Ok(())
}
