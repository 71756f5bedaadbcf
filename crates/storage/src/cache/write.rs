//! One iteration of a write (seed 001 §5.2, §7.1).
//!
//! It copies into page after page. A page that it covers needs no read; another one is read first. A page under write-back
//! is not touched until that has ended. A page that is not dirty yet needs room below the dirty limit. A plain write is done
//! with its last copy.
//!
//! A durable write then goes on by windows: when the copies of a window are done, one device write makes all its pages safe,
//! from the first to the last that is not yet; what others have made safe meanwhile is left out, so that two durable writes to
//! one page share one device write, and so do those to neighbouring pages that are asked before the driver looks for I/Os. What waits for another's write-back of its pages says so (`durable_waiting`), and
//! from then on whatever is written of its range is written durably: each wait makes pages safe for it.

use std::ops::Range;

use baio_engine::{Durability, Errno};

use super::Cache;
use super::frames::{Bytes, FrameState, PAGE};
use super::ranges::pages_of;
use super::request::{CacheError, CacheOp, Phase, Request};
use super::settle::Step;
use super::wait::Wait;

impl Cache {
    pub(super) fn write_on(&mut self, slot: u32, request: &mut Request) -> Step {
        if let Some(error) = request.told {
            return Step::Done(Err(error));
        }
        if request.phase == Phase::Safe {
            return self.safe_on(slot, request, false);
        }
        if let Some(step) = self.write_through(slot, request) {
            return step;
        }
        let window_end = match durability(request) {
            Durability::None => u64::MAX,
            _ => request.window.saturating_add(self.window),
        };
        while request.done < request.len {
            let page = request.at() / PAGE;
            if page >= window_end {
                break;
            }
            if let Some(step) = self.write_page(request, page) {
                if step.is_shared() {
                    self.let_go(request, page); // Who waits in a queue must not keep others from what they wait for.
                }
                return step;
            }
        }
        if window_end == u64::MAX {
            return Step::Done(Ok(request.done as u32));
        }
        request.phase = Phase::Safe;
        request.version = self.version;
        self.safe_on(slot, request, false)
    }

    /// Copies into one page; gives what to wait for if that cannot be done now.
    pub(super) fn write_page(&mut self, request: &mut Request, page: u64) -> Option<Step> {
        let held = request.pinned.contains(&page);
        // A page that it already holds is one whose reservation waits for it.
        if !held && !self.objects[request.object as usize].is_open(page, request.arrived) {
            if let Some(frame) = request.granted.take() {
                self.frames.give_free(frame);
            }
            return Some(Step::Wait(Wait::Unreserved(request.object, page)));
        }
        let object = &self.objects[request.object as usize];
        let from = (request.at() % PAGE) as usize;
        let len = (PAGE as usize - from).min(request.len - request.done);
        // Behind the end there is nothing to be read first.
        let is_new = object.grows && page * PAGE >= object.size;
        let covers = is_new || from == 0 && from + len >= object.valid(page);
        let frame = match object.tree.get(page) {
            Some(frame) => frame,
            None => match self.page_for(request, page, covers) {
                Ok(frame) => frame,
                Err(step) => return Some(step),
            },
        };
        let state = self.frames.get(frame).state;
        if state.is_readable() && state != FrameState::WriteBack {
            if let Some(step) = self.own_bytes(request, frame) {
                return Some(step);
            }
        }
        match state {
            FrameState::Filling => {
                self.hold(request, page, frame);
                return Some(Step::Wait(Wait::Filled(frame)));
            }
            FrameState::WriteBack if self.frames.get(frame).stuck => return Some(Step::Done(Err(CacheError::Stuck))),
            FrameState::WriteBack => {
                self.hold(request, page, frame);
                return Some(Step::Wait(Wait::WriteBackEnded(frame)));
            }
            FrameState::Broken(errno) if !covers || !matches!(self.frames.get(frame).bytes, Bytes::Here(_)) => {
                return Some(Step::Done(Err(CacheError::System(errno))));
            }
            state if !state.is_unsafe() => {
                if let Err(step) = self.may_dirty(request) {
                    if matches!(step, Step::Wait(_)) {
                        self.hold(request, page, frame);
                    }
                    return Some(step);
                }
            }
            _ => {}
        }
        self.copy_in(request, page, frame, from..from + len);
        None
    }

