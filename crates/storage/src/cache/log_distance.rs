//! The cleaner for the sake of the log: a restart shall not have to read more of it than `log_distance_max`.
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
    /// Frames that had to wait for the log and are due; then the others, in offset order. Some are not any more.
    due: VecDeque<u32>,
    /// Pages that are due and whose write has not ended.
    left: u32,
    /// The latest LSN when pages last became due, and when a flush last began for them.
    marked: u64,
    flushed: u64,
}

impl LogCleaner {
    /// Has nothing become due that was not looked at since?
    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }
}

impl Cache {
    /// The log is too long for the oldest change that is not safe: gives the LSN up to which pages are due.
    fn log_limit(&self) -> Option<u64> {
        let distance = self.config.log_distance_max;
        if distance == u64::MAX {
            return None;
        }
        let newest = self.newest_lsn();
        let oldest = self.oldest_recovery_lsn()?;
        (newest.saturating_sub(oldest) > distance).then(|| newest - distance / 2)
    }

    /// Has the log grown enough since then to look again?
    fn has_grown_since(&self, lsn: u64) -> bool {
        self.newest_lsn().saturating_sub(lsn) >= self.config.log_distance_max / 8
    }

    /// Pages become due, if the log has become too long. What could not be written since the last time is being written or waits for
    /// the log, so this waits until that has grown.
    pub(super) fn mark_for_log(&mut self) {
        if !self.log_cleaner.due.is_empty() || !self.has_grown_since(self.log_cleaner.marked) {
            return;
        }
        let Some(limit) = self.log_limit() else { return };
        self.log_cleaner.marked = self.newest_lsn();
        let mut due = std::mem::take(&mut self.log_cleaner.due);
        due.extend(self.logged_by(limit));
        due.retain(|&frame| {
            let entry = self.frames.get_mut(frame);
            let is_new = matches!(
                entry.state,
                FrameState::Dirty | FrameState::Gated | FrameState::WriteBack
            ) && !std::mem::replace(&mut entry.pool.is_due, true);
            self.log_cleaner.left += u32::from(is_new);
            is_new && entry.state == FrameState::Dirty
        });
        let place = |frame: &u32| {
            let entry = self.frames.get(*frame);
            (entry.object, entry.page)
        };
        due.make_contiguous().sort_unstable_by_key(place);
        self.log_cleaner.due = due;
    }

    /// The next write that lets the log become shorter.
    pub(super) fn clean_for_log(&mut self) -> bool {
        self.mark_for_log();
        while let Some(frame) = self.log_cleaner.due.pop_front() {
            let entry = self.frames.get(frame);
            if !entry.pool.is_due || entry.state != FrameState::Dirty {
                continue;
            }
            let (object, page) = (entry.object, entry.page);
            let frames = self.run_of(object, page, u64::MAX, u64::MAX, false);
            self.stats.cleaner_writes += 1;
            self.start_write(object, page, frames, Durability::None);
            return true;
        }
        false
    }

    /// A page that is due waited for the log, and does so no longer. It goes first: it is one that is changed often.
    pub(super) fn due_again(&mut self, frame: u32) {
        if self.frames.get(frame).pool.is_due {
            self.log_cleaner.due.push_front(frame);
        }
    }

    /// The write of a page has ended, or it has none any more.
    pub(super) fn not_due(&mut self, frame: u32) {
        if std::mem::take(&mut self.frames.get_mut(frame).pool.is_due) {
            self.log_cleaner.left -= 1;
        }
    }

    /// The object whose flush would let the log become shorter: when all that was due has been written, and while that goes on and on
    /// at times.
    pub(super) fn flush_for_log(&mut self) -> Option<u32> {
        self.log_limit()?;
        if self.log_cleaner.left > 0 && !self.has_grown_since(self.log_cleaner.flushed) {
            return None;
        }
        let object = self.oldest_waits_for_flush()?;
        if self.objects[object as usize].flush.is_some() {
            return None;
        }
        self.log_cleaner.flushed = self.newest_lsn();
        Some(object)
    }
}
