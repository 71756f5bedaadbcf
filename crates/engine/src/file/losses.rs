//! What syncs of a file have lost: a failed one poisons those behind it until the file's owner acknowledges it.

use std::cell::Cell;

use crate::error::Errno;

#[derive(Default)]
pub(super) struct Losses {
    /// The first failed sync, until the owner acknowledges it.
    poison: Cell<Option<Errno>>,
    /// How many have failed so far, and the last failure: acknowledging forgets neither.
    failures: Cell<(u64, Option<Errno>)>,
}

impl Losses {
    pub(super) fn acknowledge(&self) -> Option<Errno> {
        self.poison.take()
    }

    pub(super) fn poisoned(&self) -> Option<Errno> {
        self.poison.get()
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.get().0
    }

    pub(super) fn failed_since(&self, failures: u64) -> Option<Errno> {
        let (now, last) = self.failures.get();
        last.filter(|_| now != failures)
    }

    pub(super) fn poison(&self, errno: Errno) {
        self.failures.set((self.failures() + 1, Some(errno)));
        if self.poison.get().is_none() {
            self.poison.set(Some(errno));
        }
    }
}