    /// A page that is not there: an empty frame for it when the write covers it, else its fill is begun.
    fn page_for(&mut self, request: &mut Request, page: u64, covers: bool) -> Result<u32, Step> {
        if covers {
            self.may_dirty(request)?;
            request.credit = true; // Used when the page becomes dirty.
        }
        let Some(frame) = self.frame_for(request) else {
            return Err(Step::Wait(Wait::FreeFrame));
        };
        let put = if covers {
            self.put_in(request.object, page, frame, request)
        } else {
            self.fill_edges(request, page, frame)
        };
        put.map(|()| frame).map_err(|error| Step::Done(Err(error)))
    }

    /// May one more page become dirty for this request? In the order of asking among those of its account, and not for an object of
    /// which too many pages cannot be written already: one broken device, or log, shall not take the room of all others.
    fn may_dirty(&mut self, request: &mut Request) -> Result<(), Step> {
        if let Some(error) = self.too_many_unwritable(request.object) {
            return Err(Step::Done(Err(error)));
        }
        if std::mem::take(&mut request.credit)
            || (self.is_next_for_room(request.object) && self.has_room(request.object))
        {
            return Ok(());
        }
        let account = self.objects[request.object as usize].account;
        Err(Step::Wait(Wait::DirtyBelowLimit(account)))
    }

    /// Why no more pages of this object may become dirty, if those that failed, or that its log has left behind, are too many.
    pub(super) fn too_many_unwritable(&self, object: u32) -> Option<CacheError> {
        let most = (self.dirty_max / 2).max(1);
        if let Some(error) = self.too_many_left_behind(object, most) {
            return Some(error);
        }
        let object = &self.objects[object as usize];
        let many = object.failed > 0 && object.failed + object.dirty >= most;
        many.then(|| CacheError::Unwritable(object.errno.unwrap_or(Errno::EIO)))
    }

    fn copy_in(&mut self, request: &mut Request, page: u64, frame: u32, range: Range<usize>) {
        let len = range.len();
        let is_new = !self.frames.get(frame).state.is_readable();
        let bytes = self.frames.bytes_mut(frame);
        if is_new {
            // What the write leaves of a page that it covers lies behind the end, or is a hole.
            bytes[..range.start].fill(0);
            bytes[range.end..].fill(0);
        }
        request.caller.get(request.done, &mut bytes[range.clone()]);
        let object = &mut self.objects[request.object as usize];
        if object.grows {
            object.size = object.size.max(page * PAGE + range.end as u64);
        }
        self.change_state(request, page, frame, range);
        request.done += len;
        match durability(request) {
            Durability::None => self.let_go(request, page + 1),
            _ => self.hold(request, page, frame),
        }
    }

    /// These bytes of a page are changed: it is dirty now, and used.
    pub(super) fn change_state(&mut self, request: &mut Request, page: u64, frame: u32, range: Range<usize>) {
        self.version += 1;
        let state = self.frames.get(frame).state;
        if !state.is_dirty() {
            self.frames.get_mut(frame).since = self.version;
            self.transition(frame, FrameState::Dirty);
        }
        match state {
            FrameState::Free => _ = self.frames.see(frame, range), // It came with this write: that was its first use.
            _ => self.used(request, page, frame, range),
        }
        request.credit = false;
        self.progress += 1;
    }

    /// A durable write whose copies are done, when all that was ready has run.
    pub(super) fn make_safe(&mut self, slot: u32) {
        if let Some(mut request) = self.requests.take(slot) {
            let step = self.safe_on(slot, &mut request, true);
            self.leave(slot, request, step);
        }
    }

