//! One iteration of a read (seed 001 §2, §3).
//!
//! It copies the pages that are there, in order, up to the first that is not. Then everything that is missing in the window,
//! not only that page, is started, in as few reads as there are gaps, straight into frames; with what the object's streams say
//! will be asked for next at its end. Then it waits for the first page alone. What it has started or found in its window it
//! holds until it has copied it, so every wake-up copies at least a page, and iterations are bounded by the pages. A cold random
//! read goes past the frames instead (`bypass`).

use std::ops::Range;

use super::Cache;
use super::eviction::Eviction;
use super::frames::{FrameState, Frames, PAGE};
use super::pages::Why;
use super::request::{CacheError, Request};
use super::settle::Step;
use super::wait::Wait;

/// A gap that is being gathered: frames of pages that follow one another and are to be read.
#[derive(Debug, Default)]
struct Gap {
    first: u64,
    frames: Vec<u32>,
}

impl Cache {
    pub(super) fn read_on(&mut self, slot: u32, request: &mut Request) -> Step {
        if let Some(error) = request.told {
            return Step::Done(Err(error));
        }
        if let Some(step) = self.bypass(slot, request) {
            return step;
        }
        while request.done < request.len {
            let page = request.at() / PAGE;
            let Some(frame) = self.objects[request.object as usize].tree.get(page) else {
                if let Some(wait) = self.bring_in(request, page) {
                    return wait;
                }
                continue;
            };
            match self.frames.get(frame).state {
                state if state.is_readable() => {
                    self.keep_ahead(request, page);
                    self.copy_out(request, page, frame);
                }
                FrameState::Broken(errno) => return Step::Done(Err(CacheError::System(errno))),
                _ if request.done > 0 && crate::seeded_bug("a-read-ends-at-a-gap") => break,
                _ => {
                    self.start_window(request, page);
                    return Step::Wait(Wait::Filled(frame));
                }
            }
        }
        self.read_ahead(request);
        Step::Done(Ok(request.done as u32))
    }

    /// The page at which the read stands is not there: starts bringing it in, with its window. Gives what to wait for if that
    /// cannot be done now.
    pub(super) fn bring_in(&mut self, request: &mut Request, page: u64) -> Option<Step> {
        if !self.objects[request.object as usize].is_open(page, request.arrived) {
            if let Some(frame) = request.granted.take() {
                self.frames.give_free(frame);
            }
            return Some(Step::Wait(Wait::Unreserved(request.object, page)));
        }
        let Some(frame) = self.frame_for(request) else {
            return Some(Step::Wait(Wait::FreeFrame));
        };
        let mut gap = Gap {
            first: page,
            frames: self.flights.frames(),
        };
        if let Err(error) = self.begin_page(request, page, frame, Why::Asked) {
            self.flights.put_away(gap.frames);
            return Some(Step::Done(Err(error)));
        }
        gap.frames.push(frame);
        self.hold(request, page, frame);
        self.extend_window(request, page, gap);
        None
    }

    /// Others fill this page: starts what is missing behind it.
    pub(super) fn start_window(&mut self, request: &mut Request, page: u64) {
        if request.pinned.is_empty() {
            if let Some(frame) = self.objects[request.object as usize].tree.get(page) {
                self.hold(request, page, frame);
            }
        }
        let gap = Gap {
            first: page,
            frames: self.flights.frames(),
        };
        self.extend_window(request, page, gap);
    }

    /// A read longer than its window starts the next half of it before it copies the last one, so that the device works
    /// meanwhile.
    fn keep_ahead(&mut self, request: &mut Request, page: u64) {
        let held = &request.pinned;
        let half_left = !held.is_empty() && held.end - page <= self.window / 2;
        if half_left && held.end < request.end().div_ceil(PAGE) {
            let gap = Gap {
                first: page,
                frames: self.flights.frames(),
            };
            self.extend_window(request, page, gap);
        }
    }

    /// Holds the pages of the window from `page` on, and starts reading those that are missing, half of the window at a time. A
    /// window that is more than half full stays as it is, so that a long read goes on in large pieces.
    fn extend_window(&mut self, request: &mut Request, page: u64, mut gap: Gap) {
        let last = request.end().div_ceil(PAGE);
        let end = last.min(page + self.window);
        let mut at = request.pinned.end;
        let worth_it = !gap.frames.is_empty() || at - page <= self.window / 2;
        while at < end && worth_it {
            let object = &self.objects[request.object as usize];
            let frame = match object.tree.get(at) {
                Some(frame) => frame,
                None => {
                    if !object.is_open(at, request.arrived) || !self.add_to_gap(request, at, &mut gap, Why::Asked) {
                        break;
                    }
                    gap.frames[gap.frames.len() - 1]
                }
            };
            self.hold(request, at, frame);
            at += 1;
        }
        if at == last {
            self.gather_ahead(request, &mut gap);
        }
        self.start_gap(request.object, gap);
    }

    /// Puts a missing page into a frame and into the gap, if a frame can be had without pushing in.
    fn add_to_gap(&mut self, request: &mut Request, page: u64, gap: &mut Gap, why: Why) -> bool {
        if !self.frame_waiters.is_empty() {
            return false;
        }
        let Some(frame) = self.obtain() else {
            return false;
        };
        if self.begin_page(request, page, frame, why).is_err() {
            return false;
        }
        let full = gap.frames.len() as u64 >= (self.window / 2).max(1);
        if gap.first + gap.frames.len() as u64 != page || full {
            let frames = self.flights.frames();
            let before = std::mem::replace(gap, Gap { first: page, frames });
            self.start_gap(request.object, before);
        }
        gap.frames.push(frame);
        true
    }

