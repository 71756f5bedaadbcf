//! A cache hit can lend its pages: the reader gets the cache's own memory, read-only, without a copy.
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
//! Lent bytes never change: a borrower sees the bytes of the moment of lending, even if the page is changed, dropped, or its object deleted.
//! It gives them back by dropping them, on any thread, and notifies nobody. The cache looks when it wants a frame, wants to change
//! a page, or has lent as much as it may. So lending never waits, and a change of a lent page waits as it would for any frame.
//!
//! A run that was lent is kept, by its first page, until one of its pages changes or leaves, its frames are wanted, or a run of
//! another length is lent from that page on. Lending it again then costs one count, and not one for each page. Who has a run holds all
//! of its pages: so a shorter one is never a part of a longer, of which its borrower would hold more than is counted for him.
//!
//! **Two bounds**: each [`Borrower`] has its own limit, and all together may hold half of the frames. Beyond that nothing is lent, and the
//! reader asks for a copy.

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
        // Several cores may lend to one borrower. The count guards nothing but itself.
        let more = |held: u32| held.checked_add(pages).filter(|held| *held <= self.most);
        self.held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}

/// The memory of pages that follow one another.
type Run = [Option<Frozen>; PAGES_MAX];

const NO_PAGES: Run = [const { None }; PAGES_MAX];

/// Pages that are lent, as they were at that moment; given back when this is dropped.
#[derive(Debug)]
pub struct LentPages {
    run: Arc<Run>,
    count: u32,
    borrower: Borrower,
}

impl LentPages {
    /// Their bytes, page by page, 4 KiB each.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let pages = self.run[..self.count as usize].iter();
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
        self.run[..self.count as usize].get(nth)?.as_ref()
    }
}

impl Drop for LentPages {
    fn drop(&mut self) {
        self.borrower.held.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// A run that was lent, kept to be lent again: sixteen pages are sixteen counts to be changed, and their run is one.
#[derive(Debug)]
struct Loan {
    object: u32,
    first: u64,
    count: u32,
    frames: [u32; PAGES_MAX],
    run: Arc<Run>,
}

impl Loan {
    fn holds(&self, object: u32, page: u64) -> bool {
        self.object == object && (self.first..self.first + u64::from(self.count)).contains(&page)
    }
}

/// All runs that are kept. The frame of a run's first page knows its place here.
#[derive(Debug, Default)]
pub(super) struct Loans {
    slots: Vec<Option<Loan>>,
    free: Vec<u32>,
    /// Which was looked at last.
    hand: usize,
    /// Runs that nobody has, to be filled again.
    spare: Vec<Arc<Run>>,
    /// So many are refused before all is looked through again.
    rests: u32,
}

impl Loans {
    fn keep(&mut self, loan: Loan) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[place as usize] = Some(loan);
        place
    }

    /// The run that starts here, if it is of this length.
    fn find(&self, place: u32, count: usize) -> Option<&Loan> {
        let loan = self.slots.get(place as usize)?.as_ref()?;
        (loan.count as usize == count).then_some(loan)
    }
}

impl Cache {
    /// Lends these pages if all of them are here and whole, at most 16 (64 KiB). `None`: ask for a copy.
    pub fn lend(&mut self, id: ObjectId, pages: Range<u64>, borrower: &Borrower) -> Option<LentPages> {
        self.copy_late();
        let slot = self.object(id)?;
        let count = usize::try_from(pages.end.checked_sub(pages.start)?).ok()?;
        if count == 0 || count > PAGES_MAX {
            return None;
        }
        let first = self.objects[slot as usize].tree.get(pages.start)?;
        let run = match self.loans.find(self.frames.get(first).loan, count) {
            Some(loan) => {
                // It has not been changed since, and none of its pages has left.
                if !borrower.take(count as u32) {
                    return None;
                }
                for &frame in &loan.frames[..count] {
                    self.eviction.hit(frame);
                }
                Arc::clone(&loan.run)
            }
            None => self.lend_anew(slot, &pages, borrower)?,
        };
        self.stats.pages_hit += count as u64;
        self.stats.pages_lent += count as u64;
        let ahead = self.asked(slot, &pages);
        if !ahead.is_empty() {
            let _ = self.prefetch(id, &[ahead]); // There is such an object.
        }
        Some(LentPages {
            run,
            count: count as u32,
            borrower: borrower.clone(),
        })
    }

    /// Makes a run of these pages, which are not many, and keeps it.
    fn lend_anew(&mut self, slot: u32, pages: &Range<u64>, borrower: &Borrower) -> Option<Arc<Run>> {
        let object = &self.objects[slot as usize];
        let count = (pages.end - pages.start) as usize;
        let is_whole = pages.end.checked_mul(PAGE).is_some_and(|end| end <= object.size);
        let mut found = [(0, 0); PAGES_MAX];
        let found = &mut found[..count];
        // The first so many from there on; they are these if the last is.
        if !is_whole || object.tree.gang(pages.start, None, found) < count || found[count - 1].0 != pages.end - 1 {
            return None;
        }
        let are_readable = found
            .iter()
            .all(|(_, frame)| self.frames.get(*frame).state.is_readable());
        if !are_readable || !self.may_lend(found) || !borrower.take(count as u32) {
            return None;
        }
        // One of another length from the same page on. Who has it keeps it.
        self.end_loan(self.frames.get(found[0].1).loan);
        let mut run = self.loans.spare.pop().unwrap_or_else(|| Arc::new(NO_PAGES));
        let mut frames = [0; PAGES_MAX];
        let places = Arc::get_mut(&mut run)?; // Nobody has a spare one.
        for ((&mut (_, frame), place), kept) in found.iter_mut().zip(places).zip(&mut frames) {
            *place = self.frames.lend_out(frame);
            *kept = frame;
            let (was_ahead, again) = self.found(frame, 0..PAGE_BYTES);
            if again && !was_ahead {
                self.eviction.hit(frame);
            }
        }
        let place = self.loans.keep(Loan {
            object: slot,
            first: pages.start,
            count: count as u32,
            frames,
            run: Arc::clone(&run),
        });
        self.frames.get_mut(frames[0]).loan = place;
        Some(run)
    }

