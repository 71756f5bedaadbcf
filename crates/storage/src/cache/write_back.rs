//! Write-back: passes and the cleaner (seed 001 §6, §8).
//!
//! All walk the tree by its tags in offset order, merge neighbours, and keep one depth of writes under way together. A pass writes
//! what was dirty when it began, for a sync. The cleaner has triggers that know nothing of each other:
//!
//! - **Few frames are clean.** It goes on where its last write of the object ended, so that it sweeps over the object instead of
//!   beginning with its first dirty page each time: what lies ahead of it has had the longest time to be changed again and
//!   to get neighbours.
//! - **Age.** What has been dirty for `age_max` is written by a pass that nobody waits for ([`Cache::tick`]).
//! - **Distance in the log.** The oldest recovery LSN of the buffer pool lies further than `log_distance_max` behind the latest
//!   (`log_distance`).
//!
//! It leaves pages alone whose last write failed: a pass tries those again, at the latest when they have grown old. There is one
//! cleaner in a cache, as there is one cache in a core, and it takes no thread of its own.

use baio_engine::{Durability, Errno};

use super::Cache;
use super::frames::{FrameState, PAGE_BYTES};

impl Cache {
    /// Pages of one merged write.
    pub(super) fn run_max(&self) -> usize {
        (self.config.write_bytes_max / PAGE_BYTES).clamp(1, baio_engine::memory::IOV_MAX)
    }

    /// Starts one write, if one is due and the device has room. A quarter of the depth runs dry before it is filled again, so
    /// that writes go to the device several at a time.
    pub(super) fn write_back(&mut self) -> bool {
        let depth = self.config.cleaner_depth.max(1);
        let under_way = self.flights.live_background;
        self.filling_depth &= under_way < depth;
        self.filling_depth |= under_way <= depth - depth.div_ceil(4);
        if !self.filling_depth && !self.accounts.is_depth_taken() {
            return false;
        }
        self.write_for_pass()
            || (self.filling_depth && self.clean_for_log())
            || (self.is_short_of_clean() && self.clean_one())
    }

    /// Does somebody wait for frames to become clean, or are more than two thirds of those dirty that may be? Once begun it goes
    /// on for a while, so that it does not write page by page what is changed page by page.
    fn is_short_of_clean(&mut self) -> bool {
        let waits = !self.accounts.nobody_waits() || !self.frame_waiters.is_empty();
        let (dirty, from) = (self.frames.count(FrameState::Dirty), self.clean_from());
        self.is_cleaning = dirty > from || (self.is_cleaning && dirty > from - from / 16);
        waits || self.is_cleaning
    }

    /// From so many dirty frames on the cleaner writes: early enough that writers seldom wait at the limit, late enough that
    /// what is written again and again is written to the device once.
    fn clean_from(&self) -> u32 {
        let most = self.dirty_max.min(self.room_beside_what_stays());
        most - most.div_ceil(3)
    }

    /// So many pages may be dirty or wait for a flush beside those that failed or were left behind by their log: these do not come
    /// free when the cleaner writes.
    fn room_beside_what_stays(&self) -> u32 {
        let comes_free = self.frames.count(FrameState::Unflushed) + self.accounts.dirty();
        let stays = self.frames.count_unsafe().saturating_sub(comes_free);
        self.unsafe_max.saturating_sub(stays)
    }

    /// So many pages may wait for a flush before one is done for their sake: an eighth of the frames, or, where so much stays that this is
    /// less, half of what lies between the cleaner's beginning and the limit.
    fn unflushed_max(&self) -> u32 {
        let beside = self.room_beside_what_stays().saturating_sub(self.clean_from());
        (self.frames.total() / 8).min(beside / 2)
    }

    /// The next write of the cleaner: of one account after the other, object after object, each from where it left it.
    fn clean_one(&mut self) -> bool {
        if self.frames.count(FrameState::Dirty) == 0 {
            return false;
        }
        let Some((slot, first)) = self.next_to_clean() else {
            return false;
        };
        let frames = self.run_of(slot, first, u64::MAX, u64::MAX, false);
        self.objects[slot as usize].resume = first + frames.len() as u64;
        self.stats.cleaner_writes += 1;
        self.stats.foreground_writes += u64::from(!self.frame_waiters.is_empty());
        self.start_write(slot, first, frames, Durability::None);
        true
    }

    /// Dirty pages that follow one another from `first` on, changed no later than `version`.
    pub(super) fn run_of(&mut self, slot: u32, first: u64, end: u64, version: u64, failed: bool) -> Vec<u32> {
        let mut frames = self.flights.frames();
        let object = &self.objects[slot as usize];
        for page in (first..end).take(self.run_max()) {
            let Some(frame) = object.tree.get(page) else { break };
            let entry = self.frames.get(frame);
            let due = entry.state == FrameState::Dirty || (failed && entry.state == FrameState::Failed);
            if !due || entry.since > version {
                break;
            }
            frames.push(frame);
        }
        frames
    }

    /// What has been written must be flushed before it is clean: done when somebody waits for it, or it has become much.
    pub(super) fn flush_for_room(&mut self) -> bool {
        let unflushed = self.frames.count(FrameState::Unflushed);
        if unflushed == 0 {
            return false;
        }
        if let Some(slot) = self.flush_for_log() {
            self.start_flush(slot, Durability::Data);
            return true;
        }
        // What waits for a flush takes no room below the dirty limit: who waits there is helped by writes, or the log.
        let full = self.frames.count_unsafe() >= self.unsafe_max;
        let waits = !self.frame_waiters.is_empty() || (!self.accounts.nobody_waits() && full);
        // A sync or a reservation will flush for itself.
        let will_flush = !self.passing.is_empty() || self.clearing > 0;
        if !waits && (unflushed <= self.unflushed_max() || will_flush) {
            return false;
        }
        let Some(slot) = self.next_to_flush() else {
            return false;
        };
        self.start_flush(slot, Durability::Data);
        true
    }

    /// A write of this page has ended.
    pub(super) fn page_written(&mut self, frame: u32, result: Result<(), Errno>, durability: Durability) {
        if let Err(errno) = result {
            self.stats.failed_writes += 1;
            // First: a pass that goes on for nobody finds it there, if it has not come by yet.
            self.transition(frame, FrameState::Failed);
            self.tell_failure(frame, errno);
            return;
        }
        let entry = self.frames.get_mut(frame);
        let (object, page) = (entry.object, entry.page);
        let since = std::mem::replace(&mut entry.since, u64::MAX);
        entry.flushes = self.objects[object as usize].flushes;
        if durability == Durability::None {
            self.transition(frame, FrameState::Unflushed);
        } else {
            entry.stable = entry.writing;
            self.transition(frame, FrameState::Clean);
        }
        self.page_left_pass(object, page, since);
    }

    /// A page's write or flush failed, or was given up on: whoever relies on it is told.
    pub(super) fn tell_failure(&mut self, frame: u32, errno: Errno) {
        let entry = self.frames.get_mut(frame);
        let (object, page, since) = (entry.object, entry.page, entry.since);
        if since == u64::MAX {
            entry.since = 0; // It was written already and must be written again: part of every later pass.
        }
        self.objects[object as usize].errno = Some(errno);
        self.tell_waiters(frame, errno);
        self.tell_passes(object, page, since, errno);
    }
}
