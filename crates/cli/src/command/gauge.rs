//! How far a long command has come, on standard error, where somebody is looking.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Prints at most once in half a second, and nothing where standard error is no terminal.
pub(crate) struct Gauge {
    is_shown: bool,
    next: Instant,
    has_printed: bool,
}

impl Gauge {
    pub(crate) fn new() -> Gauge {
        Gauge {
            is_shown: std::io::stderr().is_terminal(),
            next: Instant::now() + Duration::from_secs(1),
            has_printed: false,
        }
    }

    /// Shows `text`, if it is time again.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if !self.is_shown || now < self.next {
            return;
        }
        self.next = now + Duration::from_millis(500);
        self.has_printed = true;
        // Whoever closed standard error does not want to know.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", text());
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        if self.has_printed {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
