//! How far a copy has come, and what stopped it.
//!
//! Pieces end in any order. A copy that fails counts as far as the first gap, like one that goes byte by byte.

use std::collections::BTreeMap;

use baio_console::failure::Failure;

/// On which side a copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

/// Where a copy failed.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) position: u64,
    pub(super) side: Side,
    pub(super) failure: Failure,
}

/// Why a copy goes no further.
pub(super) enum Halt {
    Failed(Failure),
    /// SIGINT.
    Interrupted,
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Halt {
        Halt::Failed(failure)
    }
}

/// What is written, and what failed.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Everything before this is written.
    written: u64,
    /// Runs behind a gap: where each begins and ends.
    ahead: BTreeMap<u64, u64>,
    stop: Option<Stop>,
}

impl Progress {
    /// Bytes written without a gap.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The end of all that was written, gaps or not.
    pub(super) fn furthest(&self) -> u64 {
        let ends = self.ahead.values().copied();
        ends.fold(self.written, u64::max)
    }

    /// A run was written.
    pub(super) fn add(&mut self, position: u64, len: u64) {
        if len == 0 {
            return; // Nothing was written of it: what stands there is not ours.
        }
        self.ahead.insert(position, position.saturating_add(len));
        while let Some(end) = self.ahead.remove(&self.written) {
            self.written = end;
        }
    }

    /// The copy cannot go beyond `position`. Of several reasons the first one in the data is told.
    pub(super) fn fail(&mut self, position: u64, side: Side, failure: Failure) {
        if self.stop.as_ref().is_none_or(|stop| position < stop.position) {
            self.stop = Some(Stop {
                position,
                side,
                failure,
            });
        }
    }

    /// Is this position beyond what can be copied?
    pub(super) fn is_lost(&self, position: u64) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.position <= position)
    }

    /// Did the output fail?
    pub(super) fn has_stopped_at_output(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.side == Side::Output)
    }

    /// What failed.
    pub(super) fn into_stop(self) -> Option<Stop> {
        self.stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_no_gap_before_it_counts() {
        let mut progress = Progress::default();
        progress.add(10, 5);
        assert_eq!(progress.written(), 0);
        progress.add(0, 10);
        assert_eq!(progress.written(), 15);
        progress.add(15, 0);
        assert_eq!(progress.furthest(), 15);
        progress.add(40, 0);
        assert_eq!(progress.furthest(), 15, "nothing was written there");
        progress.add(20, 1);
        assert_eq!((progress.written(), progress.furthest()), (15, 21));
    }

    #[test]
    fn the_first_failure_in_the_data_is_told() {
        let mut progress = Progress::default();
        progress.fail(9, Side::Output, Failure::usage("dd", "late"));
        progress.fail(4, Side::Input, Failure::usage("dd", "early"));
        progress.fail(6, Side::Output, Failure::usage("dd", "between"));
        assert!(progress.is_lost(4) && !progress.is_lost(3));
        assert_eq!(
            progress.into_stop().map(|stop| (stop.position, stop.side)),
            Some((4, Side::Input))
        );
    }
}
