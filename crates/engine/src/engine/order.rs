//! Order: none between requests, but for what a caller asks for and what safety demands.
//!
//! A fence starts when every write submitted before it to its file has ended. A write to bytes that an abandoned write may
//! still change waits for that one. Syncs of one file take turns (`syncs.rs`).

use super::Engine;
use crate::file::File;
use crate::request::{Op, RequestId};
use crate::slot::{Slot, State};

impl Engine {
    pub(super) fn enqueue(&mut self, id: RequestId) {
        if self.slots.get(id).is_some_and(|slot| slot.op == Op::Event) {
            self.slots.transition(id, State::Held);
        } else if self.must_wait_for_others(id) {
            self.slots.transition(id, State::Held);
            self.held.push(id);
        } else {
            self.admit(id);
        }
    }

    fn admit(&mut self, id: RequestId) {
        if self
            .slots
            .get(id)
            .is_some_and(|slot| matches!(slot.op, Op::Sync | Op::Fence))
        {
            self.admit_sync(id);
        } else {
            self.queue.push(id);
        }
    }

    /// Orders that a request must keep: a fence comes after the writes before it; a write comes after an abandoned write
    /// to the same bytes, which may still land.
    pub(super) fn must_wait_for_others(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.slots.get(id) else {
            return false;
        };
        let Some(file) = &slot.file else { return false };
        let same_file = |other: &Slot| other.file.as_ref().is_some_and(|f| f.identity() == file.identity());
        match slot.op {
            Op::Fence => {
                let earlier = |other: &Slot| other.op.is_write() && other.sequence < slot.sequence && same_file(other);
                let count = self.slots.iter().filter(|(_, s)| earlier(s)).count() as u32;
                if let Some(slot) = self.slots.get_mut(id) {
                    slot.waits_for = count;
                }
                count > 0
            }
            _ => self.leftovers.block(slot),
        }
    }

    /// A write has ended: fences count down, and whoever waited for it may go.
    pub(super) fn wake_held(&mut self, file: &File, sequence: u64) {
        for index in (0..self.held.len()).rev() {
            let id = self.held[index];
            let Some(slot) = self.slots.get_mut(id) else {
                continue;
            };
            let same = slot.file.as_ref().is_some_and(|f| f.identity() == file.identity());
            if !same {
                continue;
            }
            let free = match slot.op {
                // Held for another sync's sake: not by writes.
                Op::Sync => false,
                _ if slot.is_syncing => false,
                Op::Fence if slot.waits_for == 0 => false,
                Op::Fence => {
                    slot.waits_for -= u32::from(slot.sequence > sequence);
                    slot.waits_for == 0
                }
                _ => !self.must_wait_for_others(id),
            };
            if free {
                self.held.remove(index);
                self.slots.transition(id, State::Queued);
                self.admit(id);
            }
        }
    }
}
