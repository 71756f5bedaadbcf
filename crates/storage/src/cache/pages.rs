//! Pages come into frames and leave them, and change their states.
//!
//! What a page is stands in its frame, in the tags of its object's tree and in its object's counts: [`Cache::transition`] moves all of
//! them together.

use std::ops::Range;

use super::Cache;
use super::eviction::{Hint, RUN};
use super::frames::FrameState;
use super::object::CachedObject;
use super::request::{CacheError, Request};
use super::tree::Tag;

/// Why a page comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Somebody asked for it.
    Asked,
    /// Somebody will.
    Ahead,
}

impl Cache {
    /// A frame without a page, by eviction if need be. Its own until a page is put in or it is given back.
    pub(super) fn obtain(&mut self) -> Option<u32> {
        if !self.frames.has_free() {
            self.look_at_loans();
        }
        if let Some(frame) = self.frames.take_free() {
            return Some(frame);
        }
        if self.frames.evictable() == 0 {
            // The policy would look at every frame to find that out.
            self.sweep_loans();
            if let Some(frame) = self.frames.take_free() {
                return Some(frame);
            }
            if self.frames.evictable() == 0 {
                return None;
            }
        }
        let frame = self.victim()?;
        self.stats.evictions += 1;
        self.take_out(frame);
        self.frames.transition(frame, FrameState::Free);
        Some(frame)
    }

    /// A frame for this request: what it was handed, or one that nobody waits for.
    pub(super) fn frame_for(&mut self, request: &mut Request) -> Option<u32> {
        match request.granted.take() {
            None if self.frame_waiters.is_empty() => self.obtain(),
            granted => granted,
        }
    }

    /// Puts a page into a frame that holds none; the frame goes back when the tree finds no memory.
    pub(super) fn put_in(&mut self, object: u32, page: u64, frame: u32, request: &Request) -> Result<(), CacheError> {
        self.put_in_with(object, page, frame, request.hint, Why::Asked)
    }

    pub(super) fn put_in_with(
        &mut self,
        object: u32,
        page: u64,
        frame: u32,
        hint: Hint,
        why: Why,
    ) -> Result<(), CacheError> {
        let tree = &mut self.objects[object as usize].tree;
        if tree.reserve(page).is_err() {
            self.frames.give_free(frame);
            return Err(CacheError::NoMemory);
        }
        tree.insert(page, frame);
        self.progress += 1;
        let entry = self.frames.get_mut(frame);
        entry.object = object;
        entry.page = page;
        entry.since = u64::MAX;
        entry.stable = 0;
        entry.pool.kept = self.objects[object as usize].keeps(page);
        self.frames.set_unseen(frame);
        match why {
            Why::Asked => self.eviction.inserted(frame, key(object, page), hint),
            Why::Ahead => {
                self.frames.set_ahead(frame);
                self.eviction.inserted_ahead(frame, key(object, page), hint);
            }
        }
        Ok(())
    }

    /// Takes a page out of its object; the frame keeps its state.
    fn take_out(&mut self, frame: u32) {
        self.end_loans_of(frame);
        self.stats.ahead_wasted += u64::from(self.frames.take_ahead(frame));
        let entry = self.frames.get(frame);
        let (object, page, state) = (entry.object, entry.page, entry.state);
        let counted = self.counted(object, state);
        let object = &mut self.objects[object as usize];
        object.count(state, -1);
        self.accounts.count(object.account, counted, FrameState::Free);
        object.tree.remove(page);
        self.left_pool(frame);
        self.progress += 1;
    }

    /// Takes a page out and frees its frame.
    pub(super) fn drop_page(&mut self, frame: u32) {
        self.eviction.removed(frame);
        self.take_out(frame);
        self.frames.give_free(frame);
        self.wake_page(frame);
    }

    /// The last to let go of a page whose fill failed frees its frame.
    pub(super) fn free_if_broken(&mut self, frame: u32) {
        let entry = self.frames.get(frame);
        if matches!(entry.state, FrameState::Broken(_)) && entry.pins == 0 {
            self.drop_page(frame);
        }
    }

