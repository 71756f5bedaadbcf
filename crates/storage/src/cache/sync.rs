//! Syncs: a pass over what is dirty, then a flush (seed 001 §5.3, §6).
//!
//! A sync covers the pages that are dirty or being written when it starts. It counts them once; each write that ends well takes
//! one off. Pages that become dirty later have a later version and are passed over, so it ends whatever writers do. Then it
//! joins a flush that begins after its last write has ended; all syncs that get there while one flush runs share the next.
//!
//! A write that fails ends the syncs that cover its page; their passes go on for nobody, and write and flush what else can be. A
//! flush that fails ends every sync of the object: nobody knows what the
//! device lost, so all that was written and not flushed counts as dirty again, and writes that ran meanwhile are not
//! trusted either. Nothing asks the device for a second flush as proof; the pages are in memory and are written again.

use std::ops::Range;

use baio_engine::{Durability, Errno};

use super::Cache;
use super::frames::{FrameState, PAGE};
use super::object::{Flush, Pass};
use super::request::{CacheError, CacheOp};
use super::settle::PutOff;
use super::tree::Tag;
use super::wait::Wait;
use super::write::stronger;

impl CacheOp {
    /// A sync of all of an object.
    pub(crate) fn whole(durability: Durability) -> CacheOp {
        CacheOp::Sync {
            start: 0,
            end: u64::MAX,
            durability,
        }
    }
}

impl Cache {
    /// Begins a pass over all changes so far; one with nothing to write goes on at once.
    pub(super) fn start_pass(
        &mut self,
        slot: u32,
        request: Option<u32>,
        covers: Range<u64>,
        flush: Option<Durability>,
    ) {
        self.start_pass_to(slot, request, covers, flush, self.version);
    }

    /// The same for pages whose first change that is not on the device is no later than `version`.
    pub(super) fn start_pass_to(
        &mut self,
        slot: u32,
        request: Option<u32>,
        covers: Range<u64>,
        flush: Option<Durability>,
        version: u64,
    ) {
        if let Some(request) = request.and_then(|request| self.requests.get_mut(request)) {
            request.wait = Wait::Synced;
            request.version = version;
        }
        let object = &self.objects[slot as usize];
        if object.stuck > 0 {
            // Nobody knows when those pages can be written again.
            self.set_dirty_since(slot, Some(self.now));
            if let Some(request) = request {
                self.finish_slot(request, Err(CacheError::Stuck));
            }
            return;
        }
        let mut left = match request {
            Some(_) => self.want_gated(slot, &covers, version),
            None => 0, // The cleaner does not wait for the log: those pages join its pass when the log lets them.
        };
        let object = &mut self.objects[slot as usize];
        for tag in [Tag::Dirty, Tag::Failed, Tag::WriteBack] {
            let mut at = covers.start;
            let mut found = [(0, 0); 64];
            loop {
                let count = object.tree.gang(at, Some(tag), &mut found);
                let inside = found[..count].iter().take_while(|(page, _)| *page < covers.end);
                // What is written a second time, for somebody's sake, needs the flush alone.
                left += inside
                    .filter(|(_, frame)| self.frames.get(*frame).since <= version)
                    .count() as u64;
                match found[..count].last() {
                    Some((page, _)) if count == found.len() && *page < covers.end => at = page + 1,
                    _ => break,
                }
            }
        }
        object.passes.push(Pass {
            request,
            pages: covers.clone(),
            covers,
            version,
            left,
            flush,
        });
        if !self.passing.contains(&slot) {
            self.passing.push(slot);
        }
        self.end_passes(slot);
    }

