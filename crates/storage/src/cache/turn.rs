//! How waking goes on, and the moves of pages.
//!
//! Every call into the cache ends with [`Cache::settle`]: it runs what is ready until nothing is, in this order: iterations of
//! woken requests; then changes whose wait has lost its reason; then frames and room below the dirty limit are handed to the first of their queue who may have them, one at a time and with the
//! wake-up, so that nobody overtakes and nobody wakes for nothing; then the cleaner. What is left when nothing moves any more and
//! no I/O is on its way could wait for ever, and is failed. Durable writes whose copies are done begin in `next_io`.

use baio_engine::{Durability, Errno};

use super::Cache;
use super::eviction::Hint;
use super::frames::{Frame, State};
use super::object::Object;
use super::request::{CacheDone, CacheError, CacheOp, Phase, Request, RequestId};
use super::tree::Tag;
use super::wait::{List, Wait};

/// Why a page comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Somebody asked for it.
    Asked,
    /// Somebody will.
    Ahead,
}

/// How an iteration left.
#[derive(Debug)]
pub(super) enum Step {
    /// With the request's end.
    Done(Result<u32, CacheError>),
    /// It waits.
    Wait(Wait),
    /// A durable write whose copies are done: it goes on in `next_io`.
    Copied,
    /// It has gone over so many pages that others have their turn first.
    PutOff,
}

/// Something that goes on by itself, slice by slice.
#[derive(Clone, Copy, Debug)]
pub(super) enum PutOff {
    /// A reservation.
    Reserve(RequestId),
    /// A flush of this object (and its generation) that has ended well.
    Flushed(u32, u32),
}

impl Step {
    /// Does it wait in a queue for something that all share?
    pub(super) fn is_shared(&self) -> bool {
        use Wait::{Changeable, DirtyBelowLimit, FreeFrame, Ungated, Unreserved};
        matches!(
            self,
            Step::Wait(FreeFrame | DirtyBelowLimit | Ungated(_) | Changeable(..) | Unreserved(..))
        )
    }
}

impl Cache {
    pub(super) fn settle(&mut self) {
        loop {
            if let Some(slot) = self.ready.pop_front() {
                self.run(slot);
            } else if !(self.wake_changes()
                || self.grant_frame()
                || self.grant_room()
                || self.write_back()
                || self.flush_for_room()
                || self.fail_stuck())
            {
                break;
            }
        }
    }

    /// Is there something left to do that is about many pages, and that nothing else will bring about? Then [`Cache::go_on`] is to
    /// be called before anybody sleeps.
    #[must_use]
    pub fn is_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// Does the next slice of what is about many pages.
    pub fn go_on(&mut self) {
        match self.put_off.pop_front() {
            Some(PutOff::Reserve(id)) => self.ready.extend(self.requests.find(id)),
            Some(PutOff::Flushed(slot, generation)) => {
                let object = &self.objects[slot as usize];
                if object.live && object.generation == generation {
                    self.flushed(slot);
                }
            }
            None => {}
        }
        self.settle();
    }

    /// One iteration, if what it waited for still holds.
    fn run(&mut self, slot: u32) {
        let Some(request) = self.requests.get(slot) else {
            return;
        };
        let wait = request.wait;
        if !self.holds(slot, wait) && !crate::seeded_bug("any-change-wakes") {
            return self.wait(slot, wait);
        }
        let Some(mut request) = self.requests.take(slot) else {
            return;
        };
        request.wait = Wait::None;
        request.iterations += 1;
        self.stats.iterations += 1;
        let before = self.progress;
        let step = match request.op {
            CacheOp::Read { .. } => self.read_on(slot, &mut request),
            CacheOp::Write { .. } => self.write_on(slot, &mut request),
            CacheOp::Reserve { .. } => self.reserve_on(slot, &mut request),
            CacheOp::Pin { .. } => self.pin_on(&mut request),
            CacheOp::PinNew { lsn, .. } => self.pin_new_on(&mut request, lsn),
            CacheOp::Change { lsn, .. } => self.change_on(&mut request, lsn),
            CacheOp::Sync { .. } | CacheOp::WriteOut { .. } | CacheOp::FlushTo { .. } => Step::Wait(Wait::Synced),
        };
        // What it waited for held, so it may wait for the next thing; but to wait for the same again, having done nothing, is a wake-up for nothing.
        let again = matches!(&step, Step::Wait(next) if *next == wait);
        if again && self.progress == before {
            self.stats.spurious_wakeups += 1;
        }
        self.leave(slot, request, step);
    }

