//! Where memory changes sides within one process: one place per request, used by whoever the rings say owns it.
//!
//! An entry names a run of the arena by offset and length, which is all that another process could say. Within one process
//! that would need an `unsafe` conversion back into a buffer, sound only if the peer tells the truth. So the buffer itself
//! waits here, at the place that the entry's tag names, and the service checks that it is the run that the entry names
//! (`docs/inside/decisions/0009-memory-moves-through-a-table.md`).
//!
//! Each place has a lock of its own, which is never waited for: the rings hand a place back and forth, so both sides want
//! it at the same time only if one of them is wrong, and then it gets nothing.

use std::sync::{Mutex, TryLockError};

/// What waits at a place, where requests carry memory of the kind `M`, and a service is asked `C` and answers `R`.
#[derive(Debug)]
pub enum Parcel<M, C, R> {
    /// The memory of a request.
    Memory(M),
    /// A command.
    Command(Box<C>),
    /// Its answer.
    Reply(Box<R>),
}

/// The places.
#[derive(Debug)]
pub struct Exchange<T> {
    places: Box<[Mutex<Option<T>>]>,
}

impl<T> Exchange<T> {
    /// So many empty places.
    #[must_use]
    pub fn new(places: u32) -> Exchange<T> {
        Exchange {
            places: (0..places).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// How many.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.places.len() as u32
    }

    /// Leaves something for the other side. False when the place is not there, or not ours to use.
    #[must_use]
    pub fn put(&self, place: u32, what: T) -> bool {
        self.with(place, |slot| *slot = Some(what)).is_some()
    }

    /// Takes what lies there.
    #[must_use]
    pub fn take(&self, place: u32) -> Option<T> {
        self.with(place, Option::take).flatten()
    }

    fn with<R>(&self, place: u32, act: impl FnOnce(&mut Option<T>) -> R) -> Option<R> {
        match self.places.get(place as usize)?.try_lock() {
            Ok(mut slot) => Some(act(&mut slot)),
            // Whoever panicked did so elsewhere: nothing in here can.
            Err(TryLockError::Poisoned(slot)) => Some(act(&mut slot.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
