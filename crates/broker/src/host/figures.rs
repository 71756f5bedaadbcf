//! The broker's figures, for other threads. The core is its own thread's: it is asked by the doorbell, and answers in its next round.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baio_engine::Doorbell;
use baio_storage::Counters;
use baio_words::session::BrokerStatus;

use super::Broker;

/// What a broker has counted, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// Of its core.
    pub counters: Counters,
    /// Of everybody who uses it.
    pub status: BrokerStatus,
}

/// Asks a broker for its figures, from any thread.
#[derive(Clone)]
pub struct Figures {
    shown: Arc<Shown>,
    doorbell: Doorbell,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

/// What both sides have.
#[derive(Default)]
struct Shown {
    /// Somebody waits: all that a round without one looks at.
    is_wanted: AtomicBool,
    latest: Mutex<Latest>,
    changed: Condvar,
}

#[derive(Default)]
struct Latest {
    /// Counts who has asked; and whose question the snapshot answers.
    asked: u64,
    answered: u64,
    snapshot: Option<Snapshot>,
    has_ended: bool,
}

impl Shown {
    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Figures {
    /// The figures of a moment after this call. `None` if the broker has ended, or has not come to it within `patience`.
    #[must_use]
    pub fn look(&self, patience: Duration) -> Option<Snapshot> {
        let mut latest = self.shown.latest();
        latest.asked += 1;
        let asked = latest.asked;
        // Other side: `show`, in the round that the doorbell begins.
        self.shown.is_wanted.store(true, Ordering::Release);
        self.doorbell.ring();
        let waits = |latest: &mut Latest| latest.answered < asked && !latest.has_ended;
        let waited = self.shown.changed.wait_timeout_while(latest, patience, waits);
        let (latest, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match latest.answered >= asked {
            true => latest.snapshot.clone(),
            false => None,
        }
    }
}

/// The broker's end. Nobody waits any more when it has gone.
#[derive(Default)]
pub(super) struct Shows(Arc<Shown>);

impl Drop for Shows {
    fn drop(&mut self) {
        self.0.latest().has_ended = true;
        self.0.changed.notify_all();
    }
}

impl Broker {
    /// Asks it for its figures from elsewhere.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            shown: Arc::clone(&self.shows.0),
            doorbell: self.core.engine().doorbell(),
        }
    }

    /// Shows them, if somebody waits.
    pub(super) fn show(&self) {
        let shown = &self.shows.0;
        if !shown.is_wanted.load(Ordering::Relaxed) {
            return;
        }
        // Who asks from here on is answered in another round.
        shown.is_wanted.store(false, Ordering::Relaxed);
        let asked = shown.latest().asked;
        let snapshot = Snapshot {
            counters: self.core.counters(),
            status: self.status_of(None),
        };
        let mut latest = shown.latest();
        latest.answered = asked;
        latest.snapshot = Some(snapshot);
        drop(latest);
        shown.changed.notify_all();
    }
}
