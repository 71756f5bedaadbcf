//! Who waits on a local link: for a place in the table of requests, or for a slot of the engine. Called one for one ([`Waiters`]), when all
//! tasks of a round were polled: so a task that loops takes the place that it has just given back, and costs what it costs alone. One in
//! so many newcomers ([`PASSES`]) leaves its place to who waits, so that nobody waits for as long as others loop.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use baio_client::{WaitPlace, Waiters};
use baio_engine::Time;

/// So many newcomers in a row may pass those who wait.
const PASSES: u32 = 4;

/// One of the two lists.
#[derive(Default)]
pub(crate) struct Room {
    waiting: RefCell<Waiters>,
    /// Kept for the next ones, so that waking allocates nothing.
    spare: Cell<Vec<Waker>>,
    /// How many places had been freed when somebody was woken last.
    freed: Cell<u64>,
    /// So many newcomers have passed since one stood in line.
    passed: Cell<u32>,
}

impl Room {
    pub(crate) fn wait(&self, place: &mut Option<WaitPlace>, waker: Waker, until: Option<Time>) {
        let left = self.waiting.borrow_mut().wait(place, waker, until);
        // With nothing borrowed: that may run anybody's code.
        drop(left);
    }

    /// When to look again: then the first of them gives up, or one that was called has not come.
    pub(crate) fn until(&self) -> Option<Time> {
        self.waiting.borrow().until()
    }

    /// Of `free` places, is there one for who stands here, or for a newcomer?
    pub(crate) fn may_enter(&self, place: Option<WaitPlace>, free: usize) -> bool {
        let waiting = self.waiting.borrow();
        if !waiting.may_enter(place, free) {
            return false;
        }
        if place.is_some() || waiting.is_empty() {
            return true;
        }
        let passed = self.passed.get();
        self.passed
            .set(if passed < PASSES { passed.wrapping_add(1) } else { 0 });
        passed < PASSES
    }

    /// Have places come free for those who wait, and nobody was called?
    pub(crate) fn owes(&self, freed: u64) -> bool {
        freed != self.freed.get() && !self.waiting.borrow().is_empty()
    }

    /// Calls as many as places have been freed since the last time, but no more than there are. Not because there *is* a place: it may be
    /// none for those who wait, and they would be called for ever. Was anybody called?
    pub(crate) fn call_if_freed(&self, freed: u64, free: usize) -> bool {
        let more = freed.wrapping_sub(self.freed.replace(freed));
        let waiting = self.waiting.borrow();
        let free = free.saturating_sub(waiting.kept());
        let is_for_some = more > 0 && free > 0 && !waiting.is_empty();
        drop(waiting);
        if is_for_some {
            let count = usize::try_from(more).map_or(free, |more| more.min(free));
            self.fire(|waiting, fired| waiting.wake_next(count, fired));
        }
        is_for_some
    }

    /// Every task was polled: who was called and has not come does not come. Were others called?
    pub(crate) fn lapse(&self) -> bool {
        if self.waiting.borrow().kept() > 0 {
            self.fire(Waiters::lapse);
        }
        self.waiting.borrow().kept() > 0
    }

    /// Wakes them all: the link has nobody to drive it any more, or has ended.
    pub(crate) fn wake_all(&self) {
        self.fire(Waiters::wake_all);
    }

    /// Wakes those who have waited long enough.
    pub(crate) fn wake_late(&self, now: impl FnOnce() -> Time) {
        if self.waiting.borrow().has_late() {
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
        fired.drain(..).for_each(Waker::wake);
        self.spare.set(fired);
    }
}