    /// May these pages be lent? Those that are lent already take no more room.
    fn may_lend(&mut self, found: &[(u64, u32)]) -> bool {
        let most = (self.frames.total() / 2).max(1);
        if self.lent_with(found) > most {
            if self.loans.rests > 0 {
                self.loans.rests -= 1;
                return false;
            }
            self.sweep_loans();
            // While all of it is held, not each who asks looks through it again.
            self.loans.rests = self.frames.lent() / PAGES_MAX as u32;
        }
        self.lent_with(found) <= most
    }

    fn lent_with(&self, found: &[(u64, u32)]) -> u32 {
        let new = found.iter().filter(|(_, frame)| !self.frames.get(*frame).lent);
        self.frames.lent() + new.count() as u32
    }

    /// Looks through all that is lent for what has come back.
    pub(super) fn sweep_loans(&mut self) {
        for place in 0..self.loans.slots.len() {
            self.end_idle_loan(place);
        }
        self.frames.sweep_lent();
    }

    /// Looks at a little of it, in turn.
    pub(super) fn look_at_loans(&mut self) {
        if self.frames.lent() == 0 {
            return;
        }
        self.loans.hand = match self.loans.hand + 1 {
            next if next < self.loans.slots.len() => next,
            _ => 0,
        };
        self.end_idle_loan(self.loans.hand);
        self.frames.look_at_lent();
    }

    fn end_idle_loan(&mut self, place: usize) {
        let loan = self.loans.slots.get(place).and_then(Option::as_ref);
        if loan.is_some_and(|loan| Arc::strong_count(&loan.run) == 1) {
            self.end_loan(place as u32);
        }
    }

    /// Keeps a run no longer; who has borrowed it has it still.
    fn end_loan(&mut self, place: u32) {
        let Some(Some(loan)) = self.loans.slots.get_mut(place as usize).map(Option::take) else {
            return;
        };
        self.loans.free.push(place);
        let Loan {
            mut run, frames, count, ..
        } = loan;
        let frames = &frames[..count as usize];
        self.frames.get_mut(frames[0]).loan = u32::MAX;
        if let Some(pages) = Arc::get_mut(&mut run) {
            *pages = NO_PAGES;
            self.loans.spare.push(run);
            for &frame in frames {
                self.frames.is_own(frame);
            }
        }
    }

    /// The page in this frame is about to change, or to leave: no run with it is lent again.
    pub(super) fn end_loans_of(&mut self, frame: u32) {
        let entry = self.frames.get(frame);
        if !entry.lent {
            return;
        }
        let (object, page) = (entry.object, entry.page);
        for first in page.saturating_sub(PAGES_MAX as u64 - 1)..=page {
            let Some(at) = self.objects[object as usize].tree.get(first) else {
                continue;
            };
            let place = self.frames.get(at).loan;
            let loan = self.loans.slots.get(place as usize).and_then(Option::as_ref);
            if loan.is_some_and(|loan| loan.holds(object, page)) {
                self.end_loan(place);
            }
        }
    }

    /// Can the bytes of this page be changed where they are?
    pub(super) fn has_own_bytes(&mut self, frame: u32) -> bool {
        self.end_loans_of(frame);
        self.frames.is_own(frame)
    }

    /// Before the bytes of a page are changed: if they are lent, the page gets other memory. Gives what to wait for.
    pub(super) fn own_bytes(&mut self, request: &mut Request, frame: u32) -> Option<Step> {
        if self.has_own_bytes(frame) || crate::seeded_bug("a-lent-page-is-changed-in-place") {
            return None;
        }
        // To look for a frame finds what has come back: this page too may be its frame's own by then, and must not make way.
        self.frames.pin(frame);
        let spare = self.frame_for(request);
        self.frames.unpin(frame);
        match spare {
            Some(spare) => self.copy_lent(frame, spare),
            None if self.frames.get(frame).lent => return Some(Step::Wait(Wait::FreeFrame)),
            None => {}
        }
        None
    }

    /// The same for who does not wait; says whether it could be done.
    pub(super) fn own_bytes_now(&mut self, frame: u32) -> bool {
        if self.has_own_bytes(frame) {
            return true;
        }
        if !self.frame_waiters.is_empty() {
            return false;
        }
        self.frames.pin(frame);
        let spare = self.obtain();
        self.frames.unpin(frame);
        if let Some(spare) = spare {
            self.copy_lent(frame, spare);
            return true;
        }
        !self.frames.get(frame).lent
    }

    fn copy_lent(&mut self, frame: u32, spare: u32) {
        if !self.frames.get(frame).lent {
            return self.frames.give_free(spare); // It has come back meanwhile.
        }
        self.stats.lent_copied += 1;
        self.frames.copy_lent(frame, spare);
        self.progress += 1;
    }
}
