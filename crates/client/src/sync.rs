//! What the threads of a client share and sleep on, how they start, and the clocks they sleep by. In one place, so that a
//! model of schedules can put its own here and take every other file as it is. `Arc` is not among them: nobody waits on one.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
pub(crate) use std::thread_local;

use std::cell::Cell;
use std::io;
use std::time::Instant;

use baio_words::Time;

thread_local! {
    static LOCKS: Cell<u64> = const { Cell::new(0) };
}

/// This thread takes a lock that lies on the way of requests. Counted where builds check themselves.
pub(crate) fn note_lock() {
    if cfg!(debug_assertions) {
        LOCKS.set(LOCKS.get() + 1);
    }
}

/// How many of these this thread has taken: for tests.
#[doc(hidden)]
pub fn locks_taken() -> u64 {
    LOCKS.get()
}

/// Takes such a lock. Nobody leaves what lies behind it half changed, so one who panicked there did no harm.
pub fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    note_lock();
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread, and leaves it alone.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    baio_process::thread::named(name).start(work).map(drop)
}

/// The clock of a thread's waits.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The service's clock.
pub(crate) fn monotonic() -> Time {
    Time::monotonic()
}
