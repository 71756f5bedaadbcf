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
pub(super) struct Inside<'a> {
    client: &'a Arc<Client>,
    before: (*const Client, u64),
    reaper: u64,
}

impl<'a> Inside<'a> {
    pub(super) fn enter(client: &'a Arc<Client>) -> Inside<'a> {
        let reaper = client::next_reaper();
        Inside {
            client,
            before: INSIDE.replace((Arc::as_ptr(client), reaper)),
            reaper,
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        INSIDE.set(self.before);
        self.client.leave(self.reaper);
    }
}

/// Who reaps for what this thread polls.
pub(super) fn reaper_of(client: &Arc<Client>) -> u64 {
    let (inside, reaper) = INSIDE.get();
    if inside == Arc::as_ptr(client) { reaper } else { HELPER }
}
