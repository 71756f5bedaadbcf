//! Who still needs old records: an archiver, a replica. Truncation stops at the oldest LSN that one of them holds.

use std::collections::BTreeSet;
use std::task::{Poll, Waker};

use super::waits::Fired;
use crate::slot_map::{SlotKey, SlotMap};

#[derive(Debug)]
pub(super) struct Retain {
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
    pub(super) fn hold(&mut self, from: u64) -> SlotKey {
        let from = from.max(self.going_to);
        let key = self.held.insert(Retain { from, waker: None });
        self.order.insert((from, key.index));
        key
    }

    /// Is the driver to be told? Only when truncation wants to go on, may go further than before, and nobody has told him.
    pub(super) fn advance(&mut self, key: SlotKey, to: u64) -> bool {
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
    pub(super) fn let_go(&mut self, key: SlotKey) -> (Option<Retain>, bool) {
        let before = self.limit();
        let gone = self.held.remove(key);
        if let Some(retain) = &gone {
            self.order.remove(&(retain.from, key.index));
        }
        (gone, self.is_news(before))
    }

    /// The LSN from which on it holds; nothing of one that has let go.
    pub(super) fn from(&self, key: SlotKey) -> Option<u64> {
        self.held.get(key).map(|retain| retain.from)
    }

    /// The LSN to which truncation waits for it, else the waker hears when it does; and the waker that was kept before.
    pub(super) fn poll_wanted(&mut self, key: SlotKey, waker: Waker) -> (Poll<u64>, Option<Waker>) {
        match self.held.get_mut(key) {
            Some(retain) if retain.from < self.wanted => (Poll::Ready(self.wanted), Some(waker)),
            Some(retain) => (Poll::Pending, retain.waker.replace(waker)),
            None => (Poll::Pending, Some(waker)),
        }
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
