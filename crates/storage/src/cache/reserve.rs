//! Reservations: a direct write has its range for itself (seed 001 §4).
//!
//! Direct and cached I/O on the same bytes are coherent by one rule: a direct write reserves its pages before it is submitted and
//! releases them when it has ended. A reservation waits for the fills and writes under way there, makes dirty pages safe,
//! drops all pages, and is granted. From its asking on newcomers stay out; those that came before it may finish. A direct read
//! needs only that what is dirty has been written out ([`CacheOp::WriteOut`](super::CacheOp::WriteOut)): pages stay.
//!
//! What is dirty is written a bounded number of writes at a time, and one flush at the end makes it safe; if one write is all there is
//! to do, that is a durable one. Only then do pages leave: a flush that failed later would find nothing to write again.
//!
//! **No call goes over more than a slice of pages**: the rest is put off ([`Cache::go_on`]), so that a direct write over gigabytes does
//! not hold up whoever else has the thread. Pages that are gone over stay so: newcomers are kept out, and what those who came
//! before do meanwhile is found at the end.

use std::ops::Range;

use baio_engine::Durability;

use super::Cache;
use super::frames::{FrameState, PAGE};
use super::object::{ObjectId, Reservation};
use super::request::{CacheError, CacheOp, Clearing, Request, RequestId};
use super::settle::Step;
use super::tree::Tag;
use super::wait::Wait;

impl Cache {
    /// From now on newcomers stay out of these pages.
    pub(super) fn reserve(&mut self, id: RequestId, object: u32, pages: Range<u64>) {
        let arrived = self.arrivals;
        self.objects[object as usize].reservations.push(Reservation {
            request: id.slot,
            generation: id.generation,
            arrived,
            pages,
            granted: false,
        });
    }

    pub(super) fn reserve_on(&mut self, slot: u32, request: &mut Request) -> Step {
        if let Some(error) = request.told.take() {
            // Of a page that is cut off nobody has to know.
            if first_cut(request).is_none_or(|first| first > request.clearing.safe) {
                return Step::Done(Err(error));
            }
        }
        let object = &self.objects[request.object as usize];
        let own = object
            .reservations
            .iter()
            .position(|held| held.request == slot && !held.granted);
        let Some(own) = own else {
            return Step::Done(Err(CacheError::Cancelled));
        };
        let pages = object.reservations[own].pages.clone();
        if !object.is_first(slot) {
            return Step::Wait(Wait::Unreserved(request.object, pages.start));
        }
        let mut left = self.slice;
        loop {
            if let Err(step) = self.make_safe_for(slot, request, &pages, &mut left) {
                return step;
            }
            match self.drop_for(request, &pages, &mut left) {
                Err(step) => return step,
                Ok(true) => break,
                Ok(false) => {}
            }
        }
        self.progress += 1;
        self.objects[request.object as usize].reservations[own].granted = true;
        Step::Done(Ok(0))
    }

    fn next_in(&self, object: u32, pages: &Range<u64>) -> Option<(u64, u32)> {
        let next = self.objects[object as usize].tree.next(pages.start, None);
        next.filter(|(page, _)| *page < pages.end)
    }

    /// One page more is gone over in this call, if that may be.
    fn go_over(&mut self, left: &mut u32) -> bool {
        let may = *left > 0;
        *left -= u32::from(may);
        self.stats.pages_gone_over += u64::from(may);
        may
    }

