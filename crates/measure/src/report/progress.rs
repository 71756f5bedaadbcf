//! How far a report is, on standard error: a bar with the time that is left on a terminal, a line an experiment elsewhere. The time is
//! guessed from the experiments that have ended.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use baio_console::diagnostics;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// How often the bar is drawn: it must not be seen among the figures.
const PAUSE: Duration = Duration::from_millis(500);

/// What the bar tells; silent by default.
#[derive(Clone, Default)]
pub(super) struct Progress(Option<ProgressBar>);

/// All experiments of a report, and where it is.
pub(super) struct Course {
    bar: Option<ProgressBar>,
    number: usize,
    all: usize,
}

impl Course {
    /// Of so many experiments.
    pub(super) fn new(all: usize) -> Course {
        let bar = std::io::stderr().is_terminal().then(|| bar(all as u64));
        Course { bar, number: 0, all }
    }

    /// The next one begins.
    pub(super) fn begin(&mut self, name: &'static str, shows: &str) -> Progress {
        self.number += 1;
        let Some(bar) = &self.bar else {
            diagnostics::say(format_args!("report: {} of {}: {name}: {shows}", self.number, self.all));
            return Progress(None);
        };
        bar.set_prefix(name);
        bar.set_message("");
        Progress(Some(bar.clone()))
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress {
    /// What is being measured now.
    pub(super) fn at(&self, what: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.to_owned());
        }
    }
}

fn bar(all: u64) -> ProgressBar {
    let left = |state: &ProgressState, to: &mut dyn Write| {
        // Before the first has ended nothing is known.
        if state.pos() > 0 {
            // There is nobody to tell when this fails.
            let _ = write!(to, "about {:#} left", HumanDuration(state.eta()));
        }
    };
    let bar = ProgressBar::new(all);
    // The template is a constant, so there is nothing to go wrong; without it the bar is a plain one.
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {left}  {prefix}  {wide_msg}") {
        bar.set_style(style.with_key("left", left));
    }
    bar.enable_steady_tick(PAUSE);
    bar
}