    /// The next write of any pass.
    pub(super) fn write_for_pass(&mut self) -> bool {
        for at in 0..self.passing.len() {
            let slot = self.passing[at];
            if !self.has_depth(self.objects[slot as usize].account) {
                continue;
            }
            for nth in 0..self.objects[slot as usize].passes.len() {
                if let Some(first) = self.next_of_pass(slot, nth) {
                    let pass = &self.objects[slot as usize].passes[nth];
                    let (end, version) = (pass.pages.end, pass.version);
                    self.stats.cleaner_writes += u64::from(pass.request.is_none());
                    let frames = self.run_of(slot, first, end, version, true);
                    let pass = &mut self.objects[slot as usize].passes[nth];
                    pass.pages.start = first + frames.len() as u64;
                    self.start_write(slot, first, frames, Durability::None);
                    self.passing.rotate_left(at); // The others' turn comes before its next.
                    self.passing.rotate_left(1);
                    return true;
                }
            }
        }
        false
    }

    /// The next page that this pass must write; moves its cursor there, or to the end.
    fn next_of_pass(&mut self, slot: u32, nth: usize) -> Option<u64> {
        let object = &mut self.objects[slot as usize];
        let pass = &mut object.passes[nth];
        while !pass.pages.is_empty() {
            let dirty = object.tree.next(pass.pages.start, Some(Tag::Dirty));
            let failed = object.tree.next(pass.pages.start, Some(Tag::Failed));
            let next = [dirty, failed].into_iter().flatten().min();
            let Some((page, frame)) = next.filter(|(page, _)| *page < pass.pages.end) else {
                pass.pages.start = pass.pages.end;
                return None;
            };
            pass.pages.start = page;
            if self.frames.get(frame).since <= pass.version {
                return Some(page);
            }
            pass.pages.start = page + 1;
        }
        None
    }

    /// A page was written well: the passes that counted it count one less.
    pub(super) fn page_left_pass(&mut self, slot: u32, page: u64, since: u64) {
        let object = &mut self.objects[slot as usize];
        if object.passes.is_empty() {
            return;
        }
        let mut ended = false;
        for pass in &mut object.passes {
            if pass.covers.contains(&page) && since <= pass.version {
                pass.left = pass.left.saturating_sub(1);
                ended |= pass.left == 0;
            }
        }
        if ended {
            self.end_passes(slot);
        }
    }

    /// Passes whose last write has ended go on: to a flush, or to their end.
    pub(super) fn end_passes(&mut self, slot: u32) {
        let mut at = 0;
        while let Some(pass) = self.objects[slot as usize].passes.get(at) {
            if pass.left > 0 || self.goes_on(slot, at) {
                at += 1;
                continue;
            }
            let pass = self.objects[slot as usize].passes.remove(at);
            self.ease();
            match (pass.flush, pass.request) {
                (Some(durability), Some(request)) => self.objects[slot as usize].next_flush.push((request, durability)),
                (None, Some(request)) => self.finish_slot(request, Ok(0)),
                (_, None) => {}
            }
            let object = &mut self.objects[slot as usize];
            let for_nobody = pass.request.is_none() && object.unflushed > 0;
            if object.flush.is_some() {
                object.flush_again |= for_nobody; // That one began before its last write had ended.
            } else if for_nobody || !object.next_flush.is_empty() {
                self.start_flush(slot, pass.flush.unwrap_or_default());
            }
        }
        if self.objects[slot as usize].passes.is_empty() {
            self.passing.retain(|&passing| passing != slot);
        }
    }

    /// A pass that nobody waits for tries pages again whose write failed, and counts them twice then, as it does those that somebody
    /// else writes again: so it ends when there is nothing left to write, or being written.
    fn goes_on(&mut self, slot: u32, nth: usize) -> bool {
        let pass = &self.objects[slot as usize].passes[nth];
        if pass.request.is_some() {
            return false; // A failure ends what is counted for somebody.
        }
        let (covers, version) = (pass.covers.clone(), pass.version);
        let more = self.next_of_pass(slot, nth).is_some() || self.is_writing(slot, covers, version);
        if more {
            self.objects[slot as usize].passes[nth].left = 1; // The next end looks again.
        }
        more
    }

