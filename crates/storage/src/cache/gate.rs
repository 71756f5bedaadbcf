//! The write gate: no page goes to the device before the log that describes its changes (write-ahead logging), and the recovery
//! LSNs from which a checkpoint knows where a restart must begin. All of it is about one log, and the objects under its gate
//! (`gates`).
//!
//! A page changed under an LSN beyond what the log has made durable is `Gated`: dirty, but in a state of its own that no
//! writer takes: not the cleaner, not a sync, a durable write or a reservation. [`Cache::set_durable_lsn`] makes it dirty like
//! any other, and whoever waits for it goes on. A sync that begins counts the gated pages that it covers; the cleaner's passes
//! leave them out, and take them up when the log lets them.
//!
//! **A sync is not kept waiting by a page that is changed again and again**, each time beyond what the log has: what somebody
//! waits for is `wanted`, and its next change under a later LSN waits until it has been written, or nobody waits for it any more.
//!
//! The recovery LSN of a page is that of its first change since it was clean. It is kept until the page is clean again: written
//! and not flushed is not enough. A page that is changed again between the two has two of them: the flush may fail, and then the
//! old one holds; when it has ended well, the first change behind that write is the oldest that is not safe, although the page
//! was clean at no time. The oldest of all is at hand, in an ordered set.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use baio_engine::Durability;

use super::frames::{Frame, FrameState};
use super::log_distance::LogCleaner;
use super::pooled::Written;
use super::{Cache, CacheError, CacheOp};

/// Names a gate of the cache. Carries a generation: a stale one is an error or nothing, never another gate. The default one is that of
/// every object that was not put under another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GateId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// What pages owe to one log.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// The log is durable up to here.
    durable: u64,
    /// The latest LSN that was told.
    newest: u64,
    /// The gated frames, each with the LSN that it waited for when it was put there: or a later one by now.
    frames: BTreeSet<(u64, u32)>,
    /// Recovery LSNs and their frames.
    recovery: BTreeSet<(u64, u32)>,
    /// The cleaner for the sake of this log.
    pub(super) cleaner: LogCleaner,
    /// The log will not go on.
    pub(super) is_shut: bool,
    /// How many objects are under it; of the default gate nobody asks.
    pub(super) objects: u32,
    /// Counts the gates that had its number.
    pub(super) generation: u32,
    /// It was removed, and its number is free.
    pub(super) is_gone: bool,
}

impl Gate {
    /// One of a log that is to grow so long.
    pub(super) fn new(log_distance_max: u64) -> Gate {
        Gate {
            cleaner: LogCleaner::new(log_distance_max),
            ..Gate::default()
        }
    }
}

impl Cache {
    /// The log of this gate is durable up to this LSN, itself included: pages whose last change is no later may be written. It never
    /// goes back. A gate that is no more is nothing.
    pub fn set_durable_lsn(&mut self, gate: GateId, lsn: u64) {
        let Some(number) = self.gates.find(gate) else { return };
        let gate = self.gates.get_mut(number);
        if lsn <= gate.durable {
            return;
        }
        gate.durable = lsn;
        gate.newest = gate.newest.max(lsn);
        self.gates.eased = true;
        while let Some(&(of, frame)) = self.gates.get(number).frames.first().filter(|(of, _)| *of <= lsn) {
            self.stats.pages_gone_over += 1;
            self.gates.get_mut(number).frames.remove(&(of, frame));
            let pool = &mut self.frames.get_mut(frame).pool;
            pool.listed = (pool.lsn > lsn).then_some(pool.lsn);
            match pool.listed {
                // It was changed meanwhile.
                Some(later) => drop(self.gates.get_mut(number).frames.insert((later, frame))),
                None => self.ungate(frame),
            }
        }
        self.look_at_length(number);
        self.settle();
    }

    /// How far the log of this gate is durable, as was told last; `None` for a gate that is no more.
    #[must_use]
    pub fn durable_lsn(&self, gate: GateId) -> Option<u64> {
        Some(self.gates.get(self.gates.find(gate)?).durable)
    }

