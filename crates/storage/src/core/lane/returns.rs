//! What may be let go on any thread, and finds its way back to the core by itself: pinned pages, freezes, logs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use baio_engine::Doorbell;
use baio_process::fork::Life;

use super::logs::LogId;
use crate::core::Core;
use crate::core::lane::Lane;
use crate::crossing::ToTable;
use crate::request::PinnedPage;

pub(in crate::core) enum Returned {
    Pin(PinnedPage),
    Freeze(u64),
    Log(LogId),
}

/// What was let go and not yet taken back.
pub(in crate::core) struct Returns {
    list: Mutex<Vec<Returned>>,
    /// Looked at by each turn without the lock.
    has_any: AtomicBool,
    doorbell: Doorbell,
    born: Life,
}

impl Returns {
    pub(in crate::core) fn new(doorbell: Doorbell) -> Arc<Returns> {
        Arc::new(Returns {
            list: Mutex::default(),
            has_any: AtomicBool::new(false),
            doorbell,
            born: Life::now(),
        })
    }

    pub(in crate::core) fn add(&self, returned: Returned) {
        // A forked child's copies are of what its parent still holds, and a thread that is not there may hold the lock.
        if self.born.is_over() {
            return;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(returned);
        self.has_any.store(true, Ordering::Release);
        drop(list);
        // Somebody may wait for it.
        self.doorbell.ring();
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
        if let Some(pin) = self.pin.take() {
            self.returns.add(Returned::Pin(pin));
        }
    }
}

/// A volume that is kept still until this is dropped, on whatever thread.
pub struct HeldFreeze(Held);

enum Held {
    Here(u64, Arc<Returns>),
    // `None` only while it is dropped.
    Elsewhere(Life, Option<Box<dyn FnOnce() + Send + Sync>>),
}

impl HeldFreeze {
    /// One that another process keeps: `thaw` tells it, once.
    #[must_use]
    pub fn elsewhere(thaw: impl FnOnce() + Send + Sync + 'static) -> HeldFreeze {
        HeldFreeze(Held::Elsewhere(Life::now(), Some(Box::new(thaw))))
    }
}

impl std::fmt::Debug for HeldFreeze {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldFreeze")
    }
}

impl Drop for HeldFreeze {
    fn drop(&mut self) {
        match &mut self.0 {
            Held::Here(freeze, returns) => returns.add(Returned::Freeze(*freeze)),
            // A forked child's copy is of a freeze that its parent still needs.
            Held::Elsewhere(born, thaw) => match thaw.take() {
                Some(thaw) if born.is_over() => std::mem::forget(thaw),
                Some(thaw) => thaw(),
                None => {}
            },
        }
    }
}

impl Core {
    /// Has the pin given back when it is dropped, wherever that is; the next turn takes it back.
    #[must_use]
    pub fn hold(&self, pin: PinnedPage) -> HeldPage {
        HeldPage {
            pin: Some(pin),
            returns: Arc::clone(&self.lane.returns),
        }
    }

    /// Has the volume thawed when this is dropped, wherever that is; the next turn does it.
    #[must_use]
    pub fn hold_freeze(&self, freeze: u64) -> HeldFreeze {
        HeldFreeze(Held::Here(freeze, Arc::clone(&self.lane.returns)))
    }
}

impl Lane {
    /// Takes back what was let go elsewhere.
    pub(in crate::core) fn take_returned(&mut self) {
        // Mostly there is nothing, and to look costs less than to write. What is missed here rings the doorbell, and the next turn sees it.
        if !self.returns.has_any.load(Ordering::Relaxed) || !self.returns.has_any.swap(false, Ordering::Acquire) {
            return;
        }
        let list = std::mem::take(&mut *self.returns.list.lock().unwrap_or_else(PoisonError::into_inner));
        for returned in list {
            match returned {
                Returned::Pin(pin) => self.unpin(pin),
                Returned::Freeze(freeze) => self.to_table.push_back(ToTable::Thaw { freeze }),
                Returned::Log(id) => self.end_log(id),
            }
        }
    }
}
