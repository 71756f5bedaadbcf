//! What both halves of a log share: the appending one, of any thread, and the driver.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use baio_engine::Arena;
use baio_process::fork::Life;

use super::Lsn;
use super::front::Front;
use super::recent::Recent;
use super::sleepers::Beds;

/// What both halves of a log share.
pub(super) struct Shared {
    /// Everything below is durable, in whole groups.
    durable: AtomicU64,
    /// First LSN of this epoch: some below may be lost, which the front knows.
    epoch_first: AtomicU64,
    /// A forked child has a copy that nobody drives, and whose lock a thread that is not there may hold: it has a front of its own.
    pub(super) born: Life,
    arena: Arc<Arena>,
    front: Mutex<Front>,
    childs: OnceLock<Mutex<Front>>,
    /// Where threads sleep, without the lock.
    pub(super) beds: Beds,
    /// Locked before the front, never while that is held.
    recent: Mutex<Recent>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log(durable {})", self.durable())
    }
}

impl Shared {
    pub(super) fn new(front: Front, recent: Recent) -> Shared {
        Shared {
            durable: AtomicU64::new(0),
            epoch_first: AtomicU64::new(0),
            born: Life::now(),
            arena: Arc::clone(front.arena()),
            front: Mutex::new(front),
            childs: OnceLock::new(),
            beds: Beds::new(),
            recent: Mutex::new(recent),
        }
    }

    /// The latest batches. No appender waits for this lock: the driver and those who read take it, for a moment.
    pub(super) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic under the lock leaves numbers behind that are whole: nothing there is half-way when it calls out.
    pub(super) fn lock(&self) -> MutexGuard<'_, Front> {
        let front = match self.born.is_over() {
            false => &self.front,
            true => self.childs.get_or_init(|| {
                let lsn = Lsn(self.durable());
                Mutex::new(Front::of_a_child(&self.arena, lsn))
            }),
        };
        front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn durable(&self) -> u64 {
        // Acquire: whoever sees this LSN sees what the driver did before it said so.
        self.durable.load(Ordering::Acquire)
    }

    /// Is it durable, without a look at what may be lost?
    pub(super) fn is_durable(&self, lsn: u64) -> bool {
        // Relaxed: stored once, before an LSN of its epoch is durable.
        lsn < self.durable() && lsn >= self.epoch_first.load(Ordering::Relaxed)
    }

    /// Before `set_durable` says so.
    pub(super) fn set_epoch_first(&self, lsn: u64) {
        self.epoch_first.store(lsn, Ordering::Relaxed);
    }

    /// The driver alone stores, under the lock, so that nobody begins to wait in between.
    pub(super) fn set_durable(&self, lsn: u64) {
        // Release: pairs with the load in `durable`.
        self.durable.store(lsn, Ordering::Release);
    }
}
