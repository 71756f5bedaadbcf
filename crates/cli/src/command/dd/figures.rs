//! The figures of a copy: what the three lines on standard error say, at the end, at a signal, or after a read that failed.

use baio_console::diagnostics;

use super::human;
use super::records::Count;
use crate::operands::Status;

/// How far a copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) records_in: Count,
    pub(super) records_out: Count,
    pub(super) bytes: u64,
}

impl Figures {
    /// Prints the lines that `status=` leaves, after so many seconds.
    pub(super) fn print(&self, status: Status, seconds: f64) {
        if status == Status::Silent {
            return;
        }
        diagnostics::write(&self.lines(status, seconds));
    }

    fn lines(&self, status: Status, seconds: f64) -> String {
        let (from, to) = (self.records_in, self.records_out);
        let mut lines = format!(
            "{}+{} records in\n{}+{} records out\n",
            from.full, from.partial, to.full, to.partial
        );
        if status != Status::NoTransfer {
            lines.push_str(&format!(
                "{} copied, {} s, {}\n",
                human::amount(self.bytes),
                human::six_digits(seconds),
                human::rate(self.bytes, seconds)
            ));
        }
        lines
    }
}
