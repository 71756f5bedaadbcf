//! What a copy came to: one object under `--json`, and the clock that runs meanwhile. The lines on
//! standard error are in `figures.rs`.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use baio_console::diagnostics;
use baio_console::output::Answer;
use serde::Serialize;

use super::human;
use crate::operands::Status;

/// What `dd` shows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(super) bytes: u64,
    pub(super) records_in_full: u64,
    pub(super) records_in_partial: u64,
    pub(super) records_out_full: u64,
    pub(super) records_out_partial: u64,
    pub(super) seconds: f64,
    pub(super) bytes_per_second: f64,
    pub(super) in_flight_max: u64,
    pub(super) depth: u32,
    pub(super) backend: &'static str,
    pub(super) input: String,
    pub(super) output: String,
    pub(super) system_calls: u64,
    pub(super) parts: [Part; 2],
    /// `verify=blake3`: of what was written, and read back.
    pub(super) blake3: Option<String>,
}

/// One direction of a copy. The bytes are those that were moved, whole blocks where only such can be.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Part {
    pub(super) part: &'static str,
    pub(super) bytes: u64,
    pub(super) requests: u64,
}

impl Part {
    /// Reads of the input; writes.
    pub(super) const NONE: [Part; 2] = [Part::named("read"), Part::named("write")];
    pub(super) const READ: usize = 0;
    pub(super) const WRITE: usize = 1;

    const fn named(part: &'static str) -> Part {
        Part {
            part,
            bytes: 0,
            requests: 0,
        }
    }
}

/// Standard output may be the copy itself: the lines for people go to standard error.
impl Answer for Summary {
    fn write_text(&self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// The clock of a copy, and its line of progress once a second.
pub(super) struct Meter {
    begun: Instant,
    shown: Option<Instant>,
    shows: bool,
    /// The cursor stands behind a line of progress.
    has_line: bool,
}

impl Meter {
    pub(super) fn start(status: Status) -> Meter {
        Meter {
            begun: Instant::now(),
            shown: None,
            shows: status == Status::Progress,
            has_line: false,
        }
    }

    /// Time since the copy began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Shows the line if it is time.
    pub(super) fn tick(&mut self, bytes: u64) {
        if !self.shows {
            return;
        }
        let now = Instant::now();
        if now.duration_since(self.shown.unwrap_or(self.begun)) >= Duration::from_secs(1) {
            self.shown = Some(now);
            self.show(bytes);
        }
    }

    fn show(&mut self, bytes: u64) {
        self.has_line = true;
        let seconds = self.elapsed().as_secs_f64();
        let amount = human::amount(bytes);
        let rate = human::rate(bytes, seconds);
        diagnostics::write(&format!("\r{amount} copied, {seconds:.0} s, {rate}   "));
    }

    /// Ends the line of progress, if there is one.
    pub(super) fn finish(&mut self) {
        if std::mem::take(&mut self.has_line) {
            diagnostics::write("\n");
        }
    }
}
