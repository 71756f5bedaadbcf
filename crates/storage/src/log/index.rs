//! Where in the area an LSN lies: a mark for about every MiB of the log, in memory.
//!
//! Place and LSN differ by a constant only within an epoch, and up to a mark's distance a reader follows the batches from there.

use std::collections::VecDeque;

use super::format::Head;

/// LSNs between two marks.
const MARK_EVERY: u64 = 1 << 20;

/// A batch, and the group that was not whole when it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) lsn: u64,
    pub(super) place: u64,
    pub(super) group: Option<Head>,
}

/// Marks in the order of their LSNs.
#[derive(Debug, Default)]
pub(super) struct Index {
    marks: VecDeque<Mark>,
}

impl Index {
    /// The next batch.
    pub(super) fn note(&mut self, mark: Mark) {
        let is_due = self.marks.back().is_none_or(|last| mark.lsn >= last.lsn + MARK_EVERY);
        if is_due {
            self.marks.push_back(mark);
        }
    }

    /// The first batch behind a hole: always with a mark, as nobody can follow the batches to it.
    pub(super) fn note_behind_hole(&mut self, mark: Mark) {
        self.marks.push_back(mark);
    }

    /// The first mark behind this LSN.
    pub(super) fn behind(&self, lsn: u64) -> Option<Mark> {
        self.marks
            .get(self.marks.partition_point(|mark| mark.lsn <= lsn))
            .copied()
    }

    /// A batch from which the one with this LSN is found.
    pub(super) fn find(&self, lsn: u64) -> Option<Mark> {
        let behind = self.marks.partition_point(|mark| mark.lsn <= lsn);
        self.marks.get(behind.checked_sub(1)?).copied()
    }

    /// What lies in front of this is given up.
    pub(super) fn truncate(&mut self, head: Head) {
        if self.marks.is_empty() {
            return;
        }
        while self.marks.front().is_some_and(|mark| mark.lsn <= head.batch) {
            self.marks.pop_front();
        }
        self.marks.push_front(Mark {
            lsn: head.batch,
            place: head.place,
            group: None,
        });
    }

    /// What lay in front of `end` lies so much further now.
    pub(super) fn shift(&mut self, end: u64, by: u64) {
        for mark in &mut self.marks {
            if mark.place < end {
                mark.place += by;
            }
            if let Some(group) = &mut mark.group {
                if group.place < end {
                    group.place += by;
                }
            }
        }
    }
}
