//! A buffer pool of the caller's own: pages held by pins, read and changed where they lie.
//!
//! ```text
//!   pin_hit -------------------------------+--> PagePin --- page: &[u8]
//!   start(Pin) ... its end, with a pin ----+       |  \---- change(lsn): &mut [u8]
//!   start(PinNew): zero, nothing is read --+       v
//!                                               unpin
//! ```
//!
//! A pinned page is not evicted. It is written back like any other, and is not changed while that lasts; nor is it changed
//! when too many pages are dirty. [`Cache::change`] says so at once, and a [`CacheOp::Change`] waits for
//! the moment. Its LSN holds it behind the write gate (see `gate`).
//!
//! A pin is a name and no reference: every use checks that the frame still holds the page. So it may turn stale, when the page's
//! object is removed, and no memory is in danger.

use super::Cache;
use super::frames::{FrameState, PAGE, PAGE_BYTES};
use super::object::ObjectId;
use super::page_pin::PagePin;
use super::request::{CacheError, CacheOp, Request};
use super::settle::Step;
use super::wait::Wait;

impl CacheOp {
    /// Is it about one page, which must exist?
    pub(super) fn is_of_page(self) -> bool {
        matches!(
            self,
            CacheOp::Pin { .. } | CacheOp::PinNew { .. } | CacheOp::Change { .. }
        )
    }
}

impl Cache {
    /// Pins a page that is here: no request, nothing allocated. `None` if it is not here, or a direct write waits for its place:
    /// then ask by [`CacheOp::Pin`].
    pub fn pin_hit(&mut self, object: ObjectId, page: u64) -> Option<PagePin> {
        self.copy_late();
        let slot = self.object(object)?;
        let of = &self.objects[slot as usize];
        let frame = of.tree.get(page)?;
        let entry = self.frames.get(frame);
        if !entry.state.is_readable() || !of.reservations.is_empty() {
            return None;
        }
        self.stats.pins_hit += 1;
        self.used_again(frame, 0..PAGE_BYTES);
        Some(self.lend_pin(object, page, frame))
    }

    fn lend_pin(&mut self, object: ObjectId, page: u64, frame: u32) -> PagePin {
        let pool = &mut self.frames.get_mut(frame).pool;
        pool.lent = pool.lent.saturating_add(1);
        let (lent, epoch) = (pool.lent, pool.epoch);
        if lent == 1 {
            self.objects[object.slot as usize].lent += 1;
            self.frames.pin(frame);
        }
        PagePin {
            object,
            page,
            frame,
            epoch,
        }
    }

    /// Gives a pin back. Says whether something may have begun by that: a frame has come free for somebody, or a changed page may
    /// be written. A stale one is nothing.
    pub fn unpin(&mut self, pin: PagePin) -> bool {
        let Some(frame) = self.pinned(&pin) else {
            return false;
        };
        let pool = &mut self.frames.get_mut(frame).pool;
        pool.lent = pool.lent.saturating_sub(1);
        if pool.lent == 0 {
            self.objects[pin.object.slot as usize].lent -= 1;
            self.frames.unpin(frame);
        }
        let entry = self.frames.get(frame);
        let goes_on = entry.state != FrameState::Clean || !entry.waiters.is_empty() || !self.frame_waiters.is_empty();
        if goes_on {
            self.wake_page(frame);
            self.settle();
        }
        goes_on
    }

    /// The frame of a pin, while it holds the page.
    fn pinned(&self, pin: &PagePin) -> Option<u32> {
        let entry = self.frames.find(pin.frame)?;
        let is_it = entry.pool.epoch == pin.epoch && entry.page == pin.page && entry.object == pin.object.slot;
        (is_it && entry.pool.lent > 0).then_some(pin.frame)
    }

    /// The bytes of a pinned page: 4 KiB, less at the object's end.
    ///
    /// # Errors
    /// `StalePin`.
    pub fn page(&self, pin: &PagePin) -> Result<&[u8], CacheError> {
        let frame = self.pinned(pin).ok_or(CacheError::StalePin)?;
        let bytes = self.frames.bytes(frame);
        let valid = self.objects[pin.object.slot as usize].valid(pin.page);
        Ok(bytes.get(..valid).unwrap_or(bytes))
    }

    /// The bytes of a pinned page, to be changed now: it counts as changed under this LSN, 0 for what is not logged. What was
    /// changed is written when the log is durable up to the page's last LSN, by the cleaner or for a sync.
    ///
    /// # Errors
    /// Nothing was done, and a [`CacheOp::Change`] waits until it can be: `BeingWritten`, `NoRoom`,
    /// `LogFirst`. Once the log has failed it ends with `LogFirst` too. Else `StalePin`, `Stuck`, `Unwritable`.
    pub fn change(&mut self, pin: &PagePin, lsn: u64) -> Result<&mut [u8], CacheError> {
        let frame = self.pinned(pin).ok_or(CacheError::StalePin)?;
        let entry = self.frames.get(frame);
        if entry.stuck {
            return Err(CacheError::Stuck);
        }
        if entry.state == FrameState::WriteBack {
            return Err(CacheError::BeingWritten);
        }
        if self.must_wait(frame, lsn) {
            return Err(match entry.state {
                FrameState::Gated => CacheError::LogFirst(entry.pool.lsn),
                _ => CacheError::BeingWritten,
            });
        }
        if !entry.state.is_unsafe() {
            self.room_now(pin.object.slot)?;
        }
        if !self.own_bytes_now(frame) {
            return Err(CacheError::NoRoom);
        }
        self.version += 1;
        if !self.frames.get(frame).state.is_dirty() {
            self.frames.get_mut(frame).since = self.version;
            self.transition(frame, FrameState::Dirty);
        }
        self.progress += 1;
        self.note_lsn(frame, lsn);
        let valid = self.objects[pin.object.slot as usize].valid(pin.page);
        let bytes = self.frames.bytes_mut(frame);
        let valid = valid.min(bytes.len());
        Ok(&mut bytes[..valid])
    }

