//! How far a report is, on standard error: a bar with the time that is left on a terminal, a line an experiment elsewhere.
//!
//! What an experiment takes is known from earlier reports on another machine; the time that this one needs for the first experiments
//! corrects the rest.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use baio_console::diagnostics;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::report::Experiment;

/// What one takes, quick and in full, in seconds.
const EXPECTED: &[(&str, f64, f64)] = &[
    ("segments", 0.3, 0.3),
    ("mixed-paths", 0.1, 0.8),
    ("random-read", 11.6, 51.3),
    ("runtimes", 6.8, 16.3),
    ("random-write", 3.7, 10.9),
    ("cached-reads", 6.4, 52.7),
    ("sequential-reads", 3.0, 8.2),
    ("cache-hits", 2.1, 3.6),
    ("durable-writes", 9.0, 45.9),
    ("plain-writes", 2.6, 33.1),
    ("aio-stress-table", 4.8, 50.0),
    ("streaming-figures", 3.9, 36.8),
    ("page-cleaners", 3.6, 32.9),
    ("service", 3.7, 7.9),
    ("broker", 3.7, 11.0),
    ("posted-writes", 6.4, 29.4),
    ("buffered-writes", 5.2, 46.1),
    ("buffered-reads", 0.5, 2.2),
    ("one-queue", 0.7, 2.9),
    ("pipelining", 3.7, 95.2),
    ("server", 3.0, 33.2),
    ("request-size", 2.7, 80.0),
    ("one-at-a-time", 3.0, 6.0),
    ("served", 6.0, 20.0),
    ("drop-ins", 8.0, 110.0),
    ("batches", 2.6, 35.3),
    ("log-appends", 3.6, 33.6),
    ("volume-scale", 10.0, 60.0),
];

const UNKNOWN: (f64, f64) = (4.0, 25.0);

/// How often the bar is drawn: it must not be seen among the figures.
const PAUSE: Duration = Duration::from_millis(500);

/// What the bar tells; silent by default.
#[derive(Clone, Default)]
pub(super) struct Progress(Option<ProgressBar>);

/// All experiments of a report, and where it is.
pub(super) struct Course {
    bar: Option<ProgressBar>,
    plan: Arc<Mutex<Plan>>,
    number: usize,
    all: usize,
}

/// Times in seconds.
#[derive(Debug)]
struct Plan {
    /// Of those that have ended.
    expected_before: f64,
    took_before: f64,
    /// Of the one that runs.
    expected: f64,
    began: Instant,
    /// Of those behind it.
    expected_behind: f64,
}

impl Plan {
    fn left(&self, now: Instant) -> f64 {
        let pace = if self.expected_before > 5.0 {
            (self.took_before / self.expected_before).clamp(0.3, 5.0)
        } else {
            1.0
        };
        let of_this = (self.expected * pace - self.elapsed(now)).max(0.0);
        of_this + self.expected_behind * pace
    }

    fn elapsed(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.began).as_secs_f64()
    }
}

/// In seconds.
fn expected(name: &str, quick: bool) -> f64 {
    let known = EXPECTED.iter().find(|(known, ..)| *known == name);
    let (short, long) = known.map_or(UNKNOWN, |&(_, short, long)| (short, long));
    if quick { short } else { long }
}

impl Course {
    pub(super) fn new(experiments: &[&Experiment], quick: bool) -> Course {
        let plan = Plan {
            expected_before: 0.0,
            took_before: 0.0,
            expected: 0.0,
            began: Instant::now(),
            expected_behind: experiments
                .iter()
                .map(|experiment| expected(experiment.name, quick))
                .sum(),
        };
        let plan = Arc::new(Mutex::new(plan));
        let all = experiments.len();
        let bar = std::io::stderr().is_terminal().then(|| bar(all as u64, &plan));
        Course {
            bar,
            plan,
            number: 0,
            all,
        }
    }

    /// The next one begins.
    pub(super) fn begin(&mut self, experiment: &Experiment, quick: bool) -> Progress {
        self.number += 1;
        let expected = expected(experiment.name, quick);
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.expected_behind = (plan.expected_behind - expected).max(0.0);
        (plan.expected, plan.began) = (expected, Instant::now());
        drop(plan);
        let Some(bar) = &self.bar else {
            diagnostics::say(format_args!(
                "report: {} of {}: {}: {}",
                self.number, self.all, experiment.name, experiment.shows
            ));
            return Progress(None);
        };
        bar.set_prefix(experiment.name);
        bar.set_message("");
        Progress(Some(bar.clone()))
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.took_before += plan.elapsed(Instant::now());
        plan.expected_before += plan.expected;
        plan.expected = 0.0;
        drop(plan);
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

fn bar(all: u64, plan: &Arc<Mutex<Plan>>) -> ProgressBar {
    let plan = Arc::clone(plan);
    let left = move |_: &ProgressState, to: &mut dyn Write| {
        let left = plan.lock().unwrap_or_else(PoisonError::into_inner).left(Instant::now());
        // There is nobody to tell when this fails.
        let _ = write!(
            to,
            "about {:#} left",
            HumanDuration(Duration::from_secs_f64(left.ceil()))
        );
    };
    let bar = ProgressBar::new(all);
    // The template is a constant, so there is nothing to go wrong; without it the bar is a plain one.
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {left}  {prefix}  {wide_msg}") {
        bar.set_style(style.with_key("left", left));
    }
    bar.enable_steady_tick(PAUSE);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::EXPERIMENTS;

    #[test]
    fn each_experiment_has_a_time_and_each_time_one() {
        let known = |name: &str| EXPERIMENTS.iter().any(|experiment| experiment.name == name);
        assert!(EXPECTED.iter().all(|(name, ..)| known(name)));
        let is_timed = |name: &str| EXPECTED.iter().any(|(timed, ..)| *timed == name);
        let untimed = EXPERIMENTS.iter().find(|experiment| !is_timed(experiment.name));
        assert!(untimed.is_none(), "{:?}", untimed.map(|experiment| experiment.name));
    }

    #[test]
    fn the_time_that_is_left_follows_the_pace_so_far() {
        let began = Instant::now();
        let mut plan = Plan {
            expected_before: 0.0,
            took_before: 0.0,
            expected: 10.0,
            began,
            expected_behind: 20.0,
        };
        assert_eq!(plan.left(began), 30.0);
        assert_eq!(plan.left(began + Duration::from_secs(4)), 26.0);
        assert_eq!(
            plan.left(began + Duration::from_secs(40)),
            20.0,
            "late, and never less than what is behind"
        );
        (plan.expected_before, plan.took_before) = (10.0, 20.0);
        assert_eq!(plan.left(began), 60.0);
    }
}
