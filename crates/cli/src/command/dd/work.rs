//! One request at a time, and the signals that come while it is under way: for what comes before and behind the copy.

use baio::{Outcome, SegmentRequest};
use baio_console::failure::Failure;

use super::ends::End;
use super::figures::Figures;
use super::routes::Routes;
use super::signals::Signals;
use super::summary::Meter;
use crate::operands::Status;

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

/// What each of those steps needs.
pub(super) struct Work<'a> {
    pub(super) routes: &'a mut Routes,
    pub(super) status: Status,
    pub(super) meter: &'a mut Meter,
    pub(super) signals: &'a Signals,
    pub(super) figures: Figures,
}

impl Work<'_> {
    /// Runs one request, while no other is under way.
    pub(super) fn run(mut self, end: &End, request: SegmentRequest) -> Result<Outcome, Halt> {
        self.routes.start(end.route, request)?;
        loop {
            if let Some(outcome) = self.routes.next_outcome() {
                return Ok(outcome);
            }
            self.print_if_asked();
            if self.signals.interrupted() {
                return self.call_off();
            }
            self.routes.turn()?;
        }
    }

    /// After SIGINT: what can still end does, and counts; what waits for a stream is called off.
    fn call_off(self) -> Result<Outcome, Halt> {
        while !self.routes.are_stuck()? {
            if let Some(outcome) = self.routes.next_outcome() {
                return if outcome.result.is_ok() {
                    Ok(outcome)
                } else {
                    Err(Halt::Interrupted)
                };
            }
        }
        Err(Halt::Interrupted)
    }

    fn print_if_asked(&mut self) {
        while self.signals.take_asked() {
            self.meter.finish();
            self.figures.print(self.status, self.meter.elapsed().as_secs_f64());
        }
    }
}