    /// What comes after an iteration.
    pub(super) fn leave(&mut self, slot: u32, mut request: Box<Request>, step: Step) {
        request.credit = false;
        let shared = step.is_shared();
        match step {
            Step::Done(result) => self.finish(slot, request, result),
            Step::Wait(wait) => {
                request.parked += u32::from(shared);
                self.stats.parked += u64::from(shared);
                self.stats.waits_for_frame += u64::from(wait == Wait::FreeFrame);
                self.stats.waits_for_room += u64::from(wait == Wait::DirtyBelowLimit);
                self.requests.put_back(slot, request);
                self.wait(slot, wait);
            }
            Step::Copied => {
                self.requests.put_back(slot, request);
                self.copied.push_back(slot);
            }
            Step::PutOff => {
                self.requests.put_back(slot, request);
                self.put_off.push_back(PutOff::Reserve(self.requests.id(slot)));
            }
        }
    }

    /// Does the condition hold?
    fn holds(&self, slot: u32, wait: Wait) -> bool {
        let Some(request) = self.requests.get(slot) else {
            return false;
        };
        let frame = |frame: u32| -> &Frame { self.frames.get(frame) };
        match wait {
            Wait::None => true,
            Wait::Filled(at) => frame(at).state != State::Filling,
            Wait::WriteBackEnded(at) => frame(at).state != State::WriteBack || frame(at).stuck,
            Wait::Ungated(at) => frame(at).state != State::Gated,
            Wait::Changeable(at, lsn) => frame(at).state != State::WriteBack && !self.must_wait(at, lsn),
            Wait::Settled(at, page) => {
                let (frame, object) = (frame(at), &self.objects[request.object as usize]);
                let gone = object.tree.get(page) != Some(at);
                gone || frame.stuck
                    || frame.pool.lent > 0
                    || (!frame.state.is_busy() && frame.state != State::Gated && frame.pins == 0)
            }
            Wait::FreeFrame => request.granted.is_some() || request.told.is_some(),
            Wait::DirtyBelowLimit => request.credit || request.told.is_some(),
            Wait::Unreserved(object, page) => {
                let object = &self.objects[object as usize];
                match request.op {
                    CacheOp::Reserve { .. } => object.is_first(slot),
                    _ => object.is_open(page, request.arrived),
                }
            }
            Wait::Synced | Wait::Bypassing => false,
        }
    }

    /// Puts a request on the list of what it waits for.
    fn wait(&mut self, slot: u32, wait: Wait) {
        if let Some(request) = self.requests.get_mut(slot) {
            request.wait = wait;
        }
        if let Wait::Changeable(frame, _) = wait {
            self.hold_up(frame);
        }
        self.with_list(wait, |links, list| links.push(list, slot));
    }

    /// Takes a request off its list.
    pub(super) fn stop_waiting(&mut self, slot: u32) {
        let Some(request) = self.requests.get_mut(slot) else {
            return;
        };
        let wait = std::mem::take(&mut request.wait);
        self.with_list(wait, |links, list| links.remove(list, slot));
    }

    fn with_list(&mut self, wait: Wait, change: impl FnOnce(&mut super::wait::Links, &mut List)) {
        let links = &mut self.requests.links;
        match wait {
            Wait::None | Wait::Synced | Wait::Bypassing => {}
            Wait::FreeFrame => change(links, &mut self.frame_waiters),
            Wait::DirtyBelowLimit => change(links, &mut self.dirty_waiters),
            Wait::Unreserved(object, _) => change(links, &mut self.objects[object as usize].waiters),
            Wait::Filled(frame)
            | Wait::WriteBackEnded(frame)
            | Wait::Ungated(frame)
            | Wait::Changeable(frame, _)
            | Wait::Settled(frame, _) => {
                let mut list = self.frames.get(frame).waiters;
                change(links, &mut list);
                self.frames.set_waiters(frame, list);
            }
        }
    }

    /// Wakes exactly those of a list whose condition holds.
    fn wake(&mut self, list: List) {
        let mut at = list.first();
        while let Some(slot) = at {
            at = self.requests.links.after(slot);
            let wait = self.requests.get(slot).map_or(Wait::None, |request| request.wait);
            if self.holds(slot, wait) || crate::seeded_bug("any-change-wakes") {
                self.with_list(wait, |links, list| links.remove(list, slot));
                self.ready.push_back(slot);
            }
        }
    }

    /// The page in this frame has changed its state, or somebody has let go of it.
    pub(super) fn wake_page(&mut self, frame: u32) {
        let list = self.frames.get(frame).waiters;
        if !list.is_empty() {
            self.wake(list);
        }
    }

    /// A reservation has ended.
    pub(super) fn wake_reserved(&mut self, object: u32) {
        self.wake(self.objects[object as usize].waiters);
    }

