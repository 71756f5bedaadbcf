//! A hit can lend its pages: who reads gets their memory itself, read-only, and nothing is copied.
//!
//! ```text
//!   page in its frame --lend--> the same memory, shared: the page stays, is not evicted, is read, lent again, written to the device
//!        |                                   |
//!        | somebody changes it               | the last borrower drops it
//!        v                                   v
//!   the page gets another frame's memory     the frame is its own again
//!   and a copy of the bytes; that frame
//!   waits for the old memory (`Lent`)
//! ```
//!
//! What is lent never changes: a borrower sees the bytes of the moment, also when the page is changed, dropped, or its object deleted.
//! It gives them back by dropping them, on whatever thread, and tells nobody: the cache looks when it wants a frame, wants to change
//! a page, or has lent as much as it may. So lending never waits, and whoever changes a lent page waits as for any frame.
//!
//! **Two bounds**: each [`Borrower`] holds no more than it may, and all together a quarter of the frames. Beyond, nothing is lent, and who
//! wants to read asks for a copy.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use baio_engine::Frozen;

use super::Cache;
use super::frames::{PAGE, PAGE_BYTES};
use super::object::ObjectId;
use super::request::Request;
use super::settle::Step;
use super::wait::Wait;

/// Pages that are lent together.
const PAGES_MAX: usize = 16;

/// Who borrows pages, and how many it may hold at once. Its clones are the same borrower.
#[derive(Clone, Debug)]
pub struct Borrower {
    held: Arc<AtomicU32>,
    most: u32,
}

impl Borrower {
    /// One who may hold pages of so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Borrower {
        Borrower {
            held: Arc::default(),
            most: u32::try_from(bytes_max / PAGE_BYTES).unwrap_or(u32::MAX),
        }
    }

    /// Bytes that it holds now.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed) as usize * PAGE_BYTES
    }

    fn take(&self, pages: u32) -> bool {
        // Borrowing is the core's thread alone; others only give back. The count guards nothing but itself.
        let held = self.held.load(Ordering::Relaxed);
        let fits = held.checked_add(pages).is_some_and(|held| held <= self.most);
        if fits {
            self.held.fetch_add(pages, Ordering::Relaxed);
        }
        fits
    }
}

/// Pages that are lent, as they were at that moment; given back when this is dropped.
#[derive(Debug)]
pub struct LentPages {
    pages: [Option<Frozen>; PAGES_MAX],
    count: u32,
    borrower: Borrower,
}

impl LentPages {
    /// Their bytes, page by page, 4 KiB each.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let pages = self.pages[..self.count as usize].iter();
        pages.map(|page| page.as_deref().unwrap_or(&[]))
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize * PAGE_BYTES
    }

    /// Never: nobody borrows nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One page as memory of a request: to be written elsewhere, or sent. A clone of it is not counted, and the page stays lent as
    /// long as there is one.
    #[must_use]
    pub fn frozen(&self, nth: usize) -> Option<&Frozen> {
        self.pages.get(nth)?.as_ref()
    }
}

impl Drop for LentPages {
    fn drop(&mut self) {
        self.borrower.held.fetch_sub(self.count, Ordering::Relaxed);
    }
}

impl Cache {
    /// Lends these pages if all of them are here and whole, at most 16 (64 KiB). `None`: ask for a copy.
    pub fn lend(&mut self, id: ObjectId, pages: Range<u64>, borrower: &Borrower) -> Option<LentPages> {
        self.copy_late();
        let slot = self.object(id)?;
        let object = &self.objects[slot as usize];
        let count = pages.end.checked_sub(pages.start)? as usize;
        let is_whole = pages.end.checked_mul(PAGE).is_some_and(|end| end <= object.size);
        let mut found = [(0, 0); PAGES_MAX];
        let found = found.get_mut(..count).filter(|_| is_whole && count > 0)?;
        // The first so many from there on; they are these if the last is.
        if object.tree.gang(pages.start, None, found) < count || found[count - 1].0 != pages.end - 1 {
            return None;
        }
        let are_readable = found
            .iter()
            .all(|(_, frame)| self.frames.get(*frame).state.is_readable());
        if !are_readable || !self.may_lend(count as u32) || !borrower.take(count as u32) {
            return None;
        }
        let mut lent = LentPages {
            pages: [const { None }; PAGES_MAX],
            count: count as u32,
            borrower: borrower.clone(),
        };
        for (&mut (_, frame), place) in found.iter_mut().zip(&mut lent.pages) {
            *place = Some(self.frames.lend_out(frame)?);
            self.used_again(frame, 0..PAGE_BYTES);
        }
        self.stats.pages_lent += count as u64;
        let ahead = self.asked(slot, &pages);
        if !ahead.is_empty() {
            let _ = self.prefetch(id, &[ahead]); // There is such an object.
        }
        Some(lent)
    }

    /// May so many pages more be lent?
    fn may_lend(&mut self, count: u32) -> bool {
        let most = (self.frames.total() / 4).max(1);
        if self.frames.lent() + count > most {
            if self.lend_rests > 0 {
                self.lend_rests -= 1;
                return false;
            }
            self.frames.sweep_lent();
            // While all of it is held, not each who asks looks through it again.
            self.lend_rests = self.frames.lent() / PAGES_MAX as u32;
        }
        self.frames.lent() + count <= most
    }

    /// Before the bytes of a page are changed: if they are lent, the page gets other memory. Gives what to wait for.
    pub(super) fn own_bytes(&mut self, request: &mut Request, frame: u32) -> Option<Step> {
        if self.frames.is_own(frame) || crate::seeded_bug("a-lent-page-is-changed-in-place") {
            return None;
        }
        let Some(spare) = self.frame_for(request) else {
            return Some(Step::Wait(Wait::FreeFrame));
        };
        self.copy_lent(frame, spare);
        None
    }

    /// The same for who does not wait; says whether it could be done.
    pub(super) fn own_bytes_now(&mut self, frame: u32) -> bool {
        if self.frames.is_own(frame) {
            return true;
        }
        if !self.frame_waiters.is_empty() {
            return false;
        }
        let spare = self.obtain();
        spare.map(|spare| self.copy_lent(frame, spare)).is_some()
    }

    fn copy_lent(&mut self, frame: u32, spare: u32) {
        self.stats.lent_copied += 1;
        self.frames.copy_lent(frame, spare);
        self.progress += 1;
    }
}