    /// The logs of these gates will not go on: what waits for one is cancelled, and syncs make the rest safe and say `LogFirst`. For
    /// whoever ends.
    pub fn shut_gates(&mut self, which: impl Fn(GateId) -> bool) {
        let mut all = false;
        for gate in 0..self.gates.all.len() as u32 {
            if which(self.gates.id(gate)) {
                all |= !self.gates.get(gate).frames.is_empty();
                self.leave_behind(gate);
            }
        }
        // New changes would only wait behind it.
        self.cancel_those(|op| all || matches!(op, CacheOp::PinNew { .. } | CacheOp::Change { .. }));
    }

    /// The log of this gate will not go on, and all else does. What waits for its pages is told `LogFirst`, as is from now on who asks
    /// that they be made safe. They stay, and can be read and changed, until their objects are discarded or they are cut off. Against
    /// others they do not count.
    pub fn shut_gate(&mut self, gate: GateId) {
        let Some(number) = self.gates.find(gate) else { return };
        self.copy_late();
        self.leave_behind(number);
        let left: Vec<u32> = self.gated(number).collect();
        for (request, lsn) in self.syncs_of(&left) {
            self.finish_slot(request, Err(CacheError::LogFirst(lsn)));
        }
        for frame in left {
            self.wake_page(frame); // A durable write or a reservation finds what it can do without the log.
        }
        self.ease();
        self.settle();
    }

    /// The log of this gate will not go on: its pages count against their accounts as those do that could not be written.
    fn leave_behind(&mut self, gate: u32) {
        if std::mem::replace(&mut self.gates.get_mut(gate).is_shut, true) {
            return;
        }
        for &(_, frame) in &self.gates.get(gate).frames {
            let object = &self.objects[self.frames.get(frame).object as usize];
            self.accounts
                .count(object.account, FrameState::Gated, FrameState::Failed);
        }
    }

    /// As what a page of this object in this state counts against its account: one that waits for a log which will not go on is as one
    /// that could not be written.
    pub(super) fn counted(&self, object: u32, state: FrameState) -> FrameState {
        match state {
            FrameState::Gated if self.is_shut(object) => FrameState::Failed,
            state => state,
        }
    }

    /// The syncs that cover one of these gated pages, each with the last LSN that it would have to wait for.
    fn syncs_of(&self, gated: &[u32]) -> BTreeMap<u32, u64> {
        let mut all = BTreeMap::new();
        for entry in gated.iter().map(|&frame| self.frames.get(frame)) {
            for pass in &self.objects[entry.object as usize].passes {
                let covers = is_gated_in(entry, entry.object, &pass.covers, pass.version);
                if let Some(request) = pass.request.filter(|_| covers) {
                    let last = all.entry(request).or_insert(entry.pool.lsn);
                    *last = entry.pool.lsn.max(*last);
                }
            }
        }
        all
    }

    /// Was it said that this gate's log will not go on? `None` for a gate that is no more.
    pub(crate) fn is_gate_shut(&self, gate: GateId) -> Option<bool> {
        Some(self.gates.get(self.gates.find(gate)?).is_shut)
    }

    /// May any gated page be written one day?
    pub(super) fn may_a_log_go_on(&self) -> bool {
        let mut gates = self.gates.all.iter();
        self.frames.count(FrameState::Gated) > 0 && gates.any(|gate| !gate.is_shut && !gate.frames.is_empty())
    }

    /// Will the log of this object not go on?
    fn is_shut(&self, object: u32) -> bool {
        self.gates.get(self.gate_of(object)).is_shut
    }

    /// Why a sync of these pages that ended well must not say so: its log has left one behind that it covers.
    pub(super) fn left_behind(&self, object: u32, pages: &Range<u64>, version: u64) -> Option<CacheError> {
        if !self.is_shut(object) || self.objects[object as usize].gated == 0 {
            return None;
        }
        let gated = self.gated(self.gate_of(object)).map(|frame| self.frames.get(frame));
        let its = gated.filter(|entry| is_gated_in(entry, object, pages, version));
        its.map(|entry| entry.pool.lsn).max().map(CacheError::LogFirst)
    }

