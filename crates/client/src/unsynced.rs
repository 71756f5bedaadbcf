//! Which cached writes have ended and are in no sync yet: what goes with the service that has them.
//!
//! One count for all handles of a client on one segment, since a sync by any of them covers the writes of all. A sync covers the writes
//! that had ended when it began.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use baio_words::{Durability, Mode, SegmentOp};

/// Of one segment.
#[derive(Debug, Default)]
pub struct Unsynced {
    ended: AtomicUsize,
    synced: AtomicUsize,
}

impl Unsynced {
    /// Are there any?
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.ended.load(Ordering::Acquire) != self.synced.load(Ordering::Acquire)
    }
}

/// What the good end of a request means for them.
pub(crate) enum Counted {
    /// One more.
    Write(Arc<Unsynced>),
    /// Those that had ended by then are safe.
    Sync(Arc<Unsynced>, usize),
}

impl Counted {
    /// Of a request that is about to be queued.
    pub(crate) fn of(
        op: SegmentOp,
        mode: Mode,
        durability: Durability,
        unsynced: impl FnOnce() -> Option<Arc<Unsynced>>,
    ) -> Option<Counted> {
        let is_durable = durability != Durability::None;
        if op.is_sync() {
            let unsynced = unsynced().filter(|_| is_durable)?;
            let ended = unsynced.ended.load(Ordering::Acquire);
            return Some(Counted::Sync(unsynced, ended));
        }
        let is_kept = op.changes_bytes() && mode == Mode::Cached && !is_durable;
        is_kept.then(unsynced).flatten().map(Counted::Write)
    }

    /// It has ended well. Under the client's lock, as all others.
    pub(crate) fn ends(&self) {
        match self {
            Counted::Write(unsynced) => _ = unsynced.ended.fetch_add(1, Ordering::AcqRel),
            Counted::Sync(unsynced, ended) => {
                // Syncs may end in another order than they began.
                let synced = unsynced.synced.load(Ordering::Acquire);
                unsynced.synced.store(synced.max(*ended), Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_what_had_ended_when_it_began() {
        let unsynced = Arc::new(Unsynced::default());
        let count = |op, durability| Counted::of(op, Mode::Cached, durability, || Some(Arc::clone(&unsynced)));
        let write = |durability| count(SegmentOp::Write { offset: 0 }, durability);
        assert!(write(Durability::Data).is_none());
        write(Durability::None).unwrap().ends();
        assert!(unsynced.is_any());
        assert!(count(SegmentOp::Sync, Durability::None).is_none());
        let early = count(SegmentOp::Sync, Durability::Data).unwrap();
        write(Durability::None).unwrap().ends();
        let late = count(SegmentOp::Fence, Durability::Full).unwrap();
        early.ends();
        assert!(unsynced.is_any());
        late.ends();
        early.ends();
        assert!(!unsynced.is_any());
    }
}
