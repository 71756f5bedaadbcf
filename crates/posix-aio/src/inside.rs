//! Is this thread inside the library? A signal handler that has interrupted it there must not wait for a lock that the same thread holds.

use std::cell::Cell;

thread_local! {
    // Const and without a destructor: a plain word of the thread, which a handler may look at.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Inside, as long as it lasts. Several may end in any order.
pub(crate) struct Inside(());

pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// This thread, among those of the process; never 0.
pub(crate) fn this_thread() -> usize {
    DEPTH.with(|depth| std::ptr::from_ref(depth).addr())
}

impl Inside {
    pub(crate) fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