    fn begin_page(&mut self, request: &Request, page: u64, frame: u32, why: Why) -> Result<(), CacheError> {
        self.put_in_with(request.object, page, frame, request.hint, why)?;
        self.transition(frame, FrameState::Filling);
        Ok(())
    }

    fn start_gap(&mut self, object: u32, gap: Gap) {
        if gap.frames.is_empty() {
            self.flights.put_away(gap.frames);
        } else {
            self.start_fill(object, gap.first, gap.frames);
        }
    }

    /// Starts reading ahead for a request that found everything there.
    pub(super) fn read_ahead(&mut self, request: &mut Request) {
        if request.ahead.is_empty() {
            return;
        }
        let mut gap = Gap {
            first: request.ahead.start,
            frames: self.flights.frames(),
        };
        self.gather_ahead(request, &mut gap);
        self.start_gap(request.object, gap);
    }

    /// Adds what is to be read ahead, once; ends where a page is reserved or no frame can be had: it is only a guess.
    fn gather_ahead(&mut self, request: &mut Request, gap: &mut Gap) {
        for page in std::mem::take(&mut request.ahead) {
            let object = &self.objects[request.object as usize];
            if object.tree.get(page).is_some() {
                continue;
            }
            if !object.is_open(page, request.arrived) || !self.add_to_gap(request, page, gap, Why::Ahead) {
                return;
            }
            self.stats.pages_ahead += 1;
        }
    }

    /// Copies what the read wants of this page, and lets go of it.
    fn copy_out(&mut self, request: &mut Request, page: u64, frame: u32) {
        let from = (request.at() % PAGE) as usize;
        let len = (PAGE as usize - from).min(request.len - request.done);
        request
            .caller
            .put(request.done, &self.frames.bytes(frame)[from..from + len]);
        self.used(request, page, frame, from..from + len);
        request.done += len;
        self.let_go(request, page + 1);
        self.progress += 1;
    }

    /// Counts a use of these bytes of a page.
    pub(super) fn used(&mut self, request: &Request, page: u64, frame: u32, bytes: Range<usize>) {
        if request.pinned.contains(&page) {
            self.stats.pages_missed += 1;
            self.found(frame, bytes);
        } else {
            self.used_again(frame, bytes);
        }
    }

    /// The same by a request that holds nothing. The policy hears of the first use of a page that was read ahead, and of each
    /// further one of any page; but not of each piece of one use.
    pub(super) fn used_again(&mut self, frame: u32, bytes: Range<usize>) {
        self.stats.pages_hit += 1;
        let (was_ahead, again) = self.found(frame, bytes);
        if again && !was_ahead {
            self.eviction.hit(frame);
        }
    }

    /// If it was read ahead, that was to some purpose. Says so, and whether this is a use of its own.
    pub(super) fn found(&mut self, frame: u32, bytes: Range<usize>) -> (bool, bool) {
        let was_ahead = self.frames.take_ahead(frame);
        if was_ahead {
            self.stats.ahead_hit += 1;
            self.eviction.hit(frame);
        }
        (was_ahead, self.frames.see(frame, bytes))
    }

    /// Starts reading a page that a write covers a part of, and with it the write's last page if that is such a one too.
    pub(super) fn fill_edges(&mut self, request: &mut Request, page: u64, frame: u32) -> Result<(), CacheError> {
        let mut gap = Gap {
            first: page,
            frames: self.flights.frames(),
        };
        if let Err(error) = self.begin_page(request, page, frame, Why::Asked) {
            self.flights.put_away(gap.frames);
            return Err(error);
        }
        gap.frames.push(frame);
        self.hold(request, page, frame);
        let object = &self.objects[request.object as usize];
        let last = request.end() / PAGE;
        let is_edge = last > page && request.end() % PAGE != 0 && request.end() < object.size;
        if is_edge && object.tree.get(last).is_none() && object.is_open(last, request.arrived) {
            self.add_to_gap(request, last, &mut gap, Why::Asked);
        }
        self.start_gap(request.object, gap);
        Ok(())
    }

    /// Tells the object's streams of a read, once; gives the pages that are to be read ahead.
    pub(super) fn asked(&mut self, object: u32, pages: &Range<u64>) -> Range<u64> {
        if self.objects[object as usize].readahead_pages == 0 {
            return pages.end..pages.end;
        }
        let (object, frames, eviction) = (&mut self.objects[object as usize], &self.frames, &self.eviction);
        let (longest, quarter) = (object.readahead_pages, u64::from(frames.total() / 4).max(1));
        let max = || longest.min(quarter).min(room_ahead(frames, &**eviction));
        let mut ahead = object.streams.asked_with(pages.start, pages.end - pages.start, max);
        ahead.end = ahead.end.min(object.pages());
        ahead
    }
}

/// So many pages more may be read ahead. Half of the frames that newcomers pass through may hold pages that were read ahead and
/// not used, or they would drive each other out; and a stream takes no more than is left for others, so that each of several
/// has the same without their being counted.
pub(super) fn room_ahead(frames: &Frames, eviction: &dyn Eviction) -> u64 {
    let room = eviction.room().min(frames.total() as usize);
    (room as u64 / 2).saturating_sub(u64::from(frames.ahead()))
}
