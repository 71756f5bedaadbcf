//! Wakes a thread that sleeps in an engine's turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use baio_engine::Doorbell;

/// Wakes `block_on`: from the same thread by a flag, from another one by the doorbell too.
pub(crate) struct Alarm {
    rang: AtomicBool,
    asleep: AtomicBool,
    doorbell: Doorbell,
}

impl Alarm {
    /// One that has rung: there is something to be looked at.
    pub(crate) fn new(doorbell: Doorbell) -> Alarm {
        Alarm {
            rang: AtomicBool::new(true),
            asleep: AtomicBool::new(false),
            doorbell,
        }
    }

    /// Has it rung since it was last asked? Asking forgets.
    pub(crate) fn take(&self) -> bool {
        self.rang.swap(false, Ordering::SeqCst)
    }

    /// The thread is about to sleep. False: it has rung already.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        // SeqCst on both sides: either we see that it rang, or whoever rings sees us asleep and rings the doorbell.
        !self.rang.load(Ordering::SeqCst)
    }

    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.doorbell.ring();
        }
    }
}
