//! What one lane notes down in one stage, and which failures end it.

use baio::{Error, Fault};
use baio_console::failure::Failure;
use baio_engine::Errno;

use super::job::{Job, Stage};
use super::result::{LaneReport, Tally};
use super::schedule::Piece;

/// So many failed requests of one lane in a stage end that lane: nothing more is to be learned.
const ERRORS_MAX: u64 = 1000;

/// What happens in one stage.
pub(super) struct Round {
    pub(super) report: LaneReport,
    pub(super) stage: Stage,
    /// Requests drawn so far.
    pub(super) drawn: u64,
    /// Nothing more begins.
    pub(super) over: bool,
}

impl Round {
    pub(super) fn new(index: usize, stage: Stage, backend: &'static str) -> Round {
        Round {
            report: LaneReport::new(index, backend),
            stage,
            drawn: 0,
            over: false,
        }
    }

    pub(super) fn tally(&mut self, piece: Piece) -> &mut Tally {
        if piece.write {
            &mut self.report.writes
        } else {
            &mut self.report.reads
        }
    }

    /// A request has failed; the run goes on.
    pub(super) fn failed(&mut self, failure: Failure) {
        let report = &mut self.report;
        report.first_error.get_or_insert(failure);
        self.over |= report.reads.errors + report.writes.errors >= ERRORS_MAX;
    }

    /// Nothing is there any more that requests could go to: what was measured until now counts.
    pub(super) fn cut(&mut self, failure: Failure) {
        self.report.cut.get_or_insert(failure);
        self.over = true;
    }

    /// The run cannot go on, and its figures say nothing.
    pub(super) fn fatal(&mut self, failure: Failure) {
        self.report.fatal.get_or_insert(failure);
        self.over = true;
    }

    pub(super) fn broken(&mut self, job: &Job, fault: Fault) {
        let carrier = job.objects.carrier();
        let error = Error::new("turn", carrier, fault);
        self.cut(Failure::from_storage(job.command, carrier, &error));
    }
}

/// Errors about the request itself: the next one would fail alike.
pub(super) fn is_hopeless(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EOPNOTSUPP | Errno::EINVAL | Errno::EBADF | Errno::EFBIG | Errno::ENOSYS | Errno::EROFS
    )
}
