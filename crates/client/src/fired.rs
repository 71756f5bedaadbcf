//! Waking those for whom something came, with the lock free.

use std::task::Waker;

use crate::sync::{AtomicUsize, Ordering};

/// Wakers that are being woken. If one panics, the others are woken all the same.
pub(crate) struct Fired<'a> {
    pub(crate) wakers: Vec<Waker>,
    telling: Option<&'a AtomicUsize>,
}

impl<'a> Fired<'a> {
    /// To be called under the lock: its next holder sees that there are wake-ups to be sent.
    pub(crate) fn new(wakers: Vec<Waker>, telling: &'a AtomicUsize) -> Fired<'a> {
        let telling = (!wakers.is_empty()).then_some(telling);
        if let Some(telling) = telling {
            telling.fetch_add(1, Ordering::Relaxed);
        }
        Fired { wakers, telling }
    }

    pub(crate) fn wake(&mut self) {
        self.wakers.reverse(); // In the order in which their requests ended.
        while let Some(waker) = self.wakers.pop() {
            waker.wake();
        }
    }
}

impl Drop for Fired<'_> {
    fn drop(&mut self) {
        self.wake();
        // Other side: `block_on`, which then looks whether it was woken.
        if let Some(telling) = self.telling {
            telling.fetch_sub(1, Ordering::Release);
        }
    }
}