    /// Is a page being written that a pass over these waits for? Nobody waits for one that was given up on.
    fn is_writing(&self, slot: u32, mut pages: Range<u64>, version: u64) -> bool {
        let tree = &self.objects[slot as usize].tree;
        while let Some((page, frame)) = tree.next(pages.start, Some(Tag::WriteBack)) {
            let entry = self.frames.get(frame);
            if page >= pages.end || (entry.since <= version && !entry.stuck) {
                return page < pages.end;
            }
            pages.start = page + 1;
        }
        false
    }

    /// Starts a flush for all that wait for one. None is on its way.
    pub(super) fn start_flush(&mut self, slot: u32, durability: Durability) {
        let object = &mut self.objects[slot as usize];
        let waiting = std::mem::take(&mut object.next_flush);
        object.flush_again = false;
        object.flushes += 1;
        let number = object.flushes;
        let most = waiting
            .iter()
            .fold(stronger(durability, Durability::Data), |most, (_, each)| {
                stronger(most, *each)
            });
        let syncs = waiting.into_iter().map(|(request, _)| request).collect();
        self.send_flush(slot, most);
        let settled = 0;
        self.objects[slot as usize].flush = Some(Flush { number, syncs, settled });
    }

    /// A flush has ended.
    pub(super) fn flush_ended(&mut self, slot: u32, result: Result<(), Errno>) {
        let Err(errno) = result else {
            return self.flushed(slot);
        };
        if let Some(flush) = self.objects[slot as usize].flush.take() {
            self.not_flushed(slot, flush, errno);
            self.flush_next(slot);
        }
    }

    fn flush_next(&mut self, slot: u32) {
        self.take_turns(slot);
        let object = &mut self.objects[slot as usize];
        let again = std::mem::take(&mut object.flush_again) && object.unflushed > 0;
        if again || !object.next_flush.is_empty() {
            self.start_flush(slot, Durability::Data);
        }
    }

    /// A flush has ended well: a slice of the pages that it covers is safe now. To all others it is on its way until the last.
    pub(super) fn flushed(&mut self, slot: u32) {
        let Some(flush) = &self.objects[slot as usize].flush else {
            return;
        };
        let (mut at, number) = (flush.settled, flush.number);
        let mut left = self.slice;
        while let Some((page, frame)) = self.objects[slot as usize].tree.next(at, Some(Tag::Unflushed)) {
            if left == 0 {
                if let Some(flush) = &mut self.objects[slot as usize].flush {
                    flush.settled = at;
                }
                let generation = self.objects[slot as usize].generation;
                return self.put_off.push_back(PutOff::Flushed(slot, generation));
            }
            left -= 1;
            self.stats.pages_gone_over += 1;
            at = page + 1;
            let entry = self.frames.get_mut(frame);
            if entry.flushes < number || crate::seeded_bug("any-flush-covers") {
                entry.stable = entry.writing;
                self.transition(frame, FrameState::Clean);
                self.wake_page(frame);
            }
        }
        self.settle_written(slot, Some(number));
        let flush = self.objects[slot as usize].flush.take();
        for request in flush.map(|flush| flush.syncs).unwrap_or_default() {
            self.flushed_for(request);
        }
        self.flush_next(slot);
    }

    /// The flush that this request waited for has ended, and well as far as it cares: a sync with it, a reservation goes on.
    fn flushed_for(&mut self, slot: u32) {
        match self.requests.get_mut(slot) {
            Some(request) if matches!(request.op, CacheOp::Reserve { .. } | CacheOp::Cut { .. }) => {
                request.wait = Wait::None;
                self.ready.push_back(slot);
            }
            _ => self.finish_slot(slot, Ok(0)),
        }
    }

