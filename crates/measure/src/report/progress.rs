//! How far a report is, on standard error: a bar with the time that is left on a terminal, a line an experiment elsewhere. The time is
//! guessed from the experiments that have ended.

use std::fmt::Write;
use std::time::Duration;

use baio_console::diagnostics;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// How often the bar is drawn: it must not be seen among the figures.
const PAUSE: Duration = Duration::from_millis(500);

/// What the bar tells; silent by default.
#[derive(Clone)]
pub(super) struct Progress(ProgressBar);

/// All experiments of a report, and where it is. What is no terminal sees no bar.
pub(super) struct Course(ProgressBar);

impl Course {
    /// Of so many experiments.
    pub(super) fn new(all: usize) -> Course {
        let left = |state: &ProgressState, to: &mut dyn Write| {
            // Before the first has ended nothing is known.
            if state.pos() > 0 {
                // There is nobody to tell when this fails.
                let _ = write!(to, "about {:#} left", HumanDuration(state.eta()));
            }
        };
        let bar = ProgressBar::new(all as u64);
        // The template is a constant, so there is nothing to go wrong; without it the bar is a plain one.
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {left}  {prefix}  {wide_msg}") {
            bar.set_style(style.with_key("left", left));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(PAUSE);
        }
        Course(bar)
    }

    /// The next one begins.
    pub(super) fn begin(&mut self, name: &'static str, shows: &str) -> Progress {
        if self.0.is_hidden() {
            let (number, all) = (self.0.position() + 1, self.0.length().unwrap_or_default());
            diagnostics::say(format_args!("report: {number} of {all}: {name}: {shows}"));
        }
        self.0.set_prefix(name);
        self.0.set_message("");
        Progress(self.0.clone())
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        self.0.inc(1);
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress(ProgressBar::hidden())
    }
}

impl Progress {
    /// What is being measured now.
    pub(super) fn at(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}
