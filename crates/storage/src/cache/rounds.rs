//! Which objects have something to be done: so that nobody looks at all objects to find them.
//!
//! There may be ten thousand objects, of which few have a dirty page. What asks of all of them, at each turn or with each write, asks one
//! of these instead.

use std::collections::{BTreeSet, VecDeque};

use baio_engine::Time;

use super::Cache;
use super::tree::Tag;

/// Objects that take turns. One stands there once at most, as its flag in the object says, and perhaps longer than it has reason to.
pub(super) type Round = VecDeque<u32>;

/// Objects by how long they have had a dirty page that no pass has begun to write.
pub(super) type Ages = BTreeSet<(Time, u32)>;

impl Cache {
    /// Since when an object has had such a page; `None` for none.
    pub(super) fn set_dirty_since(&mut self, slot: u32, since: Option<Time>) {
        let before = std::mem::replace(&mut self.objects[slot as usize].dirty_since, since);
        if before == since {
            return;
        }
        if let Some(before) = before {
            self.ages.remove(&(before, slot));
        }
        if let Some(since) = since {
            self.ages.insert((since, slot));
        }
    }

    /// An object has a dirty page, or one that waits for a flush: it takes its turn.
    pub(super) fn take_turns(&mut self, slot: u32) {
        let object = &mut self.objects[slot as usize];
        if object.dirty > 0 && !std::mem::replace(&mut object.in_clean_round, true) {
            self.accounts.must_be_cleaned(object.account, slot);
        }
        let waits = object.unflushed > 0 && object.flush.is_none();
        if waits && !std::mem::replace(&mut object.in_flush_round, true) {
            self.flush_round.push_back(slot);
        }
    }

    /// Whose next dirty page is to be written, and which: account after account, of those whose writes have room.
    pub(super) fn next_to_clean(&mut self) -> Option<(u32, u64)> {
        let mut left = self.accounts.cleaning();
        while left > 0 {
            left -= 1;
            let account = self.accounts.next_cleaning()?;
            if self.has_depth(account) {
                if let Some(next) = self.next_to_clean_of(account, &mut left) {
                    return Some(next);
                }
                self.accounts.is_cleaned(account);
            }
        }
        None
    }

    /// The same of one account: object after object, each from where it was left. One that stands here for an object that has gone goes to
    /// the account that it is of, which is looked at once more.
    fn next_to_clean_of(&mut self, account: u32, left: &mut usize) -> Option<(u32, u64)> {
        while let Some(&slot) = self.accounts.round_of(account).front() {
            self.stats.objects_looked_at += 1;
            let object = &mut self.objects[slot as usize];
            let is_its = object.account == account; // It stands there for an object that has gone, else.
            if let Some((first, _)) = object.tree.next(object.resume, Some(Tag::Dirty)).filter(|_| is_its) {
                return Some((slot, first));
            }
            // The sweep is over: the next object's turn, and this one's from its beginning.
            object.resume = 0;
            self.accounts.round_of(account).pop_front();
            match object.dirty {
                0 => object.in_clean_round = false,
                _ => {
                    *left += usize::from(!is_its);
                    self.accounts.must_be_cleaned(object.account, slot);
                }
            }
        }
        None
    }

    /// Whose flush is next, of those that have none on its way.
    pub(super) fn next_to_flush(&mut self) -> Option<u32> {
        while let Some(slot) = self.flush_round.pop_front() {
            self.stats.objects_looked_at += 1;
            let object = &mut self.objects[slot as usize];
            object.in_flush_round = false;
            if object.unflushed > 0 && object.flush.is_none() {
                return Some(slot);
            }
        }
        None
    }
}
