//! The one way to start a thread.
//!
//! The program's signals are for the program's threads. It may block one everywhere and read it from a signalfd (signalfd(2)); a single
//! thread of ours that lets it through ends the program. So ours let none through, not even those of faults: who waits for SIGBUS on a
//! signalfd is told of broken memory there.

// The one place that starts them.
#![allow(clippy::disallowed_methods)]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use crate::signals::Blocked;

/// What helps where no thread can be made.
pub const CURE: &str =
    "end other threads, or raise RLIMIT_NPROC (`ulimit -u`) or the limit of processes of the control group";

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// How many threads that were started here have not ended. A forked child has none of its parent's, and counts on from them.
pub fn alive() -> usize {
    // Relaxed: a figure, which orders nothing.
    ALIVE.load(Ordering::Relaxed)
}

/// A thread to be started.
#[derive(Debug)]
#[must_use = "nothing runs before it is started"]
pub struct Starter(Builder);

/// One that `ps` and debuggers show by this name, of which the kernel keeps fifteen bytes.
pub fn named(name: &str) -> Starter {
    Starter(Builder::new().name(name.to_owned()))
}

impl Starter {
    /// With a stack of so many bytes.
    pub fn stack_bytes(self, bytes: usize) -> Starter {
        Starter(self.0.stack_size(bytes))
    }

    /// Starts it. No signal reaches it, nor a thread that it starts.
    ///
    /// # Errors
    /// The system has no thread to give; [`CURE`] helps.
    pub fn start<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
        let _blocked = Blocked::all();
        let alive = Alive::new();
        self.0.spawn(move || alive.during(work))
    }

    /// Starts it in a scope, likewise.
    ///
    /// # Errors
    /// As [`start`](Starter::start).
    pub fn start_in<'scope, 'env, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        let _blocked = Blocked::all();
        let alive = Alive::new();
        self.0.spawn_scoped(scope, move || alive.during(work))
    }
}

/// One that is counted, also if it panics, and not if it was never made.
struct Alive;

impl Alive {
    fn new() -> Alive {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Alive
    }

    fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let _counted = self;
        work()
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}