    fn grant_frame(&mut self) -> bool {
        let Some(slot) = self.frame_waiters.first() else {
            return false;
        };
        let Some(frame) = self.obtain() else {
            return false;
        };
        self.wake_with(slot, |request| request.granted = Some(frame));
        true
    }

    /// Room goes to the first who may have it: those who wait for a broken device do not keep back who waits for another.
    fn grant_room(&mut self) -> bool {
        let mut at = self.dirty_waiters.first().filter(|_| self.has_room_for_healthy());
        while let Some(slot) = at {
            let object = self.requests.get(slot).map_or(0, |request| request.object);
            if self.has_room(object) {
                self.wake_with(slot, |request| request.credit = true);
                return true;
            }
            at = self.requests.links.after(slot);
        }
        false
    }

    /// May one more page of this object become dirty? What failed of others is not counted against an object of which nothing
    /// failed: a broken device does not stop those beside it. What is written and waits for a flush is no burden either. But an
    /// eighth of the frames stays for clean pages.
    pub(super) fn has_room(&self, object: u32) -> bool {
        let dirty = self.frames.count_unsafe() - self.frames.count(State::Unflushed);
        let healthy = self.objects[object as usize].failed == 0;
        self.has_room_for_healthy() && (healthy || dirty < self.dirty_max)
    }

    fn has_room_for_healthy(&self) -> bool {
        let all = self.frames.count_unsafe();
        let dirty = all - self.frames.count(State::Unflushed);
        all < self.unsafe_max && dirty - self.frames.count(State::Failed) < self.dirty_max
    }

    /// Nothing moves and no I/O that could end well is on its way: who waits for a frame or for room would wait for ever.
    fn fail_stuck(&mut self) -> bool {
        if !self.copied.is_empty() || self.is_put_off() {
            return false; // Their writes are about to begin, or pages to become clean.
        }
        if self.frames.count(State::Gated) > 0 && !self.is_gate_shut() {
            return false; // The log goes on, and then they can be written.
        }
        if let Some(slot) = self.dirty_waiters.first()
            && self.flights.live_writes == 0
        {
            let object = self.requests.get(slot).map_or(0, |request| request.object);
            let errno = self.objects[object as usize].errno;
            let errno = errno.or_else(|| self.objects.iter().find_map(|object| object.errno));
            let error = CacheError::Unwritable(errno.unwrap_or(Errno::EIO));
            self.wake_with(slot, |request| request.told = Some(error));
            return true;
        }
        if let Some(slot) = self.frame_waiters.first()
            && self.flights.live == 0
        {
            self.wake_with(slot, |request| request.told = Some(CacheError::NoFrame));
            return true;
        }
        false
    }

    /// Changes a waiting request so that its condition holds, and makes it ready.
    fn wake_with(&mut self, slot: u32, change: impl FnOnce(&mut Request)) {
        let wait = self.requests.get(slot).map_or(Wait::None, |request| request.wait);
        self.with_list(wait, |links, list| links.remove(list, slot));
        if let Some(request) = self.requests.get_mut(slot) {
            change(request);
        }
        self.ready.push_back(slot);
    }

