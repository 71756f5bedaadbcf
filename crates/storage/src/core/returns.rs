//! Pinned pages that may be let go on any thread: they find their way back to the core by themselves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use baio_engine::Doorbell;

use super::Core;
use crate::request::PinnedPage;

/// What was let go and not yet taken back.
pub(super) struct Returns {
    pins: Mutex<Vec<PinnedPage>>,
    /// Looked at by each turn without the lock.
    has_any: AtomicBool,
    doorbell: Doorbell,
}

impl Returns {
    pub(super) fn new(doorbell: Doorbell) -> Arc<Returns> {
        Arc::new(Returns {
            pins: Mutex::default(),
            has_any: AtomicBool::new(false),
            doorbell,
        })
    }
}

/// A page held in a core's memory until this is dropped, on whatever thread. Its bytes are the core's to show: [`Core::page`],
/// [`Core::change`].
pub struct HeldPage {
    /// `None` only while it is dropped.
    pin: Option<PinnedPage>,
    returns: Arc<Returns>,
}

impl std::fmt::Debug for HeldPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldPage({:?})", self.pin.as_ref().map(PinnedPage::page))
    }
}

impl HeldPage {
    /// The pin, while it is held.
    #[must_use]
    pub fn pin(&self) -> Option<&PinnedPage> {
        self.pin.as_ref()
    }
}

impl Drop for HeldPage {
    fn drop(&mut self) {
        let mut pins = self.returns.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.extend(self.pin.take());
        self.returns.has_any.store(true, Ordering::Release);
        drop(pins);
        // Somebody may wait for its frame.
        self.returns.doorbell.ring();
    }
}

impl Core {
    /// Has the pin given back when it is dropped, wherever that is; the next turn takes it back.
    #[must_use]
    pub fn hold(&self, pin: PinnedPage) -> HeldPage {
        HeldPage {
            pin: Some(pin),
            returns: Arc::clone(&self.returns),
        }
    }

    /// Takes back what was let go elsewhere.
    pub(super) fn take_returned(&mut self) {
        if !self.returns.has_any.swap(false, Ordering::Acquire) {
            return;
        }
        let pins = std::mem::take(&mut *self.returns.pins.lock().unwrap_or_else(PoisonError::into_inner));
        pins.into_iter().for_each(|pin| self.unpin(pin));
    }
}
