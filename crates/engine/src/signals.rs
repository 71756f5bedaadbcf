//! User events: requests that the application completes.
//!
//! An event is a request like any other, so work that ends elsewhere (a thread of the application, another library) arrives
//! in the same queue as disk and network I/O (seed 001 §9). On the engine's own thread [`Engine::signal`](crate::Engine::signal)
//! completes it; other threads use [`Signals`], which rings the engine's doorbell.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::Doorbell;
use crate::request::RequestId;

/// Completes events of one engine from any thread.
#[derive(Clone, Debug)]
pub struct Signals {
    posted: Arc<Posted>,
    doorbell: Doorbell,
}

#[derive(Debug, Default)]
pub(crate) struct Posted {
    /// How many are in the list: the engine looks at this in every turn, at the list only when it must.
    count: AtomicUsize,
    list: Mutex<Vec<(RequestId, u32)>>,
}

impl Signals {
    pub(crate) fn new(posted: Arc<Posted>, doorbell: Doorbell) -> Signals {
        Signals { posted, doorbell }
    }

    /// Completes the event `id` with `value` and wakes its engine. An event that has ended meanwhile is left alone.
    pub fn signal(&self, id: RequestId, value: u32) {
        let mut list = self.posted.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((id, value));
        // Release: the engine's turn that sees the count sees the entry (it takes the lock as well).
        self.posted.count.store(list.len(), Ordering::Release);
        drop(list);
        self.doorbell.ring();
    }
}

impl Posted {
    /// Was nothing posted, for all that is seen? One missed here rings the doorbell, and the next turn sees it.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: pairs with the release in `signal`.
        self.count.load(Ordering::Acquire) == 0
    }

    /// Moves what was posted to `taken`.
    pub(crate) fn take(&self, taken: &mut Vec<(RequestId, u32)>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        taken.append(&mut list);
        self.count.store(0, Ordering::Release);
    }
}
