//! What syncs of a file have lost: a failed one poisons those behind it until the file's owner acknowledges it.
//!
//! Engines in several threads may share the file. Each word is whole by itself; the count is written behind what it counts
//! (Release) and read before it (Acquire), so whoever sees that a sync has failed sees how.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Errno;

#[derive(Default)]
pub(super) struct Losses {
    /// The first failed sync, until the owner acknowledges it; else 0.
    poison: AtomicI32,
    /// How many have failed so far, and the last failure: acknowledging forgets neither.
    failures: AtomicU64,
    last: AtomicI32,
}

/// Those of the files that are open, by identity: what one description has lost the others have lost too.
static KNOWN: Mutex<Known> = Mutex::new(Known::new());

/// What some files have lost, as long as they are open.
pub(crate) struct Known {
    losses: BTreeMap<(u64, u64), Weak<Losses>>,
    /// So many there were after those of closed files had been swept out.
    swept_at: usize,
}

impl Known {
    pub(crate) const fn new() -> Known {
        Known {
            losses: BTreeMap::new(),
            swept_at: 0,
        }
    }

    pub(super) fn insert(&mut self, identity: (u64, u64), losses: &Arc<Losses>) {
        // A sweep for as many opens as there are files: an open costs the same among many.
        if self.losses.len() > 2 * self.swept_at + 16 {
            self.losses.retain(|_, losses| losses.strong_count() > 0);
            self.swept_at = self.losses.len();
        }
        self.losses.insert(identity, Arc::downgrade(losses));
    }

    /// All of them have lost something.
    pub(crate) fn poison(&self, errno: Errno) {
        for losses in self.losses.values().filter_map(Weak::upgrade) {
            losses.poison(errno);
        }
    }
}

impl Losses {
    /// Those of the file of this identity, by however many opens.
    pub(super) fn of(identity: (u64, u64)) -> Arc<Losses> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(losses) = known.losses.get(&identity).and_then(Weak::upgrade) {
            return losses;
        }
        let losses = Arc::new(Losses::default());
        known.insert(identity, &losses);
        losses
    }

    pub(super) fn acknowledge(&self) -> Option<Errno> {
        known(self.poison.swap(0, Ordering::AcqRel))
    }

    pub(super) fn poisoned(&self) -> Option<Errno> {
        known(self.poison.load(Ordering::Acquire))
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    pub(super) fn failed_since(&self, failures: u64) -> Option<Errno> {
        let now = self.failures();
        known(self.last.load(Ordering::Relaxed)).filter(|_| now != failures)
    }

    pub(super) fn poison(&self, errno: Errno) {
        self.last.store(errno.raw(), Ordering::Relaxed);
        // It stays if there is one already. Before the count: who has counted this failure sees the poison.
        let _ = self
            .poison
            .compare_exchange(0, errno.raw(), Ordering::AcqRel, Ordering::Acquire);
        self.failures.fetch_add(1, Ordering::Release);
    }
}

fn known(raw: i32) -> Option<Errno> {
    (raw != 0).then_some(Errno::from_raw(raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who sees that a sync has failed sees how: the count is the last that is written.
    #[test]
    fn a_failure_that_is_counted_is_known() {
        const FILES: i32 = 100_000;
        let files: Vec<Losses> = (0..FILES).map(|_| Losses::default()).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (number, losses) in (1..).zip(&files) {
                    losses.poison(Errno::from_raw(number));
                }
            });
            for (number, losses) in (1..).zip(&files) {
                while losses.failures() == 0 {
                    std::hint::spin_loop();
                }
                let errno = Some(Errno::from_raw(number));
                assert_eq!((losses.failed_since(0), losses.poisoned()), (errno, errno));
            }
        });
    }

    /// A first failure stays until it is acknowledged, and an acknowledgement forgets none for who began before it.
    #[test]
    fn failures_keep_their_order() {
        let (losses, io, space) = (Losses::default(), Some(Errno::EIO), Some(Errno::ENOSPC));
        losses.poison(Errno::EIO);
        losses.poison(Errno::ENOSPC);
        assert_eq!(
            (losses.poisoned(), losses.failed_since(0), losses.failed_since(1)),
            (io, space, space)
        );
        assert_eq!(
            (losses.acknowledge(), losses.acknowledge(), losses.poisoned()),
            (io, None, None)
        );
        assert_eq!((losses.failed_since(1), losses.failed_since(2)), (space, None));
    }
}
