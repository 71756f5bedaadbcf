//! Who still needs old records: an archiver, a replica. Truncation stops at the oldest LSN that one of them holds.

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
    /// Keys of all that are held.
    keys: Vec<SlotKey>,
    /// The highest LSN that was asked to be truncated to.
    pub(super) wanted: u64,
    /// The head that is being written now: nothing below can be held any more.
    pub(super) going_to: u64,
    /// Somebody has let go since the driver looked.
    pub(super) has_moved: bool,
}

impl Retains {
    fn hold(&mut self, from: u64) -> SlotKey {
        let from = from.max(self.going_to);
        let key = self.held.insert(Retain { from, waker: None });
        self.keys.push(key);
        key
    }

    /// How far truncation may go.
    pub(super) fn limit(&self) -> u64 {
        let held = self.keys.iter().filter_map(|key| self.held.get(*key));
        held.map(|retain| retain.from).min().unwrap_or(u64::MAX)
    }

    /// Truncation wants to go so far: those who are in its way hear it.
    pub(super) fn want(&mut self, to: u64, fired: &mut Vec<Fired>) {
        self.wanted = self.wanted.max(to);
        for key in &self.keys {
            if let Some(retain) = self.held.get_mut(*key) {
                if retain.from < self.wanted {
                    fired.extend(retain.waker.take().map(Fired::Wake));
                }
            }
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
            if let Some(retain) = front.retains.held.get_mut(self.key) {
                retain.from = retain.from.max(to.0);
            }
            front.retains.has_moved = true;
            front.bell.clone()
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
            let key = self.key;
            front.retains.keys.retain(|other| *other != key);
            front.retains.has_moved = true;
            (front.retains.held.remove(key), front.bell.clone())
        };
        drop(gone);
        bell.inspect(|bell| bell.ring());
    }
}
