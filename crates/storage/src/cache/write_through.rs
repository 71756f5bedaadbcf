//! Large durable writes go to the device from the caller's memory, and are copied into their pages while it works.
//!
//! A durable write is done when the device says so, and its copy takes as long as a fast device takes for it: done one after the
//! other they halve what a caller gets. So whole pages of one buffer are given to the device as they are. To everybody else the write
//! is one of its pages as any other: they are changed, being written, and safe or failed at its end. Their bytes alone are late: the
//! copy is made before the next call into the cache does anything else, so nobody sees a page between the two.
//!
//! It needs pages that can be changed and written at once: none is being filled or written, waits for the log or is stuck; no direct
//! write has one; there are frames for those that are missing, and room for all below the dirty limit. Else, and where it goes on where the
//! last one ended, so that one write of the device may serve several, it is copied first (`write`).
//!
//! | when | what holds |
//! |---|---|
//! | the write fails, or is short | its pages hold the new bytes, are tried again one by one, and those that fail are dirty with an error |
//! | it is given up on | its pages are stuck until its memory is back, and readable |
//! | the request ends before | its buffer is not given back: it goes back to its arena when the device lets go of it |

use std::ops::Range;

use baio_engine::{Durability, Frozen};

use super::Cache;
use super::frames::{FrameState, PAGE, PAGE_BYTES};
use super::ranges::pages_of;
use super::request::{CacheError, CacheOp, Phase, Request};
use super::settle::Step;
use super::wait::Wait;

/// Shorter ones are copied first: so neighbours that are asked together share one write of the device.
const PAGES_MIN: u64 = 4;
/// So many pages go out alone in any case.
const PAGES_ALONE: u64 = 16;

impl Cache {
    /// The first step of a durable write whose bytes the device can take where they are; gives what the request waits for. `None` if
    /// they are copied first.
    pub(super) fn write_through(&mut self, slot: u32, request: &mut Request) -> Option<Step> {
        if !std::mem::take(&mut request.may_go_through) {
            return None;
        }
        let pages = pages_of(request.start, request.len as u64);
        let count = pages.end - pages.start;
        let object = &mut self.objects[request.object as usize];
        let goes_on = std::mem::replace(&mut object.durable_end, pages.end) == pages.start;
        let merges = goes_on && count < PAGES_ALONE;
        let is_pages = request.start % PAGE == 0 && request.caller.is_pages();
        if !is_pages
            || merges
            || request.end() > self.objects[request.object as usize].size
            || !(PAGES_MIN..=self.window).contains(&count)
            || !self.can_all_be_written(request, &pages)
        {
            return None;
        }
        let bytes = request.caller.share()?;
        let mut frames = self.flights.frames();
        for page in pages.clone() {
            match self.changed_page(request, page) {
                Ok(frame) => frames.push(frame),
                Err(error) => {
                    // Those that came in have no bytes yet.
                    copy(self, &frames, &bytes);
                    self.flights.put_away(frames);
                    return Some(Step::Done(Err(error)));
                }
            }
        }
        request.phase = Phase::Safe;
        request.version = self.version;
        request.writes += 1;
        let first = frames[0];
        let CacheOp::Write { durability, .. } = request.op else {
            return None;
        };
        self.start_write_from(request.object, pages.start, frames, durability, bytes);
        self.uncopied = Some(slot);
        Some(Step::Wait(Wait::WriteBackEnded(first)))
    }

    /// Can each of these pages be changed and written now?
    fn can_all_be_written(&mut self, request: &Request, pages: &Range<u64>) -> bool {
        let mut missing = 0;
        for page in pages.clone() {
            let object = &self.objects[request.object as usize];
            if !object.is_open(page, request.arrived) {
                return false;
            }
            let Some(frame) = object.tree.get(page) else {
                missing += 1;
                continue;
            };
            let entry = self.frames.get(frame);
            let is_idle = matches!(
                entry.state,
                FrameState::Clean | FrameState::Dirty | FrameState::Failed | FrameState::Unflushed
            );
            // Whose bytes are lent gets others by the copy.
            if !is_idle || entry.stuck || !self.has_own_bytes(frame) {
                return false;
            }
        }
        let count = (pages.end - pages.start) as u32;
        // What is here stays: it might have been counted as a frame to be had.
        let to_be_had = self.frames.to_be_had().saturating_sub(count - missing);
        let has_frames = missing == 0 || (self.frame_waiters.is_empty() && missing <= to_be_had);
        let has_room = self.is_next_for_room(request.object) && self.has_room_for(request.object, count);
        has_frames && has_room && self.too_many_unwritable(request.object).is_none()
    }

    /// Marks a page as changed by this request, all but its bytes, and holds it.
    fn changed_page(&mut self, request: &mut Request, page: u64) -> Result<u32, CacheError> {
        let found = self.objects[request.object as usize].tree.get(page);
        let frame = match found {
            Some(frame) => frame,
            None => {
                let frame = self.obtain().ok_or(CacheError::NoFrame)?;
                self.put_in(request.object, page, frame, request)?;
                frame
            }
        };
        self.change_state(request, page, frame, 0..PAGE_BYTES);
        self.hold(request, page, frame);
        request.done += PAGE_BYTES;
        Ok(frame)
    }

    /// Makes the copy that is late, if there is one: the first thing in every call that may look at bytes or end something.
    pub(crate) fn copy_late(&mut self) {
        if self.uncopied.is_some() && !crate::seeded_bug("pages-show-before-their-bytes") {
            self.copy_now();
        }
    }

    /// The same for who ends writes.
    pub(super) fn copy_now(&mut self) {
        let Some(slot) = self.uncopied.take() else { return };
        let Some(request) = self.requests.get(slot) else { return };
        let Some(bytes) = request.caller.shared() else { return };
        let bytes = bytes.clone();
        let tree = &self.objects[request.object as usize].tree;
        let first = request.start / PAGE;
        for (page, bytes) in (first..).zip(bytes.chunks(PAGE_BYTES)) {
            if let Some(frame) = tree.get(page) {
                self.frames.bytes_mut(frame).copy_from_slice(bytes);
            }
        }
    }
}

fn copy(cache: &mut Cache, frames: &[u32], bytes: &Frozen) {
    for (&frame, bytes) in frames.iter().zip(bytes.chunks(PAGE_BYTES)) {
        cache.frames.bytes_mut(frame).copy_from_slice(bytes);
    }
}

/// Is it a durable write?
pub(super) fn is_durable(op: CacheOp) -> bool {
    matches!(op, CacheOp::Write { durability, .. } if durability != Durability::None)
}
