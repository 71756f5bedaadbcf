//! Which cached writes have ended, or have failed and left bytes, and are in no sync yet: what goes with the service that has them.
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

/// What the end of a request means for them: of a sync the good one, of a write any that leaves bytes.
pub(crate) enum Counted {
    /// One more.
    Write(Arc<Unsynced>),
    /// One more, unless it ends well: it was to be durable then.
    Durable(Arc<Unsynced>),
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
        let is_kept = op.changes_bytes() && mode == Mode::Cached;
        let how = if is_durable { Counted::Durable } else { Counted::Write };
        is_kept.then(unsynced).flatten().map(how)
    }

    /// It has ended so. Under the client's lock, as all others.
    pub(crate) fn ends(&self, well: bool) {
        match self {
            Counted::Durable(_) if well => {}
            Counted::Write(unsynced) | Counted::Durable(unsynced) => _ = unsynced.ended.fetch_add(1, Ordering::AcqRel),
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
        write(Durability::Data).unwrap().ends(true);
        assert!(!unsynced.is_any());
        write(Durability::None).unwrap().ends(true);
        assert!(unsynced.is_any());
        assert!(count(SegmentOp::Sync, Durability::None).is_none());
        let early = count(SegmentOp::Sync, Durability::Data).unwrap();
        write(Durability::None).unwrap().ends(true);
        let late = count(SegmentOp::Fence, Durability::Full).unwrap();
        early.ends(true);
        assert!(unsynced.is_any());
        late.ends(true);
        early.ends(true);
        assert!(!unsynced.is_any());
    }
}
