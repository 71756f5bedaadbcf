//! Waiting: a request waits for one condition of one thing, and nothing else wakes it (seed 001 §7.2).
//!
//! The paper's retry storm came from wake-ups for the wrong condition: a retry that was woken, found nothing to do and queued
//! itself again. Here a waiter names the condition, and it is looked at twice: when something changes, to pick exactly the
//! waiters for which it holds, and once more before the iteration begins, because those woken before it may have undone it. A
//! request whose condition no longer holds waits on without an iteration.
//!
//! Each thing that can be waited for has one list, first come first served; the links lie here, by request slot, so waiting
//! allocates nothing.

/// What a request waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing.
    #[default]
    None,
    /// The fill of the page in this frame has ended.
    Filled(u32),
    /// The write-back of the page in this frame has ended.
    WriteBackEnded(u32),
    /// The log is durable as far as the last change of the page in this frame, or never will be.
    Ungated(u32),
    /// The page in this frame may be changed under this LSN: nobody waits for it to be written, and it is not being written.
    Changeable(u32, u64),
    /// This page, in this frame, is neither filled nor written, does not wait for a log that goes on, and nobody holds on to it.
    Settled(u32, u64),
    /// A frame: it is handed over with the wake-up.
    FreeFrame,
    /// Room for one more page of this account that is not clean: it is granted with the wake-up.
    DirtyBelowLimit(u32),
    /// No reservation stands in the way at this page of this object.
    Unreserved(u32, u64),
    /// Its pages are safe (a sync); ended by whoever finds that, without an iteration.
    Synced,
    /// The device reads into its memory; ended in the same way.
    Bypassing,
}

const NONE: u32 = u32::MAX;

/// A list of request slots, in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE }
    }
}

impl List {
    pub(super) fn is_empty(self) -> bool {
        self.head == NONE
    }

    pub(super) fn first(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

/// The links of all lists, by request slot. A request is on one list at most.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: Vec<(u32, u32)>,
}

impl Links {
    /// Makes room for request slot `slot`.
    pub(super) fn cover(&mut self, slot: u32) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, (NONE, NONE));
        }
    }

    pub(super) fn push(&mut self, list: &mut List, slot: u32) {
        self.links[slot as usize] = (list.tail, NONE);
        match list.tail {
            NONE => list.head = slot,
            tail => self.links[tail as usize].1 = slot,
        }
        list.tail = slot;
    }

    pub(super) fn remove(&mut self, list: &mut List, slot: u32) {
        let (before, after) = self.links[slot as usize];
        match before {
            NONE => list.head = after,
            before => self.links[before as usize].1 = after,
        }
        match after {
            NONE => list.tail = before,
            after => self.links[after as usize].0 = before,
        }
        self.links[slot as usize] = (NONE, NONE);
    }

    pub(super) fn after(&self, slot: u32) -> Option<u32> {
        let after = self.links[slot as usize].1;
        (after != NONE).then_some(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order() {
        let (mut links, mut list) = (Links::default(), List::default());
        for slot in 0..4 {
            links.cover(slot);
            links.push(&mut list, slot);
        }
        links.remove(&mut list, 0);
        links.remove(&mut list, 2);
        links.push(&mut list, 0);
        links.remove(&mut list, 3);
        let mut seen = Vec::new();
        let mut at = list.first();
        while let Some(slot) = at {
            seen.push(slot);
            at = links.after(slot);
        }
        assert_eq!(seen, [1, 0]);
        links.remove(&mut list, 1);
        links.remove(&mut list, 0);
        assert!(list.is_empty());
    }
}
