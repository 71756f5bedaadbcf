//! Who still needs old records: an archiver, a replica. Truncation stops at the oldest LSN that one of them holds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::Lsn;
use super::appender::Shared;
use super::waits::Fired;
use crate::slot_map::{SlotKey, SlotMap};

#[derive(Debug)]
struct Retain {
    from: u64,
    waker: Option<Waker>,
}

/// All who hold something, and how far truncation would like to go.
#[derive(Debug, Default)]
pub(super) struct Retains {
    held: SlotMap<Retain>,
    /// The LSN from which on each of them holds, and its number: the oldest first.
    order: BTreeSet<(u64, u32)>,
    /// The highest LSN that was asked to be truncated to.
    pub(super) wanted: u64,
    /// The head that is being written now: nothing below can be held any more.
    pub(super) going_to: u64,
    /// Who was in truncation's way has let go since the driver looked.
    has_moved: bool,
}

impl Retains {
    fn hold(&mut self, from: u64) -> SlotKey {
        let from = from.max(self.going_to);
        let key = self.held.insert(Retain { from, waker: None });
        self.order.insert((from, key.index));
        key
    }

    /// Is the driver to be told? Only when truncation wants to go on, may go further than before, and nobody has told him.
    fn advance(&mut self, key: SlotKey, to: u64) -> bool {
        let before = self.limit();
        let Some(retain) = self.held.get_mut(key) else {
            return false;
        };
        self.order.remove(&(retain.from, key.index));
        retain.from = retain.from.max(to);
        self.order.insert((retain.from, key.index));
        self.is_news(before)
    }

    /// What was held; and as [`Retains::advance`].
    fn let_go(&mut self, key: SlotKey) -> (Option<Retain>, bool) {
        let before = self.limit();
        let gone = self.held.remove(key);
        if let Some(retain) = &gone {
            self.order.remove(&(retain.from, key.index));
        }
        (gone, self.is_news(before))
    }

    fn is_news(&mut self, before: u64) -> bool {
        let may_go_on = before < self.wanted && before < self.limit();
        may_go_on && !std::mem::replace(&mut self.has_moved, true)
    }

    /// How far truncation wants to go, and may, when there is news of it.
    pub(super) fn take_news(&mut self) -> Option<(u64, u64)> {
        std::mem::take(&mut self.has_moved).then(|| (self.wanted, self.limit()))
    }

    /// How far truncation may go.
    pub(super) fn limit(&self) -> u64 {
        self.order.first().map_or(u64::MAX, |(from, _)| *from)
    }

    /// Truncation wants to go so far: those who are in its way hear it.
    pub(super) fn want(&mut self, to: u64, fired: &mut Vec<Fired>) {
        self.wanted = self.wanted.max(to);
        for (_, index) in self.order.range(..(self.wanted, 0)) {
            let waker = self.held.at_mut(*index).and_then(|retain| retain.waker.take());
            fired.extend(waker.map(Fired::Wake));
        }
    }
}

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

    /// The oldest LSN that it holds: at least the head that the log had when it was made.
    #[must_use]
    pub fn from(&self) -> Lsn {
        let front = self.shared.lock();
        Lsn(front.retains.held.get(self.key).map_or(u64::MAX, |retain| retain.from))
    }

    /// What is below this LSN may go now. It never goes back.
    pub fn advance(&self, to: Lsn) {
        let bell = {
            let mut front = self.shared.lock();
            let is_news = front.retains.advance(self.key, to.0);
            front.bell.clone().filter(|_| is_news)
        };
        bell.inspect(|bell| bell.ring());
    }

    /// Up to which LSN truncation waits for this one; nothing when it does not.
    #[must_use]
    pub fn wanted(&self) -> Option<Lsn> {
        let front = self.shared.lock();
        let from = front.retains.held.get(self.key)?.from;
        (from < front.retains.wanted).then_some(Lsn(front.retains.wanted))
    }

    /// The same, waiting until truncation does.
    pub fn poll_wanted(&self, waker: &Waker) -> Poll<Lsn> {
        if let Some(wanted) = self.wanted() {
            return Poll::Ready(wanted);
        }
        let waker = waker.clone();
        let old = {
            let mut front = self.shared.lock();
            let wanted = front.retains.wanted;
            match front.retains.held.get_mut(self.key) {
                Some(retain) if retain.from < wanted => return Poll::Ready(Lsn(wanted)),
                Some(retain) => retain.waker.replace(waker),
                None => None,
            }
        };
        drop(old);
        Poll::Pending
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
