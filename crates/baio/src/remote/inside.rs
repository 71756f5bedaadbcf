//! Is this thread inside of a client's `block_on`? What is polled there needs no helper: the thread sends and reaps before
//! it sleeps.

use std::cell::Cell;
use std::sync::Arc;

use super::client::{self, Client};
use super::table::HELPER;

thread_local! {
    /// The client, by its address, and the thread's number as a reaper.
    static INSIDE: Cell<(*const Client, u64)> = const { Cell::new((std::ptr::null(), HELPER)) };
}

/// For the length of one `block_on`; the one outside of it comes back at its end.
pub(super) struct Inside {
    before: (*const Client, u64),
    pub(super) reaper: u64,
}

impl Inside {
    pub(super) fn enter(client: &Arc<Client>) -> Inside {
        let reaper = client::next_reaper();
        Inside {
            before: INSIDE.replace((Arc::as_ptr(client), reaper)),
            reaper,
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Who reaps for what this thread polls.
pub(super) fn reaper_of(client: &Arc<Client>) -> u64 {
    let (inside, reaper) = INSIDE.get();
    if inside == Arc::as_ptr(client) { reaper } else { HELPER }
}
