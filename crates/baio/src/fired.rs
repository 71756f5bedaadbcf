//! Waking several at once: if one of their wakers panics, the others are woken all the same.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakers that are to be woken, and others that are only to be dropped. Both may run anybody's code, so it is done with nothing borrowed.
/// Who is left when one of them panics is woken by the drop.
pub(crate) struct Fired {
    /// In reverse: the last is the next.
    wakers: Vec<Waker>,
    /// So many at the front of these are only dropped.
    idle: usize,
}

impl Fired {
    /// The first `count` of these are to be woken.
    pub(crate) fn first(mut wakers: Vec<Waker>, count: usize) -> Fired {
        let idle = wakers.len().saturating_sub(count);
        wakers.reverse();
        Fired { wakers, idle }
    }

    pub(crate) fn all(wakers: Vec<Waker>) -> Fired {
        let count = wakers.len();
        Fired::first(wakers, count)
    }

    /// Wakes them in their order, and then drops the others. The vector comes back empty, for the next ones.
    pub(crate) fn fire(mut self) -> Vec<Waker> {
        match std::thread::panicking() {
            true => self.go_on_quietly(),
            false => self.go_on(),
        }
        std::mem::take(&mut self.wakers)
    }

    fn go_on(&mut self) {
        while let Some(waker) = self.wakers.pop() {
            match self.wakers.len() < self.idle {
                true => drop(waker),
                false => waker.wake(),
            }
        }
    }

    /// A panic is under way: a second one would end the process.
    fn go_on_quietly(&mut self) {
        while !self.wakers.is_empty() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.go_on()));
        }
    }
}

impl Drop for Fired {
    fn drop(&mut self) {
        self.go_on_quietly();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    struct Counts(Arc<AtomicU32>, bool);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "the test wants a waker to panic");
        }
    }

    #[test]
    fn all_but_the_idle_are_woken_whoever_panics() {
        let woken = Arc::new(AtomicU32::new(0));
        let waker = |panics| Waker::from(Arc::new(Counts(Arc::clone(&woken), panics)));
        let wakers = vec![waker(true), waker(true), waker(false), waker(false)];
        let fired = Fired::first(wakers, 3);
        assert!(catch_unwind(AssertUnwindSafe(|| fired.fire())).is_err());
        assert_eq!(woken.load(Ordering::Relaxed), 3);
        assert_eq!(Arc::strong_count(&woken), 1, "none is kept");
    }
}