    fn not_flushed(&mut self, slot: u32, flush: Flush, errno: Errno) {
        self.stats.failed_flushes += 1;
        let object = &mut self.objects[slot as usize];
        object.failed_flushes += 1;
        object.errno = Some(errno);
        let mut told = flush.syncs;
        told.extend(object.next_flush.drain(..).map(|(request, _)| request));
        told.extend(object.passes.iter().filter_map(|pass| pass.request));
        let was_for_age = object.passes.iter().any(|pass| pass.request.is_none());
        object.passes.clear();
        if was_for_age && object.dirty_since.is_none() {
            self.set_dirty_since(slot, Some(self.now)); // What that pass has not written yet grows old again.
        }
        self.ease();
        self.passing.retain(|&passing| passing != slot);
        while let Some((_, frame)) = self.objects[slot as usize].tree.next(0, Some(Tag::Unflushed)) {
            self.tell_failure(frame, errno);
            self.transition(frame, FrameState::Failed);
            self.wake_page(frame);
        }
        self.settle_written(slot, None);
        // What is being written a second time may have lost what the first write left: later passes count it.
        let mut at = 0;
        while let Some((page, frame)) = self.objects[slot as usize].tree.next(at, Some(Tag::WriteBack)) {
            at = page + 1;
            let entry = self.frames.get_mut(frame);
            if entry.since == u64::MAX {
                entry.since = 0;
            }
        }
        for request in told {
            match self.is_cut_all_the_same(request) {
                true => self.flushed_for(request),
                false => self.finish_slot(request, Err(CacheError::System(errno))),
            }
        }
    }

    /// Does this request cut off all that was lost of its range? It goes on, and throws that away.
    fn is_cut_all_the_same(&self, slot: u32) -> bool {
        let Some(request) = self.requests.get(slot) else {
            return false;
        };
        let CacheOp::Cut { from } = request.op else {
            return false;
        };
        // Of this page a part stays.
        let last = self.objects[request.object as usize].tree.get(from / PAGE);
        let is_lost = |frame: u32| self.frames.get(frame).state == FrameState::Failed;
        from % PAGE == 0 || !last.is_some_and(is_lost)
    }

    /// A write of this page failed: the syncs that cover it are told, and their passes go on for nobody with what else can be
    /// written. A failure is told once, and at a close there may be no other pass.
    pub(super) fn tell_passes(&mut self, slot: u32, page: u64, since: u64, errno: Errno) {
        let (mut told, mut ended) = (Vec::new(), false);
        let object = &mut self.objects[slot as usize];
        for pass in &mut object.passes {
            let relies = since <= pass.version || since == u64::MAX;
            if !pass.covers.contains(&page) || !relies {
                continue;
            }
            if since <= pass.version {
                pass.left = pass.left.saturating_sub(1); // What is written a second time was not counted.
            }
            ended |= pass.left == 0;
            told.extend(pass.request);
        }
        for &request in &told {
            self.leave_pass(slot, request);
        }
        for &request in &told {
            self.finish_slot(request, Err(CacheError::System(errno)));
        }
        if ended || !told.is_empty() {
            self.end_passes(slot);
        }
    }

    /// Nobody waits for the pass of this request any more, and it goes on. It does not wait for the log then, and takes over
    /// from those before it that nobody waits for.
    fn leave_pass(&mut self, slot: u32, request: u32) {
        let passes = &mut self.objects[slot as usize].passes;
        let Some(at) = passes.iter().position(|pass| pass.request == Some(request)) else {
            return;
        };
        let mut pass = passes.remove(at);
        pass.request = None;
        let covers = |other: &Pass| pass.covers.start <= other.covers.start && other.covers.end <= pass.covers.end;
        passes.retain(|other| other.request.is_some() || !covers(other) || other.version > pass.version);
        let gated = self.count_gated(slot, &pass.covers, pass.version);
        pass.left = pass.left.saturating_sub(gated);
        let passes = &mut self.objects[slot as usize].passes;
        passes.insert(at.min(passes.len()), pass);
        self.ease();
    }

    /// A sync has ended, however: nothing refers to it any more.
    pub(super) fn forget_sync(&mut self, slot: u32, request: u32) {
        let object = &mut self.objects[slot as usize];
        object.passes.retain(|pass| pass.request != Some(request));
        object.next_flush.retain(|(waiting, _)| *waiting != request);
        if let Some(flush) = &mut object.flush {
            flush.syncs.retain(|waiting| *waiting != request);
        }
        if object.passes.is_empty() {
            self.passing.retain(|&passing| passing != slot);
        }
        self.ease();
    }
}
