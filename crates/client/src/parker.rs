//! Where a thread of the client sleeps: on the bell, when it is the one who reaps, else on a condition of its own. Wakers
//! need not know which.

use std::sync::Arc;
use std::task::Wake;
use std::time::Instant;

use crate::carrier::{Between, Carrier};
use crate::sync::{self, AtomicBool, AtomicU8, Condvar, Mutex, Ordering, PoisonError};

const AWAKE: u8 = 0;
const ON_BELL: u8 = 1;
const PARKED: u8 = 2;

/// A place to sleep, used by one thread at a time and again by another later. A wake-up meant for an earlier user is one
/// look for nothing.
pub(crate) struct Parker<K: Carrier> {
    shared: Arc<Between<K>>,
    rung: AtomicBool,
    place: AtomicU8,
    lock: Mutex<()>,
    condition: Condvar,
}

impl<K: Carrier> Parker<K> {
    pub(crate) fn new(shared: &Arc<Between<K>>) -> Arc<Parker<K>> {
        Arc::new(Parker {
            shared: Arc::clone(shared),
            rung: AtomicBool::new(false),
            place: AtomicU8::new(AWAKE),
            lock: Mutex::new(()),
            condition: Condvar::new(),
        })
    }

    /// Was it woken since it was last asked? Asking forgets.
    pub(crate) fn take(&self) -> bool {
        // SeqCst: see `ring`. What the waker did before is seen.
        self.rung.swap(false, Ordering::SeqCst)
    }

    /// Was it woken?
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    pub(crate) fn ring(&self) {
        // Other side: `sleep`, which says where it sleeps and then looks here. SeqCst on both sides: either it sees this,
        // or we see where it sleeps. Whoever rang before us and was not heard yet has done the rest.
        if self.rung.swap(true, Ordering::SeqCst) {
            return;
        }
        match self.place.load(Ordering::SeqCst) {
            ON_BELL => self.shared.bell.ring(),
            PARKED => {
                // Through the lock: between its look and its sleep nobody can ring unheard.
                drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
                self.condition.notify_one();
            }
            _ => {}
        }
    }

    /// Sleeps on the bell until that rings, this is woken, or `until` is over.
    pub(crate) fn sleep_on_bell(&self, until: Option<Instant>) {
        self.place.store(ON_BELL, Ordering::SeqCst);
        if !self.is_rung() {
            let limit = until.map(|until| until.saturating_duration_since(sync::now()));
            self.shared.bell.sleep(limit);
        }
        // Relaxed: who still sees the old place rings for nothing.
        self.place.store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps until this is woken, or `until` is over.
    pub(crate) fn park(&self, until: Option<Instant>) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.place.store(PARKED, Ordering::SeqCst);
        while !self.is_rung() {
            guard = match until {
                None => self.condition.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let limit = until.saturating_duration_since(sync::now());
                    if limit.is_zero() {
                        break;
                    }
                    let waited = self.condition.wait_timeout(guard, limit);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        self.place.store(AWAKE, Ordering::Relaxed);
    }
}

impl<K: Carrier> Wake for Parker<K> {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