    /// Moves a page that is in its object to another state, and its tags with it.
    pub(super) fn transition(&mut self, frame: u32, state: FrameState) {
        let entry = self.frames.get(frame);
        let (before, page) = (entry.state, entry.page);
        let (counted_before, counted) = (self.counted(entry.object, before), self.counted(entry.object, state));
        let object = &mut self.objects[entry.object as usize];
        object.count(before, -1);
        object.count(state, 1);
        self.accounts.count(object.account, counted_before, counted);
        if let Some(tag) = tag(before) {
            object.tree.untag(page, tag);
        }
        if let Some(tag) = tag(state) {
            object.tree.tag(page, tag);
        }
        let slot = entry.object;
        let grows_old = state.is_dirty() && object.dirty_since.is_none();
        self.frames.transition(frame, state);
        if grows_old {
            self.set_dirty_since(slot, Some(self.now));
        }
        if matches!(state, FrameState::Dirty | FrameState::Unflushed) {
            self.take_turns(slot);
        }
        if matches!(state, FrameState::Clean | FrameState::Unflushed | FrameState::Failed) {
            self.not_due(frame);
        }
        match (before, state) {
            (_, FrameState::Clean) => self.forget_recovery(frame),
            (FrameState::Unflushed, FrameState::Dirty | FrameState::WriteBack) => self.note_written(frame),
            _ => {}
        }
        self.progress += 1;
    }

    /// Holds the page in this frame for a request; its held pages follow one another.
    pub(super) fn hold(&mut self, request: &mut Request, page: u64, frame: u32) {
        if request.pinned.contains(&page) {
            return;
        }
        if request.pinned.is_empty() {
            request.pinned = page..page;
        }
        debug_assert_eq!(request.pinned.end, page);
        request.pinned.end = page + 1;
        request.held_max = request.held_max.max((page + 1 - request.pinned.start) as u32);
        self.frames.pin(frame);
    }

    /// Lets go of all that a request holds below page `end`.
    pub(super) fn let_go(&mut self, request: &mut Request, end: u64) {
        while request.pinned.start < request.pinned.end.min(end) {
            let page = request.pinned.start;
            request.pinned.start += 1;
            // A held page stays in its object.
            if let Some(frame) = self.objects[request.object as usize].tree.get(page) {
                self.frames.unpin(frame);
                self.free_if_broken(frame);
                self.wake_page(frame);
            }
        }
    }
}

impl CachedObject {
    /// Keeps the counts of pages per state.
    fn count(&mut self, state: FrameState, by: i32) {
        let count = match state {
            FrameState::Dirty => &mut self.dirty,
            FrameState::Failed => &mut self.failed,
            FrameState::Gated => &mut self.gated,
            FrameState::Unflushed => &mut self.unflushed,
            _ => return,
        };
        *count = count.saturating_add_signed(by);
    }
}

fn tag(state: FrameState) -> Option<Tag> {
    match state {
        FrameState::Dirty => Some(Tag::Dirty),
        FrameState::Failed => Some(Tag::Failed),
        FrameState::WriteBack => Some(Tag::WriteBack),
        FrameState::Unflushed => Some(Tag::Unflushed),
        _ => None,
    }
}

/// A hash of object and page, for the policy's memory of what has left: of the page's run, and its place there.
pub(super) fn key(object: u32, page: u64) -> u64 {
    run_hash(object, page / RUN) * RUN + page % RUN
}

/// The runs that these pages lie in, by their hash, and which pages of each.
pub(super) fn runs(object: u32, pages: Range<u64>) -> impl Iterator<Item = (u64, u16)> {
    let mut from = pages.start;
    std::iter::from_fn(move || {
        let run = from / RUN;
        let to = pages.end.min((run + 1) * RUN);
        let these = (from < to).then(|| u16::MAX >> (RUN - (to - from)) << (from % RUN))?;
        from = to;
        Some((run_hash(object, run), these))
    })
}

/// So many bits of a hash as a key has for it.
fn run_hash(object: u32, run: u64) -> u64 {
    let mut hash = run ^ u64::from(object).rotate_left(40);
    hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ hash >> 29) / RUN
}
