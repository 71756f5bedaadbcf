//! Cold random reads bypass the frames: the device reads straight into the caller's memory.
//!
//! A page that is read only once does no good in a full cache: it drives another out, and its bytes are copied. So the
//! first read of such pages is one I/O of the whole range into the caller's own memory, and the eviction policy remembers only their keys. A
//! second read while a key is remembered brings the page in. So a page that is read exactly twice is read twice from the device.
//!
//! A read bypasses the frames if all of this holds: it is of whole pages into one buffer, of a window at most; no page of the
//! range is cached, and no frame is free; the read is not part of a sequential stream; and the policy remembers keys (CLOCK does not), but
//! none of these pages. Any other read fills frames.
//!
//! | beside | what holds |
//! |---|---|
//! | a direct write | the read waits for reservations as a fill does. One that is asked for later does not wait for the read: nobody else will see what it brings |
//! | a cached write | one that was done before the read began is in a page, or on the device; one that is done while the read is under way is seen, or not, or in part where the device has no whole pages |
//! | another read | has an I/O of its own: nothing is filled from these bytes |
//! | a grow, a shrink, the end of the object | the I/O is one of the object's: its slot is not used again before that has ended |
//! | a cancel, a deadline | the request ends at once, and without its memory if the device has that; it goes back to its arena |
//! | an error, a short read | the read begins anew through frames, which try page by page |

use std::ops::Range;

use baio_engine::{Errno, Memory};

use super::Cache;
use super::eviction::Hint;
use super::flight::{Io, IoKind};
use super::frames::PAGE;
use super::pages::runs;
use super::ranges::pages_of;
use super::request::{CacheError, Request, RequestId};
use super::settle::Step;
use super::wait::Wait;

impl Cache {
    /// The first step of a read that may bypass the frames; gives what it waits for if it does, or will.
    pub(super) fn bypass(&mut self, slot: u32, request: &mut Request) -> Option<Step> {
        if !request.may_bypass {
            return None;
        }
        let pages = pages_of(request.start, request.len as u64);
        if !self.is_cold(request, &pages) {
            request.may_bypass = false; // It may be handed a frame from now on.
            return None;
        }
        let object = &self.objects[request.object as usize];
        let is_shut = |page: &u64| !object.is_open(*page, request.arrived);
        if !object.reservations.is_empty() {
            if let Some(page) = pages.clone().find(is_shut) {
                if !crate::seeded_bug("a-cold-read-overtakes-direct-writes") {
                    return Some(Step::Wait(Wait::Unreserved(request.object, page)));
                }
            }
        }
        for (run, these) in runs(request.object, pages.clone()) {
            self.eviction.passed_all(run, these);
        }
        self.stats.pages_missed += pages.end - pages.start;
        let (offset, len) = (request.start, request.len as u32);
        let (id, memory) = (self.requests.id(slot), request.caller.lend());
        self.send_bypass(request.object, id, IoKind::Read { offset, len }, memory);
        Some(Step::Wait(Wait::Bypassing))
    }

    /// Would its pages drive out others, and be driven out unused?
    fn is_cold(&self, request: &Request, pages: &Range<u64>) -> bool {
        let is_ours = request.hint == Hint::Normal && request.caller.is_pages() && request.len == request.caller.len();
        if !is_ours || request.start % PAGE != 0 || self.frames.has_free() {
            return false;
        }
        let count = pages.end - pages.start;
        let object = &self.objects[request.object as usize];
        if count == 0 || count > self.window || !request.ahead.is_empty() {
            return false;
        }
        let is_here = object.tree.any_of(pages.clone()) && !crate::seeded_bug("a-cold-read-passes-what-is-here");
        let mut runs = runs(request.object, pages.clone());
        !is_here && runs.all(|(run, these)| !self.eviction.remembers_any(run, these))
    }

    /// The I/O of such a read has ended; `Memory::None` if the device still has it.
    pub(super) fn bypass_ended(&mut self, id: RequestId, result: Result<u32, Errno>, memory: Memory) {
        // One that was cancelled has ended, and its memory goes back to its arena here.
        let Some(slot) = self.requests.find(id) else { return };
        let Some(request) = self.requests.get_mut(slot) else {
            return;
        };
        if memory.is_empty() {
            let errno = result.err().unwrap_or(Errno::ETIMEDOUT);
            return self.finish_slot(slot, Err(CacheError::System(errno)));
        }
        request.caller.take_back(memory);
        if result.is_ok_and(|bytes| bytes as usize >= request.len) {
            request.done = request.len;
            let len = request.len as u32;
            return self.finish_slot(slot, Ok(len));
        }
        request.may_bypass = false;
        request.wait = Wait::None;
        request.iterations = 0;
        self.ready.push_back(slot);
    }

    /// The next I/O on a caller's own memory: a cold read, or a large durable write, which is copied when the next call comes. It merges
    /// with nothing, so a driver need not let it wait for others, as it does with those of [`Cache::next_io`], which gives these too.
    pub fn next_bypass(&mut self) -> Option<Io> {
        self.bypasses.pop_front()
    }
}
