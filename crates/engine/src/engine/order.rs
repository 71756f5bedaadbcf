//! Order: none between requests, but for what a caller asks for and what safety demands.
//!
//! A fence starts when every write submitted before it to its file has ended. A write to bytes that an abandoned write may
//! still change waits for that one. Syncs of one file take turns (`syncs.rs`).

use super::Engine;
use crate::file::File;
use crate::policy::Caching;
use crate::request::{Op, RequestId};
use crate::slot::{Slot, State};

impl Engine {
    pub(super) fn enqueue(&mut self, id: RequestId) {
        let Some(slot) = self.slots.get(id) else { return };
        let (op, caching) = (slot.op, slot.policy.caching);
        match op {
            Op::Event => self.slots.transition(id, State::Held),
            _ if self.leftovers.block(slot) => self.hold(id),
            Op::Fence if self.must_wait_for_others(id) => self.hold(id),
            Op::Sync | Op::Fence => self.admit_sync(id),
            _ => {
                self.may_try |= caching == Caching::Kernel;
                self.queue.push(&self.slots, id);
            }
        }
    }

    fn hold(&mut self, id: RequestId) {
        self.slots.transition(id, State::Held);
        self.held.push(&self.slots, id);
    }

    fn admit(&mut self, id: RequestId) {
        let is_sync = |slot: &Slot| matches!(slot.op, Op::Sync | Op::Fence);
        if self.slots.get(id).is_some_and(is_sync) {
            self.admit_sync(id);
        } else {
            self.queue.push(&self.slots, id);
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
        self.held.swept(&self.slots);
        let mut held = std::mem::take(&mut self.held);
        let mut freed = std::mem::take(&mut self.freed);
        held.retain(|id| {
            let is_free = self.is_free_after(id, file, sequence);
            freed.extend(is_free.then_some(id));
            !is_free
        });
        self.held = held;
        for id in freed.drain(..) {
            self.slots.transition(id, State::Queued);
            self.admit(id);
        }
        self.freed = freed;
    }

    /// A write of this file, the one of this number, has ended: may this one go that waits for writes?
    fn is_free_after(&mut self, id: RequestId, file: &File, sequence: u64) -> bool {
        let Some(slot) = self.slots.get_mut(id) else {
            return false;
        };
        if slot.file.as_ref().is_none_or(|f| f.identity() != file.identity()) {
            return false;
        }
        match slot.op {
            Op::Fence => {
                slot.waits_for -= u32::from(slot.sequence > sequence);
                slot.waits_for == 0
            }
            _ => !self.must_wait_for_others(id),
        }
    }
}