    /// May one more page of this object become dirty, without waiting?
    fn room_now(&self, object: u32) -> Result<(), CacheError> {
        if let Some(error) = self.too_many_unwritable(object) {
            return Err(error);
        }
        // Between calls nobody waits for room who could have it.
        if self.has_room(object) {
            Ok(())
        } else {
            Err(CacheError::NoRoom)
        }
    }

    /// Where a page begins, and how many bytes of it exist.
    pub(super) fn extent(&self, object: Option<u32>, page: u64) -> (u64, usize) {
        let valid = object.map_or(0, |slot| self.objects[slot as usize].valid(page));
        (page.saturating_mul(PAGE), valid)
    }

    /// One iteration of [`CacheOp::Pin`]: a read of one page that copies nothing.
    pub(super) fn pin_on(&mut self, request: &mut Request) -> Step {
        if let Some(error) = request.told {
            return Step::Done(Err(error));
        }
        let page = request.start / PAGE;
        loop {
            let Some(frame) = self.objects[request.object as usize].tree.get(page) else {
                if let Some(step) = self.bring_in(request, page) {
                    return step;
                }
                continue;
            };
            match self.frames.get(frame).state {
                state if state.is_readable() => {
                    let held = request.pinned.contains(&page);
                    if !held && !self.objects[request.object as usize].is_open(page, request.arrived) {
                        if let Some(frame) = request.granted.take() {
                            self.frames.give_free(frame);
                        }
                        return Step::Wait(Wait::Unreserved(request.object, page));
                    }
                    self.used(request, page, frame, 0..PAGE_BYTES);
                    let step = self.pin_done(request, page, frame);
                    self.read_ahead(request); // Now that this page cannot make way for it.
                    return step;
                }
                FrameState::Broken(errno) => return Step::Done(Err(CacheError::System(errno))),
                _ => {
                    self.start_window(request, page);
                    return Step::Wait(Wait::Filled(frame));
                }
            }
        }
    }

    /// One iteration of [`CacheOp::PinNew`](super::CacheOp::PinNew): a write of one page whose bytes are zero.
    pub(super) fn pin_new_on(&mut self, request: &mut Request, lsn: u64) -> Step {
        let page = request.start / PAGE;
        match self.change_page(request, page, lsn) {
            Err(step) => step,
            Ok(frame) => {
                self.frames.bytes_mut(frame).fill(0);
                self.pin_done(request, page, frame)
            }
        }
    }

    /// One iteration of [`CacheOp::Change`].
    pub(super) fn change_on(&mut self, request: &mut Request, lsn: u64) -> Step {
        let page = request.start / PAGE;
        let frame = self.objects[request.object as usize].tree.get(page);
        if frame.is_none_or(|frame| self.frames.get(frame).pool.lent == 0) {
            return Step::Done(Err(CacheError::StalePin));
        }
        match self.change_page(request, page, lsn) {
            Err(step) => step,
            Ok(_) => Step::Done(Ok(0)),
        }
    }

    /// Makes a page dirty under this LSN, whole and without touching its bytes; or says what to wait for.
    fn change_page(&mut self, request: &mut Request, page: u64, lsn: u64) -> Result<u32, Step> {
        if let Some(error) = request.told {
            return Err(Step::Done(Err(error)));
        }
        if let Some(frame) = self.objects[request.object as usize].tree.get(page) {
            if self.must_wait(frame, lsn) {
                return Err(Step::Wait(Wait::Changeable(frame, lsn)));
            }
        }
        // A write from no memory: all but the copy.
        if let Some(step) = self.write_page(request, page) {
            if step.is_shared() {
                self.let_go(request, u64::MAX);
            }
            return Err(step);
        }
        let Some(frame) = self.objects[request.object as usize].tree.get(page) else {
            return Err(Step::Done(Err(CacheError::StalePin))); // It was just put there: this does not happen.
        };
        self.note_lsn(frame, lsn);
        Ok(frame)
    }

    fn pin_done(&mut self, request: &mut Request, page: u64, frame: u32) -> Step {
        let slot = request.object;
        let generation = self.objects[slot as usize].generation;
        request.pin = Some(self.lend_pin(ObjectId { slot, generation }, page, frame));
        request.done = request.len;
        self.progress += 1;
        self.wake_page(frame); // A direct write that waited for its turn is refused now.
        Step::Done(Ok(0))
    }
}