    /// Looks at the pages of the window: are they safe, is somebody writing them, or must it be done? `write`: now.
    fn safe_on(&mut self, slot: u32, request: &mut Request, write: bool) -> Step {
        let touched = pages_of(request.start, request.done as u64);
        let window = request.window..touched.end.min(request.window.saturating_add(self.window));
        let mut needed: Option<Range<u64>> = None;
        let (mut busy, mut between, mut gated) = (None, None, None);
        for page in window.clone() {
            let Some(frame) = self.objects[request.object as usize].tree.get(page) else {
                continue; // Only what is safe leaves.
            };
            let entry = self.frames.get(frame);
            let is_busy = entry.state == FrameState::WriteBack;
            if entry.stable >= request.version || !entry.state.is_unsafe() {
                // Safe, but another write of it would stand in the way of one over it.
                if is_busy && needed.is_some() {
                    between.get_or_insert((page, frame));
                }
                continue;
            }
            if entry.stuck {
                return Step::Done(Err(CacheError::Stuck));
            }
            if is_busy && crate::seeded_bug("what-others-write-is-safe") {
                continue;
            }
            if is_busy {
                busy.get_or_insert((page, frame));
            } else if entry.state == FrameState::Gated {
                gated.get_or_insert((page, frame));
            } else {
                needed = Some(needed.map_or(page, |range| range.start)..page + 1);
            }
        }
        let between = between.filter(|(page, _)| needed.as_ref().is_some_and(|needed| *page < needed.end));
        self.durable_done_waiting(slot, request);
        if let Some((page, frame)) = busy.or(between) {
            self.hold_more(request, page, frame);
            self.durable_waits(slot, request, window);
            return Step::Wait(Wait::WriteBackEnded(frame));
        }
        if let Some((page, frame)) = gated {
            if let Some(error) = self.never_written(frame) {
                return Step::Done(Err(error));
            }
            self.hold_more(request, page, frame);
            self.frames.get_mut(frame).pool.wanted = true;
            self.durable_waits(slot, request, window);
            return Step::Wait(Wait::Ungated(frame));
        }
        let Some(needed) = needed else {
            self.progress += 1;
            if request.done == request.len {
                return Step::Done(Ok(request.done as u32));
            }
            self.let_go(request, u64::MAX);
            request.phase = Phase::Copy;
            request.window = window.end;
            return self.write_on(slot, request);
        };
        if !write {
            self.progress += 1;
            self.durable_waits(slot, request, window);
            return Step::Copied;
        }
        let needed = self.with_neighbours(request.object, needed);
        let mut frames = self.flights.frames();
        for page in needed.clone() {
            match self.objects[request.object as usize].tree.get(page) {
                Some(frame) if self.is_idle(frame) => frames.push(frame),
                // It waited in a queue, and meanwhile somebody made this page safe and it left: the rest needs a write of its own.
                _ => break,
            }
        }
        let first = frames[0];
        self.start_write(request.object, needed.start, frames, durability(request));
        request.writes += 1;
        self.hold_more(request, needed.start, first);
        Step::Wait(Wait::WriteBackEnded(first))
    }

    /// Holds a page that it may hold already, or have let go of with all others.
    fn hold_more(&mut self, request: &mut Request, page: u64, frame: u32) {
        if !request.pinned.contains(&page) && request.pinned.end != page {
            self.let_go(request, u64::MAX);
        }
        self.hold(request, page, frame);
    }

    /// Can a write of this page begin?
    fn is_idle(&self, frame: u32) -> bool {
        let state = self.frames.get(frame).state;
        state.is_readable() && !matches!(state, FrameState::WriteBack | FrameState::Gated)
    }

    /// Pages beside these that other durable writes wait for as well: one write serves all of them.
    fn with_neighbours(&self, object: u32, mut pages: Range<u64>) -> Range<u64> {
        let (object, most) = (&self.objects[object as usize], self.run_max() as u64);
        let joins = |page: u64| {
            let is_awaited = object.durable_waiting.of(page..page + 1).next().is_some();
            is_awaited && object.tree.get(page).is_some_and(|frame| self.is_idle(frame))
        };
        while pages.end - pages.start < most && joins(pages.end) {
            pages.end += 1;
        }
        while pages.start > 0 && pages.end - pages.start < most && joins(pages.start - 1) {
            pages.start -= 1;
        }
        pages
    }

    fn durable_waits(&mut self, slot: u32, request: &mut Request, window: Range<u64>) {
        request.listed_at = Some(window.start);
        self.objects[request.object as usize].durable_waiting.add(slot, &window);
    }

    pub(super) fn durable_done_waiting(&mut self, slot: u32, request: &mut Request) {
        let Some(first) = request.listed_at.take() else { return };
        if self.objects[request.object as usize]
            .durable_waiting
            .remove(slot, first)
        {
            self.ease();
        }
    }

    /// How durable a write of these pages must be, for the sake of the durable writes that wait for them.
    pub(super) fn strengthen(&self, object: u32, first: u64, count: u64, durability: Durability) -> Durability {
        let pages = first..first + count;
        let waiting = &self.objects[object as usize].durable_waiting;
        waiting
            .of(pages)
            .filter_map(|(slot, _)| self.requests.get(slot))
            .fold(durability, |most, request| stronger(most, self::durability(request)))
    }
}

/// What a write asks for.
fn durability(request: &Request) -> Durability {
    match request.op {
        CacheOp::Write { durability, .. } => durability,
        _ => Durability::None,
    }
}

/// The stronger of two.
pub(super) fn stronger(one: Durability, other: Durability) -> Durability {
    use Durability::{Data, Full, None};
    match (one, other) {
        (Full, _) | (_, Full) => Full,
        (Data, _) | (_, Data) => Data,
        (None, None) => None,
    }
}
