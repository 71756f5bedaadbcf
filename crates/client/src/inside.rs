//! Is this thread inside of a client's `block_on`? What is polled there needs no helper: the thread sends and reaps before
//! it sleeps.

use std::cell::Cell;
use std::sync::Arc;

use crate::carrier::Carrier;
use crate::client::{self, Client};
use crate::table::HELPER;

thread_local! {
    /// The client, by its address, and the thread's number as a reaper.
    static INSIDE: Cell<(*const (), u64)> = const { Cell::new((std::ptr::null(), HELPER)) };
}

/// For the length of one `block_on`; the one outside of it comes back at its end.
pub(crate) struct Inside<'a, K: Carrier> {
    client: &'a Arc<Client<K>>,
    before: (*const (), u64),
    reaper: u64,
}

impl<'a, K: Carrier> Inside<'a, K> {
    pub(crate) fn enter(client: &'a Arc<Client<K>>) -> Inside<'a, K> {
        let reaper = client::next_reaper();
        Inside {
            client,
            before: INSIDE.replace((address(client), reaper)),
            reaper,
        }
    }
}

impl<K: Carrier> Drop for Inside<'_, K> {
    fn drop(&mut self) {
        INSIDE.set(self.before);
        self.client.leave(self.reaper);
    }
}

/// Who reaps for what this thread polls.
pub(crate) fn reaper_of<K: Carrier>(client: &Arc<Client<K>>) -> u64 {
    let (inside, reaper) = INSIDE.get();
    if inside == address(client) { reaper } else { HELPER }
}

fn address<K: Carrier>(client: &Arc<Client<K>>) -> *const () {
    Arc::as_ptr(client).cast()
}
