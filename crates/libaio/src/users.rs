//! How many threads are in a call on a context.

use std::sync::atomic::{AtomicU32, Ordering};

/// Zeros are nobody: the kernel wipes them in a forked child.
#[repr(transparent)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn come(&self) {
        // SeqCst: whoever changed what one looks at next did so before, or sees this one.
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        // Release: who finds nobody here sees what this one did.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// How many beside one who is counted? Whoever comes later finds what was stored, SeqCst, before this one asked.
    pub(crate) fn others(&self) -> u32 {
        self.0.load(Ordering::SeqCst).saturating_sub(1)
    }

    /// Have all left?
    pub(crate) fn is_nobody(&self) -> bool {
        // SeqCst, as above; it acquires what they did.
        self.0.load(Ordering::SeqCst) == 0
    }
}