    /// Goes on through the range until all of it is safe, in page order; gives what to wait for.
    fn make_safe_for(
        &mut self,
        slot: u32,
        request: &mut Request,
        pages: &Range<u64>,
        left: &mut u32,
    ) -> Result<(), Step> {
        let careless = crate::seeded_bug("reserve-drops-changes");
        request.clearing.safe = request.clearing.safe.max(pages.start);
        while let Some((page, frame)) = self.next_in(request.object, &(request.clearing.safe..pages.end)) {
            if !self.go_over(left) {
                return Err(Step::PutOff);
            }
            request.clearing.safe = page;
            if self.is_thrown_away(request, page, frame) {
                // Not yet: another page of the range may still refuse the cut, and then nothing was lost.
                request.clearing.safe = page + 1;
                continue;
            }
            let entry = self.frames.get(frame);
            if entry.stuck {
                return Err(Step::Done(Err(CacheError::Stuck)));
            }
            if entry.pool.lent > 0 {
                return Err(Step::Done(Err(CacheError::Pinned))); // Who holds it may be the one who waits for this write.
            }
            let waits_for_flush = entry.state == FrameState::Unflushed && entry.pins == 0 && !request.clearing.flushes;
            if (self.is_due(frame) || waits_for_flush) && !careless {
                self.start_run(request, page..end_of_run(request, page, pages.end), left);
            }
            let entry = self.frames.get_mut(frame);
            let is_gated = entry.state == FrameState::Gated;
            entry.pool.wanted |= is_gated;
            // A page that is cut off is thrown away once nobody holds it.
            let is_cut = first_cut(request).is_some_and(|first| first <= page);
            if let Some(error) = self.never_written(frame).filter(|_| is_gated && !is_cut) {
                return Err(Step::Done(Err(error)));
            }
            let entry = self.frames.get(frame);
            if entry.state.is_busy() || entry.state == FrameState::Gated || entry.pins > 0 {
                self.look_ahead(request, pages, left);
                return Err(Step::Wait(Wait::Settled(frame, page)));
            }
            request.clearing.safe = page + 1;
        }
        request.clearing.safe = pages.end;
        let object = &mut self.objects[request.object as usize];
        let unflushed = object.tree.next(pages.start, Some(Tag::Unflushed));
        if unflushed.is_none_or(|(page, _)| page >= pages.end) || careless {
            return Ok(());
        }
        object.next_flush.push((slot, Durability::Data));
        if object.flush.is_none() {
            self.start_flush(request.object, Durability::Data);
        }
        Err(Step::Wait(Wait::Synced))
    }

    /// Is this page cut off as a whole, and cannot be written? Then nobody misses it.
    fn is_thrown_away(&self, request: &Request, page: u64, frame: u32) -> bool {
        let entry = self.frames.get(frame);
        let cannot_be = match entry.state {
            FrameState::Failed => true,
            FrameState::Gated => self.never_written(frame).is_some(),
            _ => false,
        };
        cannot_be && first_cut(request).is_some_and(|first| first <= page) && entry.pins == 0 && entry.pool.lent == 0
    }

    fn throw_away(&mut self, object: u32, page: u64, frame: u32) {
        let since = self.frames.get(frame).since;
        self.drop_page(frame);
        self.page_left_pass(object, page, since);
    }

    /// Must it be written, and can that begin? Who holds it may be about to change it.
    fn is_due(&self, frame: u32) -> bool {
        let entry = self.frames.get(frame);
        matches!(entry.state, FrameState::Dirty | FrameState::Failed) && entry.pins == 0
    }

    /// Starts the writes of a page that is not safe and of its neighbours. If they are all that is not, this is a durable write, also
    /// of what only waits for a flush; else a flush will make all safe together.
    fn start_run(&mut self, request: &mut Request, pages: Range<u64>, left: &mut u32) {
        let mut durability = Durability::None;
        let mut frames = Vec::new();
        if !request.clearing.flushes {
            frames = self.lone_run(request.object, &pages);
            durability = Durability::Data;
        }
        if frames.is_empty() {
            if !std::mem::replace(&mut request.clearing.flushes, true) {
                self.clearing += 1;
            }
            frames = self.run_of(request.object, pages.start, pages.end, u64::MAX, true);
            durability = Durability::None;
        }
        if frames.is_empty() {
            return self.flights.put_away(frames); // It waits for the flush.
        }
        let count = frames.len() as u32;
        request.clearing.started = request.clearing.started.max(pages.start + u64::from(count));
        // The first page has been counted.
        *left = left.saturating_sub(count - 1);
        self.stats.pages_gone_over += u64::from(count - 1);
        self.start_write(request.object, pages.start, frames, durability);
    }

    /// The pages from the first of these on that are not safe, if they follow one another, can be written at once, and no other of
    /// these has to be.
    fn lone_run(&mut self, object: u32, pages: &Range<u64>) -> Vec<u32> {
        let mut frames = self.flights.frames();
        let tree = &self.objects[object as usize].tree;
        for page in pages.clone().take(self.run_max()) {
            let Some(frame) = tree.get(page) else { break };
            let entry = self.frames.get(frame);
            if !matches!(
                entry.state,
                FrameState::Dirty | FrameState::Failed | FrameState::Unflushed
            ) || entry.pins > 0
            {
                break;
            }
            frames.push(frame);
        }
        let behind = pages.start + frames.len() as u64;
        let is_lone = [Tag::Dirty, Tag::Failed, Tag::Unflushed]
            .into_iter()
            .all(|tag| tree.next(behind, Some(tag)).is_none_or(|(page, _)| page >= pages.end));
        if !is_lone {
            frames.clear();
        }
        frames
    }

