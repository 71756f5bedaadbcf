//! Holding old records: [`Retained`] keeps its place among those whom truncation waits for.

use std::sync::Arc;
use std::task::{Poll, Waker};

use super::Lsn;
use super::shared::Shared;
use crate::slot_map::SlotKey;

/// Records from an LSN on are kept while this lives.
#[derive(Debug)]
#[must_use = "what is retained is let go when this is dropped"]
pub struct Retained {
    shared: Arc<Shared>,
    key: SlotKey,
}

impl Retained {
    pub(super) fn new(shared: &Arc<Shared>, from: Lsn) -> Retained {
        let key = shared.lock().retains.hold(from.0);
        Retained {
            shared: Arc::clone(shared),
            key,
        }
    }

    /// The oldest LSN that it keeps: at least the head that the log had when this was made.
    #[must_use]
    pub fn from(&self) -> Lsn {
        let front = self.shared.lock();
        Lsn(front.retains.from(self.key).unwrap_or(u64::MAX))
    }

    /// Lets go of the records below this LSN. It never goes back.
    pub fn advance(&self, to: Lsn) {
        let bell = {
            let mut front = self.shared.lock();
            let is_news = front.retains.advance(self.key, to.0);
            front.bell.clone().filter(|_| is_news)
        };
        bell.inspect(|bell| bell.ring());
    }

    /// How far somebody wanted to truncate, if that is further than this lets them.
    #[must_use]
    pub fn wanted(&self) -> Option<Lsn> {
        let front = self.shared.lock();
        let from = front.retains.from(self.key)?;
        (from < front.retains.wanted).then_some(Lsn(front.retains.wanted))
    }

    /// The same, waiting until somebody wants to.
    pub fn poll_wanted(&self, waker: &Waker) -> Poll<Lsn> {
        // A waker is others' code: it is cloned and dropped without the lock.
        let waker = waker.clone();
        let (wanted, _gone) = {
            let mut front = self.shared.lock();
            front.retains.poll_wanted(self.key, waker)
        };
        wanted.map(Lsn)
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        let (gone, bell) = {
            let mut front = self.shared.lock();
            let (gone, is_news) = front.retains.let_go(self.key);
            (gone, front.bell.clone().filter(|_| is_news))
        };
        drop(gone);
        bell.inspect(|bell| bell.ring());
    }
}
