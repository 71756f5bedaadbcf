//! The buffers of a copy, and where each one stands.
//!
//! ```text
//!   Free --> Reading --> Ready --> Writing --> Free
//! ```
//!
//! A slot has at most one request under way, so a copy with so many slots never has more requests in flight.
//! `Ready` lasts only on outputs that take their bytes in order.

use super::plan::Piece;
use baio::Buffer;

/// Where a slot stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody uses it.
    #[default]
    Free,
    /// Its buffer is being filled from the input.
    Reading,
    /// It waits for its turn to be written.
    Ready,
    /// Its buffer is being written.
    Writing,
}

/// One place for a piece under way.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) state: State,
    pub(super) piece: Piece,
    /// Its memory, whenever no request has it.
    pub(super) buffer: Option<Buffer>,
}

/// All places.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Slots {
        Slots {
            slots: (0..count).map(|_| Slot::default()).collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// Takes a free place for a piece.
    pub(super) fn take(&mut self, piece: Piece, state: State, buffer: Option<Buffer>) -> Option<usize> {
        let index = self.free.pop()?;
        let slot = self.slots.get_mut(index)?;
        *slot = Slot { state, piece, buffer };
        Some(index)
    }

    pub(super) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Is there only one?
    pub(super) fn is_one(&self) -> bool {
        self.slots.len() == 1
    }

    /// Is any of them in use?
    pub(super) fn are_busy(&self) -> bool {
        self.free.len() < self.slots.len()
    }

    pub(super) fn get(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index).filter(|slot| slot.state != State::Free)
    }

    /// Gives a place back, and its memory.
    pub(super) fn release(&mut self, index: usize) {
        if let Some(slot) = self.get(index) {
            *slot = Slot::default();
            self.free.push(index);
        }
    }
}
