//! What the client's threads share and sleep on, and the clocks: the model's, in the shape of `src/sync.rs`.

use std::cell::{Cell, RefCell};
use std::sync::{LazyLock, LockResult};
use std::time::{Duration, Instant};

use baio_words::Time;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::JoinHandle;

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
pub(crate) use shuttle::thread_local;
pub(crate) use std::sync::PoisonError;

std::thread_local! {
    /// Threads that the client has started and nobody joins.
    static STARTED: RefCell<Vec<JoinHandle<()>>> = const { RefCell::new(Vec::new()) };
    /// Time since a schedule began. The model runs all its threads on one thread of the system, each test on another.
    static CLOCK: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nobody counts here.
pub(crate) fn note_lock() {}

/// At the beginning of each schedule.
pub(crate) fn begin() {
    CLOCK.set(Duration::ZERO);
    STARTED.take();
}

/// Waits for the threads that the client has started: one that sleeps on is a deadlock.
pub(crate) fn join_started() {
    while let Some(thread) = STARTED.with_borrow_mut(Vec::pop) {
        thread.join().unwrap();
    }
}

/// Starts a thread, and remembers it.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = shuttle::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    STARTED.with_borrow_mut(|started| started.push(thread));
    Ok(())
}

pub(crate) fn now() -> Instant {
    *ORIGIN + CLOCK.get()
}

pub(crate) fn monotonic() -> Time {
    Time(1).after(CLOCK.get())
}

/// Somebody sleeps for `limit` at most: others go on, and now and then all of it passes.
pub(crate) fn time_passes(limit: Duration) {
    shuttle::thread::yield_now();
    if thread_rng().gen_bool(0.1) {
        CLOCK.set(CLOCK.get() + limit);
    }
}

/// The model's own, with limits.
#[derive(Debug, Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    /// Ends early, always: whoever waits looks again. Whoever rings waits for the lock meanwhile, and has said so before.
    #[allow(clippy::type_complexity)]
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        time_passes(limit);
        Ok((guard, ()))
    }
}
