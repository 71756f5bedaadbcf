//! The cleaner for the sake of a log: a restart shall not have to read more of it than `log_distance_max`, or what was said when its
//! gate was made. Each gate has its own; those whose log is too long take turns.
//!
//! When the oldest recovery LSN lies further back than that, what was first changed before the younger half of the distance is *due*: it
//! is written in offset order, and one flush follows when the last of it has been written. What is due is held: its next change
//! under an LSN that the log does not have yet waits until it has been written. Otherwise a page that is changed on and on would
//! wait for the log whenever the cleaner comes by, and keep the whole log alive.
//!
//! A page that has been written and changed again before a flush needs the flush, and no second write: what counts is its first
//! change behind that write.

use std::collections::VecDeque;

use baio_engine::Durability;

use super::Cache;
use super::frames::FrameState;

#[derive(Debug, Default)]
pub(super) struct LogCleaner {
    /// How far the oldest change that is not safe may lie behind the latest.
    distance_max: u64,
    /// Frames that had to wait for the log and are due; then the others, in offset order. Some are not any more.
    due: VecDeque<u32>,
    /// Pages that are due and whose write has not ended.
    left: u32,
    /// The latest LSN when pages last became due, and when a flush last began for them.
    marked: u64,
    flushed: u64,
    /// It is among those to be looked at ([`Gates::long`](super::gates::Gates)).
    is_long: bool,
}

impl LogCleaner {
    pub(super) fn new(distance_max: u64) -> LogCleaner {
        LogCleaner {
            distance_max,
            ..LogCleaner::default()
        }
    }
}

impl Cache {
    /// The log is too long for the oldest change that is not safe: gives the LSN up to which pages are due.
    fn log_limit(&self, gate: u32) -> Option<u64> {
        let distance = self.gates.get(gate).cleaner.distance_max;
        if distance == u64::MAX {
            return None;
        }
        let newest = self.newest_lsn(gate);
        let oldest = self.oldest_recovery_of(gate)?;
        (newest.saturating_sub(oldest) > distance).then(|| newest - distance / 2)
    }

    /// Has the log grown enough since then to look again?
    fn has_grown_since(&self, gate: u32, lsn: u64) -> bool {
        self.newest_lsn(gate).saturating_sub(lsn) >= self.gates.get(gate).cleaner.distance_max / 8
    }

    /// The log has grown. One that is too long stays in mind until it is not.
    pub(super) fn look_at_length(&mut self, gate: u32) {
        if !self.gates.get(gate).cleaner.is_long && self.log_limit(gate).is_some() {
            self.keep_in_mind(gate);
        }
    }

    fn keep_in_mind(&mut self, gate: u32) {
        if !std::mem::replace(&mut self.gates.get_mut(gate).cleaner.is_long, true) {
            self.gates.long.push(gate);
        }
    }

    /// Pages become due, if the log has become too long. What could not be written since the last time is being written or waits for
    /// the log, so this waits until that has grown.
    pub(super) fn mark_for_log(&mut self, gate: u32) {
        let cleaner = &self.gates.get(gate).cleaner;
        if !cleaner.due.is_empty() || !self.has_grown_since(gate, cleaner.marked) {
            return;
        }
        let Some(limit) = self.log_limit(gate) else { return };
        let mut due = std::mem::take(&mut self.gates.get_mut(gate).cleaner.due);
        due.extend(self.logged_by(gate, limit));
        let mut left = 0;
        due.retain(|&frame| {
            let entry = self.frames.get_mut(frame);
            let is_new = matches!(
                entry.state,
                FrameState::Dirty | FrameState::Gated | FrameState::WriteBack
            ) && !std::mem::replace(&mut entry.pool.is_due, true);
            left += u32::from(is_new);
            is_new && entry.state == FrameState::Dirty
        });
        let place = |frame: &u32| {
            let entry = self.frames.get(*frame);
            (entry.object, entry.page)
        };
        due.make_contiguous().sort_unstable_by_key(place);
        let newest = self.newest_lsn(gate);
        let cleaner = &mut self.gates.get_mut(gate).cleaner;
        cleaner.marked = newest;
        cleaner.left += left;
        cleaner.due = due;
    }

    /// The next write that lets a log become shorter. Logs that are too long take turns.
    pub(super) fn clean_for_log(&mut self) -> bool {
        let mut at = 0;
        while let Some(&gate) = self.gates.long.get(at) {
            self.mark_for_log(gate);
            if let Some(frame) = self.next_due(gate) {
                let entry = self.frames.get(frame);
                let (object, page) = (entry.object, entry.page);
                let frames = self.run_of(object, page, u64::MAX, u64::MAX, false);
                self.stats.cleaner_writes += 1;
                self.start_write(object, page, frames, Durability::None);
                self.gates.long.rotate_left(at + 1);
                return true;
            }
            if self.log_limit(gate).is_some() {
                at += 1;
            } else {
                self.gates.long.swap_remove(at);
                self.gates.get_mut(gate).cleaner.is_long = false;
            }
        }
        false
    }

    fn next_due(&mut self, gate: u32) -> Option<u32> {
        while let Some(frame) = self.gates.get_mut(gate).cleaner.due.pop_front() {
            let entry = self.frames.get(frame);
            if entry.pool.is_due && entry.state == FrameState::Dirty {
                return Some(frame);
            }
        }
        None
    }

    /// A page that is due waited for the log, and does so no longer. It goes first: it is one that is changed often.
    pub(super) fn due_again(&mut self, frame: u32) {
        if self.frames.get(frame).pool.is_due {
            let gate = self.gate_of_page(frame);
            self.gates.get_mut(gate).cleaner.due.push_front(frame);
            self.keep_in_mind(gate);
        }
    }

    /// The write of a page has ended, or it has none any more.
    pub(super) fn not_due(&mut self, frame: u32) {
        if std::mem::take(&mut self.frames.get_mut(frame).pool.is_due) {
            let gate = self.gate_of_page(frame);
            self.gates.get_mut(gate).cleaner.left -= 1;
        }
    }

    /// The object whose flush would let a log become shorter: when all that was due has been written, and while that goes on and on
    /// at times.
    pub(super) fn flush_for_log(&mut self) -> Option<u32> {
        for at in 0..self.gates.long.len() {
            let gate = self.gates.long[at];
            let cleaner = &self.gates.get(gate).cleaner;
            let is_time = cleaner.left == 0 || self.has_grown_since(gate, cleaner.flushed);
            if !is_time || self.log_limit(gate).is_none() {
                continue;
            }
            let object = self.oldest_waits_for_flush(gate);
            if let Some(object) = object.filter(|object| self.objects[*object as usize].flush.is_none()) {
                self.gates.get_mut(gate).cleaner.flushed = self.newest_lsn(gate);
                return Some(object);
            }
        }
        None
    }
}