    /// While it waits for one write the next are on their way, in one depth with those of the cleaner and of syncs.
    fn look_ahead(&mut self, request: &mut Request, pages: &Range<u64>, left: &mut u32) {
        request.clearing.started = request.clearing.started.max(request.clearing.safe + 1);
        while self.flights.live_background < self.config.cleaner_depth.max(1) {
            let from = request.clearing.started;
            let Some((page, frame)) = self.next_in(request.object, &(from..pages.end)) else {
                return;
            };
            if !self.go_over(left) {
                return;
            }
            if self.is_due(frame) && !crate::seeded_bug("reserve-drops-changes") {
                self.start_run(request, page..end_of_run(request, page, pages.end), left);
                continue;
            }
            let entry = self.frames.get_mut(frame);
            entry.pool.wanted |= entry.state == FrameState::Gated;
            request.clearing.started = page + 1;
        }
    }

    /// Goes on through the range, of which all was safe, and drops its pages. False if there was one that is not, or not any more.
    fn drop_for(&mut self, request: &mut Request, pages: &Range<u64>, left: &mut u32) -> Result<bool, Step> {
        request.clearing.dropped = request.clearing.dropped.max(pages.start);
        loop {
            let from = request.clearing.dropped;
            let Some((page, frame)) = self.next_in(request.object, &(from..pages.end)) else {
                if from == pages.start || crate::seeded_bug("reserve-keeps-pages") {
                    return Ok(true);
                }
                request.clearing.dropped = pages.start; // Somebody who came before may have brought one in.
                continue;
            };
            if !self.go_over(left) {
                return Err(Step::PutOff);
            }
            let entry = self.frames.get(frame);
            let is_careless = crate::seeded_bug("reserve-drops-changes") && !entry.state.is_busy();
            let is_safe = entry.state == FrameState::Clean || is_careless;
            let is_thrown_away = self.is_thrown_away(request, page, frame);
            let entry = self.frames.get(frame);
            if !(is_safe || is_thrown_away) || entry.pins > 0 || entry.stuck {
                let flushes = request.clearing.flushes;
                request.clearing = Clearing {
                    flushes,
                    ..Clearing::default()
                };
                return Ok(false);
            }
            request.clearing.dropped = page + 1;
            if is_thrown_away {
                self.throw_away(request.object, page, frame);
            } else if !crate::seeded_bug("reserve-keeps-pages") {
                self.drop_page(frame);
            }
        }
    }

    /// Ends a reservation: the direct write has ended, and who waits goes on. One that was not granted yet, because the write had
    /// begun before anything was cached and another had the range, is cancelled. A stale id does nothing.
    pub fn release(&mut self, object: ObjectId, id: RequestId) {
        let Some(slot) = self.object(object) else {
            return;
        };
        let is_it = |held: &Reservation| (held.request, held.generation) == (id.slot, id.generation);
        let held = &mut self.objects[slot as usize].reservations;
        let Some(at) = held.iter().position(is_it) else {
            return;
        };
        if !held[at].granted {
            if crate::seeded_bug("who-waits-is-not-released") {
                return;
            }
            return self.cancel(id);
        }
        held.remove(at);
        self.ease();
        self.wake_reserved(slot);
        self.settle();
    }

    /// A reservation that was not granted is given up.
    pub(super) fn unreserve(&mut self, object: u32, slot: u32) {
        let held = &mut self.objects[object as usize].reservations;
        held.retain(|held| held.request != slot || held.granted);
        self.ease();
        if !crate::seeded_bug("given-up-and-nobody-woken") {
            self.wake_reserved(object);
        }
    }
}

/// The first page of which nothing is left, if this is a cut.
fn first_cut(request: &Request) -> Option<u64> {
    match request.op {
        CacheOp::Cut { from } => Some(from.div_ceil(PAGE)),
        _ => None,
    }
}

/// A page of which a part stays is written alone: it does not fail with those that are thrown away.
fn end_of_run(request: &Request, page: u64, end: u64) -> u64 {
    first_cut(request)
        .filter(|first| page < *first)
        .map_or(end, |first| first.min(end))
}
