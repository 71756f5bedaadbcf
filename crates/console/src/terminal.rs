//! Whether somebody looks at standard output, or at standard error, and how much of a line is seen.
//!
//! A person at a terminal reads lines, with sizes and a colour; a log is searched line by line, and wants one for each event.

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

/// A standard stream that is a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// May colours be used?
    pub has_colour: bool,
    /// Characters of a line, where it says.
    pub columns: Option<usize>,
}

impl Terminal {
    /// `None` where standard error is none.
    #[must_use]
    pub fn of_stderr() -> Option<Terminal> {
        Terminal::of(io::stderr())
    }

    /// `None` where standard output is none.
    #[must_use]
    pub fn of_stdout() -> Option<Terminal> {
        Terminal::of(io::stdout())
    }

    fn of(stream: impl IsTerminal + AsFd) -> Option<Terminal> {
        let size = |stream: &dyn AsFd| rustix::termios::tcgetwinsize(stream.as_fd()).ok();
        stream.is_terminal().then(|| Terminal {
            has_colour: wants_colour(env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref()),
            columns: size(&stream)
                .map(|size| size.ws_col.into())
                .filter(|columns| *columns > 0),
        })
    }
}

/// `NO_COLOR` that is not empty forbids it (no-color.org), and a dumb terminal has none.
fn wants_colour(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_forbidden_by_a_variable_and_by_the_terminal() {
        let wants =
            |no_color: Option<&str>, term: Option<&str>| wants_colour(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(wants(None, Some("xterm")));
        assert!(wants(Some(""), Some("xterm")));
        assert!(!wants(Some("1"), Some("xterm")));
        assert!(!wants(None, Some("dumb")));
        assert!(!wants(None, None));
    }
}
