//! Who waits for a slot of a local link, and until when.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use baio_engine::Time;

type Waiting = Vec<(Waker, Option<Time>)>;

#[derive(Default)]
pub(crate) struct Room {
    waiting: RefCell<Waiting>,
    /// Kept for the next ones, so that waiting allocates nothing.
    spare: Cell<Waiting>,
    /// How many places had been freed when they were woken last.
    freed: Cell<u64>,
}

impl Room {
    pub(crate) fn add(&self, waker: Waker, until: Option<Time>) {
        let mut waiting = self.waiting.borrow_mut();
        match waiting.iter_mut().find(|(other, _)| other.will_wake(&waker)) {
            // One waker may be that of several futures: the first deadline wakes them all to look.
            Some((_, known)) => *known = known.iter().copied().chain(until).min(),
            None => return waiting.push((waker, until)),
        }
        // The copy that is not needed is dropped with nothing borrowed: that may run anybody's code.
        drop(waiting);
        drop(waker);
    }

    /// When the first of them gives up.
    pub(crate) fn until(&self) -> Option<Time> {
        self.waiting.borrow().iter().filter_map(|(_, until)| *until).min()
    }

    /// Wakes them all if more places than before have been freed. Not because there *is* a place: it may be none for those
    /// who wait, and they would be woken for ever.
    pub(crate) fn wake_if_freed(&self, freed: u64) {
        if self.freed.replace(freed) != freed {
            self.wake();
        }
    }

    /// Wakes them all: there may be a slot, or one has waited long enough.
    pub(crate) fn wake(&self) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        // A list that was used before takes the place of this one.
        let mut waiting = self.spare.take();
        std::mem::swap(&mut waiting, &mut *self.waiting.borrow_mut());
        waiting.drain(..).for_each(|(waker, _)| waker.wake());
        self.spare.set(waiting);
    }
}
