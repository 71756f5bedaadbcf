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
//! An engine has one of them, which sleeps, and beside it any number of helpers for devices that it does not know
//! (`router.rs`). What wakes it is its doorbell (`doorbell.rs`).
//!
//! One of your own is as good ([`Engine::with_backend`](crate::Engine::with_backend)): it takes its iterations by
//! [`Slots::begin`], finds its [`Device`](crate::Device) behind the file and moves the bytes by copies. The methods that have
//! a body here are right for a backend that has nothing to say to them. `sim/` uses nothing else of the slots, and
//! `examples/ram/device.rs` is the shortest.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::error::{Errno, Error};
use crate::file::File;
use crate::memory::Arena;
use crate::policy::Time;
use crate::request::{RequestId, Wait};
use crate::slot::Slots;
use crate::sys;

pub(crate) mod aio;
mod doorbell;
mod lent;
pub(crate) mod router;
pub mod sim;
pub(crate) mod sync;
pub(crate) mod threads;
pub(crate) mod uring;

pub use doorbell::Doorbell;

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
/// the system says. None may exchange the table that it is lent for another one (`mem::swap`): the process is aborted then.
pub trait Backend: Send {
    /// Takes iterations in order ([`Slots::begin`]), as many as it can now; returns how many. Those are `Running` and will
    /// be reported by `turn` exactly once each, whatever happens. May not wait, except in a backend that can do nothing else
    /// (`sync`). A helper that takes less than it is given is offered the rest when it has reported something, or rings because it has
    /// room.
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize;

    /// Hands what `start` took to the system now, without waiting for a turn: so a device need not run dry while the
    /// caller is busy with a burst of completions. Reports nothing.
    fn flush(&mut self) {}

    /// Submits what `start` took, sleeps as long as `wait` allows and no longer than until `wait.count` iterations have
    /// ended or the doorbell rang, and reports what has ended. One call into the kernel when it can.
    ///
    /// # Errors
    /// The backend itself is broken (never the failure of a request); what was started may still be reported later. A helper is not
    /// turned again: what it was given ends as [`Error::DeviceLost`], and syncs of its files as [`Error::Poisoned`] until their owner acknowledges.
    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno>;

    /// As a helper of an engine ([`Engine::add_helper`](crate::Engine::add_helper)): does it serve this foreign file? Asked once for
    /// each file, so the answer stays.
    fn serves(&self, _file: &File) -> bool {
        false
    }

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

    /// Nanoseconds since 1970; in a simulation since its beginning.
    fn wall_clock(&self) -> Time {
        sys::since_1970()
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

    /// It is dropped while requests are under way: memory of its own that the kernel may still write is leaked, as theirs is.
    fn leak_memory(&mut self) {}

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

    /// May the end of a thread end what it has started here, with `ECANCELED` or `EFAULT` and nothing done? The engine then starts it
    /// again, and believes the device when it comes again and again.
    fn loses_orphans(&self) -> bool {
        false
    }

    /// The mark with which this backend registers files.
    fn mark(&self) -> u64 {
        0
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
