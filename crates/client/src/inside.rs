//! Is this thread inside of a client's `block_on`? What is polled there needs no helper: the thread sends and reaps before
//! it sleeps.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::thread_local;
use crate::table::HELPER;

thread_local! {
    /// The client, by its address, and the thread's number as a reaper.
    static INSIDE: Cell<(*const (), u64)> = const { Cell::new((std::ptr::null(), HELPER)) };
}

/// For the length of one `block_on`.
pub(crate) struct Inside {
    before: (*const (), u64),
    pub(crate) reaper: u64,
}

impl Inside {
    pub(crate) fn enter<C>(client: &Arc<C>) -> Inside {
        let reaper = next_reaper();
        Inside {
            before: INSIDE.with(|inside| inside.replace((address(client), reaper))),
            reaper,
        }
    }

    /// The one outside of it comes back.
    pub(crate) fn leave(&self) {
        INSIDE.with(|inside| inside.set(self.before));
    }
}

/// Who reaps for what this thread polls.
pub(crate) fn reaper_of<C>(client: &Arc<C>) -> u64 {
    let (inside, reaper) = INSIDE.with(Cell::get);
    if inside == address(client) { reaper } else { HELPER }
}

fn address<C>(client: &Arc<C>) -> *const () {
    Arc::as_ptr(client).cast()
}

/// A number for a thread that reaps for itself.
pub(crate) fn next_reaper() -> u64 {
    static REAPERS: AtomicU64 = AtomicU64::new(HELPER + 1);
    REAPERS.fetch_add(1, Ordering::Relaxed)
}
