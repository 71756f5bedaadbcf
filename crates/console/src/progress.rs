//! How far a long command has come, and how long it will still take: on standard error, where that is a terminal.
//!
//! Nothing is shown in the first second or without a terminal, and the line is gone at the end. A command that knows its own steps
//! reports them ([`Progress::reach`]). One that must not be disturbed, or that waits for another process, is watched by a thread
//! ([`Progress::asked`], [`Progress::waiting`]), which is started only on a terminal.
//!
//! ```no_run
//! use baio_console::progress::{Progress, Unit};
//!
//! let mut progress = Progress::new("copy", Unit::Bytes);
//! for done in 0..100 {
//!     progress.reach(done << 20, 100 << 20);
//! }
//! ```

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printable::Printable;
use crate::terminal::Terminal;

/// What ends sooner shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is drawn.
const DRAWN_EACH: Duration = Duration::from_millis(250);

/// Shown while nobody tells how far it is.
const WAITING: &str = "{msg}: {elapsed} so far";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things of this name.
    Things(&'static str),
    /// Milliseconds of a time that is known before.
    Milliseconds,
}

impl Unit {
    fn template(self) -> String {
        let amount = match self {
            Unit::Bytes => "{binary_bytes} of {binary_total_bytes}, ".to_owned(),
            Unit::Things(name) => format!("{{human_pos}} of {{human_len}} {name}, "),
            Unit::Milliseconds => String::new(),
        };
        format!("{{msg}} [{{bar:30}}] {{percent:>3}}%, {amount}{{eta}} left")
    }
}

/// A template that cannot be read shows the default, never a panic.
fn styled(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

/// The line, for whoever is asked.
pub struct Line(ProgressBar);

impl Line {
    /// So much is done, of so much.
    pub fn reach(&self, done: u64, total: u64) {
        if self.0.length() != Some(total) {
            self.0.set_length(total);
        }
        self.0.set_position(done.min(total));
    }

    /// What stands before the bar from now on.
    pub fn say(&self, what: &str) {
        self.0.set_message(Printable(what).to_string());
    }
}

/// A line on the terminal, gone when this is dropped.
pub struct Progress {
    line: Line,
    /// When it becomes visible; `None` once it is, and where nobody looks.
    hidden_until: Option<Instant>,
    asking: Option<Asking>,
}

/// A thread that asks how far it is.
struct Asking {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Progress {
    /// Of `what`, a command and perhaps its object.
    #[must_use]
    pub fn new(what: &str, unit: Unit) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let line = Line(bar.with_style(styled(&unit.template())));
        line.say(what);
        Progress {
            line,
            hidden_until: Terminal::of_stderr().map(|_| Instant::now() + PATIENCE),
            asking: None,
        }
    }

    /// So much is done, of so much. As often as it pleases: only now and then is something drawn.
    pub fn reach(&mut self, done: u64, total: u64) {
        if self.is_due() {
            self.line.reach(done, total);
            self.appear();
        }
    }

    /// Of something that must not be disturbed, or waits for somebody else: `ask` says now and then how far it is.
    #[must_use]
    pub fn asked(what: &str, unit: Unit, ask: impl Fn(&Line) + Send + 'static) -> Progress {
        Progress::new(what, unit).beside(ask)
    }

    /// Of something that somebody else does, who does not tell how far it is: shows how long it has taken.
    #[must_use]
    pub fn waiting(what: &str) -> Progress {
        let progress = Progress::new(what, Unit::Milliseconds);
        progress.line.0.set_style(styled(WAITING));
        progress.beside(|line| line.0.tick())
    }

    fn beside(mut self, draw: impl Fn(&Line) + Send + 'static) -> Progress {
        let Some(from) = self.hidden_until.take() else {
            return self;
        };
        let (end, ended) = mpsc::channel::<()>();
        let line = Line(self.line.0.clone());
        let thread = baio_process::thread::named("progress").start(move || {
            let mut pause = from.saturating_duration_since(Instant::now());
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                draw(&line);
                // Only now: the first line that is seen is already true.
                if line.0.is_hidden() {
                    line.0.set_draw_target(target());
                }
                pause = DRAWN_EACH;
            }
        });
        // Where no thread can be had, nothing is shown.
        self.asking = thread.ok().map(|thread| Asking { end, thread });
        self
    }

    /// Is it seen, or to be seen now?
    fn is_due(&self) -> bool {
        !self.line.0.is_hidden() || self.hidden_until.is_some_and(|until| Instant::now() >= until)
    }

    fn appear(&mut self) {
        if self.hidden_until.take().is_some() {
            self.line.0.set_draw_target(target());
        }
    }
}

fn target() -> ProgressDrawTarget {
    ProgressDrawTarget::stderr_with_hz((1000 / DRAWN_EACH.as_millis()) as u8)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(Asking { end, thread }) = self.asking.take() {
            drop(end);
            // It may be drawing, and must not draw behind the answer.
            let _ = thread.join();
        }
        self.line.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under `cargo test` standard error may be a terminal or not: either way nothing may be shown at first.
    #[test]
    fn nothing_is_shown_in_the_first_second() {
        let mut progress = Progress::new("copy", Unit::Bytes);
        progress.reach(1, 2);
        assert!(progress.line.0.is_hidden());
        assert_eq!(progress.line.0.length(), None, "what nobody sees is not kept");
    }

    #[test]
    fn every_template_can_be_read() {
        for unit in [Unit::Bytes, Unit::Things("buckets"), Unit::Milliseconds] {
            assert!(ProgressStyle::with_template(&unit.template()).is_ok(), "{unit:?}");
        }
        assert!(ProgressStyle::with_template(WAITING).is_ok());
    }

    #[test]
    fn more_than_all_is_all() {
        let line = Line(ProgressBar::hidden());
        line.reach(7, 5);
        assert_eq!((line.0.position(), line.0.length()), (5, Some(5)));
        line.reach(6, 10);
        assert_eq!((line.0.position(), line.0.length()), (6, Some(10)));
    }
}
