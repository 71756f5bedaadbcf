//! Objects that change while they are in use: they grow, they shrink, they go away.
//!
//! | what happens to it | what the cache does |
//! |---|---|
//! | it grows | nothing that is cached changes; what was refused fits now. One that grows by itself does so with each page of a write past its end, when that is copied: its end is changed, then, and reaches the device with its last page |
//! | it is about to shrink | whoever shrinks it reserves what is to be cut off ([`CacheOp::Reserve`], [`CacheOp::Cut`]): what is cached there is made safe and dropped, and whoever comes there waits. So a shrink that fails has lost nothing. A cut throws away what cannot be written |
//! | it has shrunk | reads that waited there end short, writes as [`CacheError::PastEnd`] |
//! | it is about to go | every request on it ends as [`CacheError::NoObject`]; pages stay, in case it does not go after all |
//! | it has gone | pages are thrown away, changed or not; those that an I/O still has, when that has ended |
//!
//! The slot of an object that has gone is used again only when the last of its I/Os is back: no late end of one can be
//! taken for that of another object.

use super::frames::FrameState;
use super::object::ObjectId;
use super::request::{CacheError, CacheOp};
use super::window::Streams;
use super::{Cache, PAGE_BYTES};

impl Cache {
    /// Writes past its end make it longer from now on.
    pub fn let_grow(&mut self, id: ObjectId) {
        if let Some(slot) = self.object(id) {
            self.objects[slot as usize].grows = true;
        }
    }

    /// May the device hold less of the object than its size says? Its last page is not on the device, then.
    #[must_use]
    pub(crate) fn ends_on_its_way(&self, id: ObjectId) -> bool {
        let Some(slot) = self.object(id) else { return false };
        let object = &self.objects[slot as usize];
        let last = object.pages().checked_sub(1).and_then(|page| object.tree.get(page));
        let state = last.map(|frame| self.frames.get(frame).state);
        object.grows && state.is_some_and(|state| state.is_dirty() || state == FrameState::WriteBack)
    }

    /// Must its last page be on the device before a read up to `end` goes there? Only if the device, of so many bytes, ends before
    /// that, and the bytes asked for do not make it longer.
    #[must_use]
    pub(crate) fn must_reach(&self, id: ObjectId, end: u64, device_bytes: u64) -> bool {
        let Some(slot) = self.object(id) else { return false };
        let object = &self.objects[slot as usize];
        let end = end.min(object.size);
        let last = end
            .checked_sub(1)
            .and_then(|at| object.tree.get(at / PAGE_BYTES as u64));
        let is_changed = |frame| {
            let state: FrameState = self.frames.get(frame).state;
            state.is_dirty() || state == FrameState::WriteBack
        };
        end > device_bytes && !last.is_some_and(is_changed)
    }

    /// How many bytes the object has; `None` if it does not exist.
    #[must_use]
    pub fn size(&self, id: ObjectId) -> u64 {
        self.object(id).map_or(0, |slot| self.objects[slot as usize].size)
    }