    /// A frame without a page, by eviction if need be. Its own until a page is put in or it is given back.
    pub(super) fn obtain(&mut self) -> Option<u32> {
        if let Some(frame) = self.frames.take_free() {
            return Some(frame);
        }
        if self.frames.evictable() == 0 {
            return None; // The policy would look at every frame to find that out.
        }
        let frame = self.victim()?;
        self.stats.evictions += 1;
        self.take_out(frame);
        self.frames.set(frame, State::Free);
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
        if tree.reserve().is_err() {
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
        self.stats.ahead_wasted += u64::from(self.frames.take_ahead(frame));
        let entry = self.frames.get(frame);
        let (object, page, state) = (entry.object, entry.page, entry.state);
        let object = &mut self.objects[object as usize];
        object.count(state, -1);
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
        if matches!(entry.state, State::Broken(_)) && entry.pins == 0 {
            self.drop_page(frame);
        }
    }

    /// Moves a page that is in its object to another state, and its tags with it.
    pub(super) fn turn(&mut self, frame: u32, state: State) {
        let entry = self.frames.get(frame);
        let (before, page) = (entry.state, entry.page);
        let object = &mut self.objects[entry.object as usize];
        object.count(before, -1);
        object.count(state, 1);
        if let Some(tag) = tag(before) {
            object.tree.untag(page, tag);
        }
        if let Some(tag) = tag(state) {
            object.tree.tag(page, tag);
        }
        let slot = entry.object;
        let grows_old = state.is_dirty() && object.dirty_since.is_none();
        self.frames.set(frame, state);
        if grows_old {
            self.set_dirty_since(slot, Some(self.now));
        }
        if matches!(state, State::Dirty | State::Unflushed) {
            self.take_turns(slot);
        }
        if matches!(state, State::Clean | State::Unflushed | State::Failed) {
            self.not_due(frame);
        }
        match (before, state) {
            (_, State::Clean) => self.forget_recovery(frame),
            (State::Unflushed, State::Dirty | State::WriteBack) => self.note_written(frame),
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

    /// Ends a request that is not in an iteration.
    pub(super) fn finish_slot(&mut self, slot: u32, result: Result<u32, CacheError>) {
        if let Some(request) = self.requests.take(slot) {
            self.finish(slot, request, result);
        }
    }

    fn finish(&mut self, slot: u32, mut request: Box<Request>, mut result: Result<u32, CacheError>) {
        self.progress += 1;
        if matches!(request.op, CacheOp::Sync { .. } | CacheOp::FlushTo { .. }) && result.is_ok() {
            result = self.left_behind(request.object).map_or(result, Err);
        }
        self.let_go(&mut request, u64::MAX);
        if let Some(frame) = request.granted.take() {
            self.frames.give_free(frame);
        }
        self.durable_done_waiting(slot, &mut request);
        self.clearing -= u32::from(request.clearing.flushes);
        let at = request.object as usize;
        if let Some(object) = self.objects.get_mut(at) {
            object.requests -= 1;
            match request.op {
                CacheOp::Sync { .. } | CacheOp::WriteOut { .. } | CacheOp::FlushTo { .. } => {
                    self.forget_sync(request.object, slot);
                }
                CacheOp::Reserve { .. } if result.is_err() => {
                    self.forget_sync(request.object, slot); // It may wait for a flush.
                    self.unreserve(request.object, slot);
                }
                _ => {}
            }
        }
        self.debug_bound(&request, result);
        let bytes_done = request.done as u32;
        self.stats.requests += 1;
        let id = self.requests.id(slot);
        let (owner, iterations, parked, writes) = (request.owner, request.iterations, request.parked, request.writes);
        let pin = request.pin.take();
        let held_max = request.held_max;
        let memory = self.requests.retire(slot, request).give_back();
        self.done.push_back(CacheDone {
            id,
            owner,
            result,
            bytes_done,
            memory,
            iterations,
            parked,
            writes,
            pin,
            held_max,
        });
    }

    /// Iterations are bounded by the pages (seed 001 §3.1, §7.2).
    fn debug_bound(&self, request: &Request, _result: Result<u32, CacheError>) {
        if request.len == 0 {
            return;
        }
        let pages = super::object::pages_of(request.start, request.len as u64).count() as u32;
        let bound = match request.op {
            CacheOp::Write { durability, .. } if durability != Durability::None => 3 * pages + 2,
            _ => pages + 1,
        };
        debug_assert!(
            request.iterations <= bound + 2 * request.parked,
            "{} iterations for {pages} pages, parked {}: {request:?}",
            request.iterations,
            request.parked
        );
    }

    /// A write, or a flush behind it, failed: who relies on this page is told.
    pub(super) fn tell_waiters(&mut self, frame: u32, errno: Errno) {
        let mut at = self.frames.get(frame).waiters.first();
        while let Some(slot) = at {
            at = self.requests.links.after(slot);
            if let Some(request) = self.requests.get_mut(slot) {
                let relies = match request.wait {
                    Wait::WriteBackEnded(_) => request.phase == Phase::Safe,
                    Wait::Settled(..) => true,
                    _ => false,
                };
                if relies {
                    request.told = Some(CacheError::System(errno));
                }
            }
        }
    }
}

impl Object {
    /// Keeps the counts of pages per state.
    fn count(&mut self, state: State, by: i32) {
        let count = match state {
            State::Dirty => &mut self.dirty,
            State::Failed => &mut self.failed,
            State::Gated => &mut self.gated,
            State::Unflushed => &mut self.unflushed,
            _ => return,
        };
        *count = count.saturating_add_signed(by);
    }
}

fn tag(state: State) -> Option<Tag> {
    match state {
        State::Dirty => Some(Tag::Dirty),
        State::Failed => Some(Tag::Failed),
        State::WriteBack => Some(Tag::WriteBack),
        State::Unflushed => Some(Tag::Unflushed),
        _ => None,
    }
}

/// A hash of object and page, for the policy's memory of what has left.
pub(super) fn key(object: u32, page: u64) -> u64 {
    let mut key = page ^ u64::from(object).rotate_left(40);
    key = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key ^ key >> 29
}
