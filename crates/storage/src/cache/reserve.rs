//! Reservations: a direct write has its range for itself (seed 001 §4).
//!
//! Direct and cached I/O on the same bytes are coherent by one rule: a direct write reserves its pages before it is submitted and
//! releases them when it has ended. A reservation waits for the fills and writes under way there, makes dirty pages safe,
//! drops all pages, and is granted. From its asking on newcomers stay out; those that came before it may finish. A direct read
//! needs only that what is dirty has been written out ([`CacheOp::WriteOut`](super::CacheOp::WriteOut)): pages stay.
//!
//! Pages are made safe with a durable write, not only written: they leave the cache, and a flush that failed later would
//! find nothing to write again.

use std::ops::Range;

use baio_engine::Durability;

use super::Cache;
use super::frames::State;
use super::object::{ObjectId, Reservation};
use super::request::{CacheError, Request, RequestId};
use super::turn::Step;
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
        if let Some(error) = request.told {
            return Step::Done(Err(error));
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
        match self.unsettled(request.object, &pages) {
            Err(error) => Step::Done(Err(error)),
            Ok(Some((page, frame))) => Step::Wait(Wait::Settled(frame, page)),
            Ok(None) => {
                while let Some((_, frame)) = self.next_in(request.object, &pages) {
                    if crate::seeded_bug("reserve-keeps-pages") {
                        break;
                    }
                    self.drop_page(frame);
                }
                self.progress += 1;
                self.objects[request.object as usize].reservations[own].granted = true;
                Step::Done(Ok(0))
            }
        }
    }

    fn next_in(&self, object: u32, pages: &Range<u64>) -> Option<(u64, u32)> {
        let next = self.objects[object as usize].tree.next(pages.start, None);
        next.filter(|(page, _)| *page < pages.end)
    }

    /// Starts writing what is not safe, and gives the first page that cannot be dropped yet.
    fn unsettled(&mut self, object: u32, pages: &Range<u64>) -> Result<Option<(u64, u32)>, CacheError> {
        let mut first_busy = None;
        let mut rest = pages.clone();
        while let Some((page, frame)) = self.next_in(object, &rest) {
            rest.start = page + 1;
            let entry = self.frames.get(frame);
            if entry.stuck {
                return Err(CacheError::Stuck);
            }
            if entry.pool.lent > 0 {
                return Err(CacheError::Pinned); // Who holds it may be the one who waits for this write.
            }
            if entry.state == State::Gated {
                self.frames.get_mut(frame).pool.wanted = true;
                first_busy.get_or_insert((page, frame));
            } else if entry.state.is_busy() || entry.pins > 0 {
                first_busy.get_or_insert((page, frame));
            } else if entry.state.is_unsafe() && !crate::seeded_bug("reserve-drops-changes") {
                let frames = self.unsafe_run(object, page..pages.end);
                rest.start = page + frames.len() as u64;
                self.start_write(object, page, frames, Durability::Data);
                first_busy.get_or_insert((page, frame));
            }
        }
        Ok(first_busy)
    }

    /// Pages that follow one another, are not safe, and that nobody holds.
    fn unsafe_run(&mut self, object: u32, pages: Range<u64>) -> Vec<u32> {
        let mut frames = self.flights.frames();
        for page in pages.take(super::WINDOW_PAGES as usize) {
            let Some(frame) = self.objects[object as usize].tree.get(page) else {
                break;
            };
            let entry = self.frames.get(frame);
            let due = entry.state.is_unsafe() && !matches!(entry.state, State::WriteBack | State::Gated);
            if !due || entry.pins > 0 {
                break;
            }
            frames.push(frame);
        }
        frames
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
