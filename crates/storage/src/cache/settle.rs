//! Runs everything that has become ready.
//!
//! Every call into the cache ends with [`Cache::settle`], which repeats these steps until none has anything to do:
//!
//! 1. Run iterations of woken requests.
//! 2. Let changes go on whose reason to wait has gone.
//! 3. Give frames, and room below the dirty limit, to the first in the queue that may have them. This is done one at a time, together with
//!    the wake-up, so that nobody overtakes and nobody wakes for nothing.
//! 4. Run the cleaner.
//!
//! A request that still waits then, with no I/O in flight, would wait for ever, and is failed. Durable writes whose copies are done begin in
//! `next_io`.

use baio_engine::Errno;

use super::Cache;
use super::frames::{Frame, FrameState};
use super::request::{CacheError, CacheOp, Request, RequestId};
use super::wait::{List, Wait};

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
            Step::Wait(FreeFrame | DirtyBelowLimit(_) | Ungated(_) | Changeable(..) | Unreserved(..))
        )
    }
}

impl Cache {
    pub(super) fn settle(&mut self) {
        loop {
            if let Some(slot) = self.ready.pop_front() {
                self.run(slot);
            } else if self.is_quiet()
                || !(self.wake_changes()
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

    /// Is nothing changed, and does nobody wait for what all share? Then there is nothing to write, to flush or to hand out: so it is
    /// after every step in a cache that is only read from.
    fn is_quiet(&mut self) -> bool {
        let waits = !self.frame_waiters.is_empty() || !self.accounts.nobody_waits() || self.gates.holds_up();
        let writes = self.frames.count_unsafe() > 0 || self.flights.live_background > 0;
        if waits || writes || !self.passing.is_empty() || !self.gates.long.is_empty() {
            return false;
        }
        (self.is_cleaning, self.filling_depth) = (false, true);
        true
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
        self.copy_late();
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
            CacheOp::Reserve { .. } | CacheOp::Cut { .. } => self.reserve_on(slot, &mut request),
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
                self.stats.waits_for_room += u64::from(matches!(wait, Wait::DirtyBelowLimit(_)));
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
            Wait::Filled(at) => frame(at).state != FrameState::Filling,
            Wait::WriteBackEnded(at) => frame(at).state != FrameState::WriteBack || frame(at).stuck,
            Wait::Ungated(at) => frame(at).state != FrameState::Gated || self.never_written(at).is_some(),
            Wait::Changeable(at, lsn) => frame(at).state != FrameState::WriteBack && !self.must_wait(at, lsn),
            Wait::Settled(at, page) => {
                let (frame, object) = (frame(at), &self.objects[request.object as usize]);
                let gone = object.tree.get(page) != Some(at);
                let waits_for_log = frame.state == FrameState::Gated && self.never_written(at).is_none();
                gone || frame.stuck
                    || frame.pool.lent > 0
                    || (!frame.state.is_busy() && !waits_for_log && frame.pins == 0)
            }
            Wait::FreeFrame => request.granted.is_some() || request.told.is_some(),
            Wait::DirtyBelowLimit(_) => request.credit || request.told.is_some(),
            Wait::Unreserved(object, page) => {
                let object = &self.objects[object as usize];
                match request.op {
                    CacheOp::Reserve { .. } | CacheOp::Cut { .. } => object.is_first(slot),
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
            Wait::DirtyBelowLimit(account) => self.accounts.change_waiters(account, links, change),
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

    /// Room goes to the accounts in turn, and of each to the first who may have it: those who wait for a broken device do not keep back who
    /// waits for another, and those of an account that may have no more not those of another account.
    fn grant_room(&mut self) -> bool {
        let may_have = self
            .accounts
            .waiting()
            .filter(|&account| self.account_has_room(account, 1));
        let found = may_have.flat_map(|account| self.waiters_of(account)).find(|slot| {
            let object = self.requests.get(*slot).map_or(0, |request| request.object);
            self.has_room(object)
        });
        let Some(slot) = found else { return false };
        if let Some(Wait::DirtyBelowLimit(account)) = self.requests.get(slot).map(|request| request.wait) {
            self.accounts.had_turn(account);
        }
        self.wake_with(slot, |request| request.credit = true);
        true
    }

    /// The requests of an account that wait for room, in the order of asking.
    fn waiters_of(&self, account: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.accounts.first_of(account);
        std::iter::successors(first, |slot| self.requests.links.after(*slot))
    }

    /// May one more page of this object become dirty? What failed of others is not counted against an object of which nothing
    /// failed: a broken device does not stop those beside it. Neither does a log that will not go on, by the pages that it has left
    /// behind. What is written and waits for a flush is no burden either. But an eighth of the frames stays for clean pages. And its
    /// account must have room.
    pub(super) fn has_room(&self, object: u32) -> bool {
        self.has_room_for(object, 1)
    }

    /// The same for so many pages.
    pub(super) fn has_room_for(&self, object: u32, pages: u32) -> bool {
        let object = &self.objects[object as usize];
        let dirty = self.accounts.dirty() + self.frames.count(FrameState::Failed);
        let is_healthy = object.failed == 0;
        self.account_has_room(object.account, pages) && (is_healthy || dirty + pages <= self.dirty_max)
    }

    /// The same for objects of this account of which nothing failed.
    pub(super) fn account_has_room(&self, account: u32, pages: u32) -> bool {
        self.frames.count_unsafe() + pages <= self.unsafe_max && self.accounts.has_room(account, pages)
    }

    /// Nothing moves and no I/O that could end well is on its way: who waits for a frame or for room would wait for ever.
    fn fail_stuck(&mut self) -> bool {
        if !self.copied.is_empty() || self.is_put_off() {
            return false; // Their writes are about to begin, or pages to become clean.
        }
        if self.may_a_log_go_on() {
            return false; // The log goes on, and then they can be written.
        }
        if let Some(slot) = self.accounts.first() {
            if self.flights.live_writes == 0 {
                let object = self.requests.get(slot).map_or(0, |request| request.object);
                let errno = self.objects[object as usize].errno;
                let errno = errno.or_else(|| self.objects.iter().find_map(|object| object.errno));
                let error = CacheError::Unwritable(errno.unwrap_or(Errno::EIO));
                self.wake_with(slot, |request| request.told = Some(error));
                return true;
            }
        }
        if let Some(slot) = self.frame_waiters.first() {
            if self.flights.live == 0 {
                self.wake_with(slot, |request| request.told = Some(CacheError::NoFrame));
                return true;
            }
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
}
