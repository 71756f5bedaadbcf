//! Who waits on a local link: for a place in the table of requests, or for a slot of the engine. Woken one for one ([`Waiters`]).

use std::cell::{Cell, RefCell};
use std::task::Waker;

use baio_client::{WaitPlace, Waiters};
use baio_engine::Time;

use crate::fired::Fired;

/// One of the two lists.
#[derive(Default)]
pub(crate) struct Room {
    waiting: RefCell<Waiters>,
    /// Kept for the next ones, so that waking allocates nothing.
    spare: Cell<Vec<Waker>>,
    /// How many places had been freed at the end of the last borrow while somebody waited, or when the first of them came.
    freed: Cell<u64>,
}

impl Room {
    /// `freed`: how many places have been freed so far. While nobody waits nobody counts them, so the first who waits says where to begin.
    pub(crate) fn wait(&self, place: &mut Option<WaitPlace>, waker: Waker, until: Option<Time>, freed: u64) {
        if self.is_empty() {
            self.freed.set(freed);
        }
        let left = self.waiting.borrow_mut().wait(place, waker, until);
        // With nothing borrowed: that may run anybody's code.
        drop(left);
    }

    /// When the first of them gives up.
    pub(crate) fn until(&self) -> Option<Time> {
        self.waiting.borrow().until()
    }

    /// If anybody waits, how many places have been freed since the last time, but no more than there are: for so many of those who wait
    /// ([`Room::take_next`]). Not because there *is* a place: it may be none for them, and they would be woken for ever.
    pub(crate) fn free_for_waiters(&self, freed: u64, free: usize) -> usize {
        let more = freed.wrapping_sub(self.freed.replace(freed));
        match self.is_empty() {
            true => 0,
            false => usize::try_from(more).map_or(free, |more| more.min(free)),
        }
    }

    /// The wakers of this many of them, at most.
    pub(crate) fn take_next(&self, count: usize, into: &mut Vec<Waker>) {
        self.waiting.borrow_mut().wake_next(count, into);
    }

    /// Does nobody wait, or was everybody called?
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Wakes this many of them, at most. Was there anybody to be woken?
    pub(crate) fn wake_next(&self, count: usize) -> bool {
        let any = count > 0 && !self.is_empty();
        if any {
            self.fire(|waiting, fired| waiting.wake_next(count, fired));
        }
        any
    }

    /// Those of them all: the link has nobody to drive it any more, or has ended.
    pub(crate) fn take_wakers(&self, into: &mut Vec<Waker>) {
        self.waiting.borrow_mut().wake_all(into);
    }

    /// Wakes those who have waited long enough.
    pub(crate) fn wake_late(&self, now: impl FnOnce() -> Time) {
        if self.until().is_some() {
            let now = now();
            self.fire(|waiting, fired| waiting.wake_late(now, fired));
        }
    }

    /// Somebody has what it waited for.
    pub(crate) fn served(&self, place: WaitPlace) {
        let left = self.waiting.borrow_mut().served(place);
        drop(left);
    }

    /// Somebody waits no more; a wake that it has had is the next one's.
    pub(crate) fn leave(&self, place: WaitPlace) {
        let mut left = None;
        self.fire(|waiting, fired| left = waiting.leave(place, fired));
        drop(left);
    }

    fn fire(&self, choose: impl FnOnce(&mut Waiters, &mut Vec<Waker>)) {
        let mut fired = self.spare.take();
        choose(&mut self.waiting.borrow_mut(), &mut fired);
        self.spare.set(Fired::all(fired).fire());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_before_the_first_came_calls_nobody() {
        let room = Room::default();
        let mut place = None;
        room.wait(&mut place, Waker::noop().clone(), None, 7);
        assert_eq!(room.free_for_waiters(7, 3), 0);
        assert_eq!(room.free_for_waiters(8, 3), 1);
        // A second one does not move where the counting stands.
        room.wait(&mut None, Waker::noop().clone(), None, 9);
        assert_eq!(room.free_for_waiters(9, 3), 1);
        // All are called: what was freed then is not counted for the next one.
        room.take_next(2, &mut Vec::new());
        room.wait(&mut place, Waker::noop().clone(), None, 20);
        assert_eq!(room.free_for_waiters(20, 3), 0);
    }
}