    /// The object has this many bytes now, which are more than it had.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn grow(&mut self, id: ObjectId, size_bytes: u64) -> Result<(), CacheError> {
        let slot = self.object(id).ok_or(CacheError::NoObject)?;
        let object = &mut self.objects[slot as usize];
        object.size = object.size.max(size_bytes);
        Ok(())
    }

    /// The object has this many bytes now, which are fewer than it had: else nothing is changed.
    /// Whoever says so holds a granted reservation of all behind them, with the rest of their last page, and releases it afterwards.
    ///
    /// # Errors
    /// `NoObject`; `Busy` when something is cached there, and nothing is changed then.
    pub fn shrink(&mut self, id: ObjectId, size_bytes: u64) -> Result<(), CacheError> {
        let slot = self.object(id).ok_or(CacheError::NoObject)?;
        let pages = size_bytes.div_ceil(PAGE_BYTES as u64);
        if self.objects[slot as usize].tree.next(pages, None).is_some() {
            return Err(CacheError::Busy);
        }
        let object = &mut self.objects[slot as usize];
        object.size = object.size.min(size_bytes);
        let grows = object.grows;
        for at in self.requests.on(slot) {
            let Some(request) = self.requests.get_mut(at) else {
                continue;
            };
            request.ahead.end = request.ahead.end.min(pages);
            match request.op {
                CacheOp::Read { .. } => {
                    let left = usize::try_from(size_bytes.saturating_sub(request.start)).unwrap_or(usize::MAX);
                    request.len = request.len.min(left).max(request.done);
                }
                CacheOp::Write { .. } if grows => {} // It makes it longer again.
                _ if request.end() > size_bytes => request.told = Some(CacheError::PastEnd),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends every request on the object as `NoObject`. Its pages stay, and so do reservations that were granted.
    pub fn end_requests(&mut self, id: ObjectId) {
        if let Some(slot) = self.object(id) {
            self.end_all(slot);
            self.settle();
        }
    }

    fn end_all(&mut self, slot: u32) {
        self.copy_late();
        let requests = self.requests.on(slot);
        // First all stop waiting: the end of one must not wake another.
        for &request in &requests {
            if !crate::seeded_bug("the-ended-still-wait") {
                self.stop_waiting(request);
            }
        }
        self.copied.retain(|copied| !requests.contains(copied));
        for request in requests {
            self.finish_slot(request, Err(CacheError::NoObject));
        }
    }

    /// Forgets an object, whatever is under way on it: requests end as `NoObject`, and what was changed and not written is lost.
    /// A stale id does nothing.
    pub fn discard(&mut self, id: ObjectId) {
        let Some(slot) = self.object(id) else { return };
        self.end_all(slot);
        let object = &mut self.objects[slot as usize];
        object.live = false;
        object.generation = object.generation.wrapping_add(1);
        object.passes.clear();
        object.next_flush.clear();
        object.reservations.clear();
        object.streams = Streams::new();
        self.passing.retain(|&passing| passing != slot);
        self.drop_discarded(slot);
        self.settle();
    }

    /// Forgets an object. Gives the number of pages that were changed and not safe, and are lost with it: 0 after a sync.
    ///
    /// # Errors
    /// `Busy` while a request, an I/O or a reservation exists.
    pub fn remove(&mut self, id: ObjectId) -> Result<u64, CacheError> {
        let slot = self.object(id).ok_or(CacheError::NoObject)?;
        if self.is_busy(slot) {
            return Err(CacheError::Busy);
        }
        let lost = self.objects[slot as usize].not_safe();
        self.drop_all(slot);
        self.set_dirty_since(slot, None);
        self.leave_gate(slot);
        self.leave_account(slot);
        let object = &mut self.objects[slot as usize];
        let generation = object.generation.wrapping_add(1);
        *object = object.emptied(generation);
        self.passing.retain(|&passing| passing != slot);
        self.free_objects.push(slot);
        self.settle(); // Its pages' frames, and their room below the dirty limit, go to who waits.
        Ok(lost)
    }

    /// Forgets an object of which nothing can be lost.
    ///
    /// # Errors
    /// `Busy` while a request, an I/O or a reservation exists, a page that is not safe, or a pin.
    pub fn forget(&mut self, id: ObjectId) -> Result<(), CacheError> {
        self.object(id).ok_or(CacheError::NoObject)?;
        if !self.may_forget(id) {
            return Err(CacheError::Busy);
        }
        self.remove(id).map(drop)
    }

    /// Could it be forgotten now? So could one that is not there.
    pub(crate) fn may_forget(&self, id: ObjectId) -> bool {
        let Some(slot) = self.object(id) else { return true };
        let object = &self.objects[slot as usize];
        object.not_safe() == 0 && object.lent == 0 && !self.is_busy(slot)
    }

    /// Is anything under way on it: a request, an I/O, a reservation?
    fn is_busy(&self, slot: u32) -> bool {
        let object = &self.objects[slot as usize];
        object.requests > 0 || object.flights > 0 || !object.reservations.is_empty()
    }

    fn drop_all(&mut self, slot: u32) {
        while let Some((_, frame)) = self.objects[slot as usize].tree.next(0, None) {
            self.drop_page(frame);
        }
        self.objects[slot as usize].streams = Streams::new();
    }

    /// Drops what no I/O has of an object that was discarded; after the last I/O its slot is free.
    pub(super) fn drop_discarded(&mut self, slot: u32) {
        if self.objects[slot as usize].live {
            return;
        }
        let mut at = 0;
        while let Some((page, frame)) = self.objects[slot as usize].tree.next(at, None) {
            at = page + 1;
            let entry = self.frames.get(frame);
            if !entry.state.is_busy() && !entry.stuck {
                self.drop_page(frame);
            }
        }
        self.set_dirty_since(slot, None);
        let object = &self.objects[slot as usize];
        if object.flights == 0 && object.tree.next(0, None).is_none() {
            self.leave_gate(slot);
            self.leave_account(slot);
            let object = &mut self.objects[slot as usize];
            *object = object.emptied(object.generation);
            self.free_objects.push(slot);
        }
    }
}