    /// Why no more pages of this object may become dirty: its log will not go on, and has left so many behind.
    pub(super) fn too_many_left_behind(&self, object: u32, most: u32) -> Option<CacheError> {
        let gate = self.gates.get(self.gate_of(object));
        let has_some = gate.is_shut && self.objects[object as usize].gated > 0;
        let last = gate.frames.last(); // Of this object or not: to look for its own would go over all that was left.
        last.filter(|_| has_some && gate.frames.len() >= most as usize)
            .map(|(lsn, _)| CacheError::LogFirst(*lsn))
    }

    /// Why nobody need wait for this gated page.
    pub(super) fn never_written(&self, frame: u32) -> Option<CacheError> {
        let entry = self.frames.get(frame);
        self.is_shut(entry.object)
            .then_some(CacheError::LogFirst(entry.pool.lsn))
    }

    /// The oldest LSN of a change that may not be safe in its page: the log of this gate from there on is needed at a restart. `None`
    /// when every logged change is safe. A look-up in an ordered set.
    #[must_use]
    pub fn oldest_recovery_lsn(&self, gate: GateId) -> Option<u64> {
        self.oldest_recovery_of(self.gates.find(gate)?)
    }

    pub(super) fn oldest_recovery_of(&self, gate: u32) -> Option<u64> {
        self.gates.get(gate).recovery.first().map(|(lsn, _)| *lsn)
    }

    /// How far the log of this gate must be durable for all to go on that waits for it now; `None` when nothing does, or the log will
    /// not go on.
    #[must_use]
    pub fn lsn_wanted(&self, gate: GateId) -> Option<u64> {
        self.wanted_of(self.gates.find(gate)?)
    }

    /// The same when nothing but logs can bring anything about: no I/O is on its way or about to begin, and no direct write has a
    /// range for itself.
    #[must_use]
    pub fn lsn_awaited(&self, gate: GateId) -> Option<u64> {
        let gate = self.gates.find(gate).filter(|_| self.only_logs_help())?;
        self.wanted_of(gate)
    }

    /// [`Cache::lsn_wanted`] of each gate that something waits for. Goes over all gates.
    pub fn lsns_wanted(&self) -> impl Iterator<Item = (GateId, u64)> + '_ {
        (0..self.gates.all.len() as u32).filter_map(|gate| Some((self.gates.id(gate), self.wanted_of(gate)?)))
    }

    /// [`Cache::lsn_awaited`] of each gate that something waits for. Goes over all gates.
    pub fn lsns_awaited(&self) -> impl Iterator<Item = (GateId, u64)> + '_ {
        let gates = self.only_logs_help().then(|| self.lsns_wanted());
        gates.into_iter().flatten()
    }

    fn wanted_of(&self, gate: u32) -> Option<u64> {
        if self.gates.get(gate).is_shut {
            return None; // Nobody waits for a log that will not go on.
        }
        let all = !self.frame_waiters.is_empty() || !self.accounts.nobody_waits();
        let gated = self.gated(gate).filter(|&frame| all || self.is_wanted(frame));
        gated.map(|frame| self.frames.get(frame).pool.lsn).max()
    }

    fn only_logs_help(&self) -> bool {
        let is_moving = self.flights.live > 0 || !self.outgoing.is_empty() || !self.copied.is_empty();
        let is_told = self.ready.is_empty() && self.done.is_empty() && !self.is_put_off();
        let mut held = self.objects.iter().flat_map(|object| &object.reservations);
        !is_moving && is_told && !held.any(|held| held.granted)
    }

    /// The gate that this object is under.
    pub(super) fn gate_of(&self, object: u32) -> u32 {
        self.objects[object as usize].gate
    }

    /// The gate of the page in this frame.
    pub(super) fn gate_of_page(&self, frame: u32) -> u32 {
        self.gate_of(self.frames.get(frame).object)
    }

    /// How far the log of this gate is durable.
    fn durable_of(&self, gate: u32) -> u64 {
        if crate::seeded_bug("gate-of-another") {
            return self.gates.all.iter().map(|gate| gate.durable).max().unwrap_or(0);
        }
        self.gates.get(gate).durable
    }

    /// The latest LSN of a change, or of the log.
    pub(super) fn newest_lsn(&self, gate: u32) -> u64 {
        self.gates.get(gate).newest
    }

    /// Pages of which a change up to this LSN is neither safe nor written.
    pub(super) fn logged_by(&self, gate: u32, lsn: u64) -> impl Iterator<Item = u32> + '_ {
        let all = self
            .gates
            .get(gate)
            .recovery
            .range(..=(lsn, u32::MAX))
            .map(|(_, frame)| *frame);
        all.filter(move |&frame| {
            let pool = &self.frames.get(frame).pool;
            let last = pool.written.iter().flatten().last();
            let first = last.map_or(pool.recovery, |written| written.next);
            first.is_some_and(|first| first <= lsn)
        })
    }

    /// The object of the oldest change that is not safe, if all that it waits for is a flush.
    pub(super) fn oldest_waits_for_flush(&self, gate: u32) -> Option<u32> {
        let entry = self.frames.get(self.gates.get(gate).recovery.first()?.1);
        let is_written = entry.state == FrameState::Unflushed || entry.pool.written[0].is_some();
        is_written.then_some(entry.object)
    }

    fn gated(&self, gate: u32) -> impl Iterator<Item = u32> + '_ {
        self.gates.get(gate).frames.iter().map(|(_, frame)| *frame)
    }

    /// A dirty page was changed under this LSN.
    pub(super) fn note_lsn(&mut self, frame: u32, lsn: u64) {
        if lsn == 0 {
            return;
        }
        let number = self.gate_of_page(frame);
        let durable = self.durable_of(number);
        let gate = self.gates.get_mut(number);
        gate.newest = gate.newest.max(lsn);
        let entry = self.frames.get_mut(frame);
        entry.pool.lsn = entry.pool.lsn.max(lsn);
        let gated = entry.pool.lsn > durable && entry.state != FrameState::Gated;
        for written in entry.pool.written.iter_mut().flatten() {
            written.next = Some(written.next.map_or(lsn, |next| next.min(lsn)));
        }
        if entry.pool.recovery.is_none_or(|first| lsn < first) {
            self.set_recovery(frame, Some(lsn));
        }
        if gated {
            self.close_gate(frame);
        }
        self.look_at_length(number);
        self.mark_for_log(number);
    }

    fn close_gate(&mut self, frame: u32) {
        self.transition(frame, FrameState::Gated);
        let entry = self.frames.get_mut(frame);
        let (object, page, since) = (entry.object, entry.page, entry.since);
        entry.pool.listed = Some(entry.pool.lsn);
        let gate = self.gates.get_mut(self.objects[object as usize].gate);
        gate.frames.insert((entry.pool.lsn, frame));
        let is_shut = gate.is_shut;
        let mut left_one = false;
        for pass in &mut self.objects[object as usize].passes {
            if !pass.covers.contains(&page) || since > pass.version {
                continue;
            }
            if pass.request.is_some() && !is_shut {
                entry.pool.wanted = true;
            } else {
                pass.left = pass.left.saturating_sub(1);
                left_one = true;
            }
        }
        if left_one {
            self.end_passes(object);
        }
    }

    fn ungate(&mut self, frame: u32) {
        self.transition(frame, FrameState::Dirty);
        self.due_again(frame);
        let entry = self.frames.get(frame);
        let (object, page, since) = (entry.object, entry.page, entry.since);
        let is_shut = self.is_shut(object);
        for pass in &mut self.objects[object as usize].passes {
            if pass.covers.contains(&page) && since <= pass.version {
                // Who began when the gate was shut had left it out as well.
                pass.left += u64::from(pass.request.is_none() || is_shut);
                pass.pages.start = pass.pages.start.min(page); // It was passed over.
            }
        }
        self.wake_page(frame);
    }

    /// Counts the gated pages that a sync of this object covers; from now on it waits for them.
    pub(super) fn want_gated(&mut self, object: u32, covers: &Range<u64>, version: u64) -> u64 {
        if self.is_shut(object) || self.objects[object as usize].gated == 0 {
            return 0;
        }
        let mut count = 0;
        for &(_, frame) in &self.gates.get(self.gate_of(object)).frames {
            if is_gated_in(self.frames.get(frame), object, covers, version) {
                self.frames.get_mut(frame).pool.wanted = true;
                count += 1;
            }
        }
        count
    }

    /// The gated pages that count for a sync of this object.
    pub(super) fn count_gated(&self, object: u32, covers: &Range<u64>, version: u64) -> u64 {
        if self.is_shut(object) || self.objects[object as usize].gated == 0 {
            return 0;
        }
        let frames = self.gated(self.gate_of(object)).map(|frame| self.frames.get(frame));
        frames
            .filter(|entry| is_gated_in(entry, object, covers, version))
            .count() as u64
    }

    /// Does somebody wait until this page has been written? Who was given up does not.
    fn is_wanted(&self, frame: u32) -> bool {
        let entry = self.frames.get(frame);
        let is_due = entry.pool.is_due && !self.is_shut(entry.object);
        if !entry.pool.wanted {
            return is_due;
        }
        let (object, page) = (&self.objects[entry.object as usize], entry.page);
        let passes = object.passes.iter();
        let mut syncs = passes.filter(|pass| pass.request.is_some() && entry.since <= pass.version);
        is_due
            || syncs.any(|pass| pass.covers.contains(&page))
            || object.durable_waiting.of(page..page + 1).next().is_some()
            || object.reservations.iter().any(|held| held.pages.contains(&page))
    }

    /// Must a change under this LSN wait, so that those who wait for the page are not kept waiting by it?
    pub(super) fn must_wait(&self, frame: u32, lsn: u64) -> bool {
        let durable = self.durable_of(self.gate_of_page(frame));
        lsn > self.frames.get(frame).pool.lsn.max(durable) && self.is_wanted(frame)
    }

    /// A change waits for this page.
    pub(super) fn hold_up(&mut self, frame: u32) {
        let pool = &mut self.frames.get_mut(frame).pool;
        if !std::mem::replace(&mut pool.held_up, true) {
            self.gates.held_up.push(frame);
        }
    }

    /// A sync, a durable write or a reservation has gone, or is content with less: what waits because of it may go on.
    pub(super) fn ease(&mut self) {
        self.gates.eased = true;
    }

    /// Wakes the changes that need not wait any more; says whether there was reason to look.
    pub(super) fn wake_changes(&mut self) -> bool {
        if !std::mem::take(&mut self.gates.eased) || self.gates.held_up.is_empty() {
            return false;
        }
        let mut at = 0;
        while let Some(&frame) = self.gates.held_up.get(at) {
            self.wake_page(frame);
            if self.frames.get(frame).waiters.is_empty() {
                self.gates.held_up.swap_remove(at);
                self.frames.get_mut(frame).pool.held_up = false;
            } else {
                at += 1;
            }
        }
        true
    }

    fn set_recovery(&mut self, frame: u32, lsn: Option<u64>) {
        let entry = self.frames.get_mut(frame);
        let before = std::mem::replace(&mut entry.pool.recovery, lsn);
        let object = &mut self.objects[entry.object as usize];
        let gate = self.gates.get_mut(object.gate);
        if let Some(before) = before {
            object.logged -= 1;
            gate.recovery.remove(&(before, frame));
        }
        if let Some(lsn) = lsn {
            object.logged += 1;
            gate.recovery.insert((lsn, frame));
        } else {
            entry.pool.lsn = 0; // The log is past it, or it could not have been written.
            self.not_due(frame);
        }
    }

    /// A page that was written is taken up again, to be changed or to be written once more, before a flush has covered it.
    pub(super) fn note_written(&mut self, frame: u32) {
        let entry = self.frames.get_mut(frame);
        if entry.pool.recovery.is_none() {
            return;
        }
        let flushes = entry.flushes;
        let all = &mut entry.pool.written;
        // Of two that the same flush will cover the last says more.
        let is_other = all[0].is_some_and(|first| first.flushes != flushes);
        all[usize::from(is_other)] = Some(Written { flushes, next: None });
        self.gates.written.insert((entry.object, frame));
    }

    /// A flush of this object has ended; `number`, if it ended well: what it covers is safe, also of pages changed since.
    pub(super) fn settle_written(&mut self, object: u32, number: Option<u64>) {
        let mut from = 0;
        while let Some(&(_, frame)) = self.gates.written.range((object, from)..=(object, u32::MAX)).next() {
            from = frame.saturating_add(1); // No cache has so many.
            let Some(number) = number else {
                self.forget_written(frame); // All counts as not written.
                continue;
            };
            while let Some(first) = self.frames.get(frame).pool.written[0].filter(|first| first.flushes < number) {
                let all = &mut self.frames.get_mut(frame).pool.written;
                *all = [all[1], None];
                self.set_recovery(frame, first.next);
            }
            if self.frames.get(frame).pool.written[0].is_none() {
                self.forget_written(frame);
            }
        }
    }

    fn forget_written(&mut self, frame: u32) {
        let entry = self.frames.get_mut(frame);
        entry.pool.written = [None; 2];
        self.gates.written.remove(&(entry.object, frame));
    }

    /// All changes of this page are safe.
    pub(super) fn forget_recovery(&mut self, frame: u32) {
        let pool = &self.frames.get(frame).pool;
        let (is_listed, is_logged) = (pool.written[0].is_some(), pool.recovery.is_some());
        if is_listed {
            self.forget_written(frame);
        }
        if is_logged {
            self.set_recovery(frame, None);
        }
    }

    /// The page has left this frame: pins of it are stale.
    pub(super) fn left_pool(&mut self, frame: u32) {
        self.forget_recovery(frame);
        self.not_due(frame);
        let gate = self.gate_of_page(frame);
        let pool = &mut self.frames.get_mut(frame).pool;
        if let Some(listed) = pool.listed.take() {
            self.gates.get_mut(gate).frames.remove(&(listed, frame));
        }
        pool.epoch = pool.epoch.wrapping_add(1);
        pool.wanted = false;
        let (lent, kept) = (std::mem::take(&mut pool.lent), pool.kept);
        if lent > 0 {
            let object = self.frames.get(frame).object;
            self.objects[object as usize].lent -= 1;
            self.frames.unpin(frame);
        }
        if kept {
            self.frames.set_kept(frame, false);
        }
    }

    /// A sync of the pages that an LSN's recovery would need: their changes, and whatever was changed before the last of them.
    pub(super) fn flush_to(&mut self, object: u32, request: u32, lsn: u64) {
        let up_to = self.gates.get(self.gate_of(object)).recovery.range(..=(lsn, u32::MAX));
        let frames = up_to.map(|(_, frame)| self.frames.get(*frame));
        // A page that was written and not flushed has no such version: the flush that ends the pass covers it.
        let since = frames.filter(|entry| entry.object == object && entry.since != u64::MAX);
        let version = since.map(|entry| entry.since).max().unwrap_or(0);
        let flush = Some(Durability::Data);
        self.start_pass_to(object, Some(request), 0..u64::MAX, flush, version);
    }
}

/// Does this gated page count for a sync of the object?
fn is_gated_in(entry: &Frame, object: u32, covers: &Range<u64>, version: u64) -> bool {
    entry.object == object && covers.contains(&entry.page) && entry.since <= version
}
