//! The one way to standard error: what people read beside a result.
//!
//! Nobody may be there to read it: the stream is closed, full, or its reader has gone. That changes no result, so nothing here fails.
//! `clippy.toml` refuses the macros that panic then.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::printable::Printable;

/// Was standard error closed when the program began?
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Was there something that could not be written? It stays so to the end.
static LOST: AtomicBool = AtomicBool::new(false);

/// Standard error was closed when the program began: what the language has put in its place hears all.
pub fn are_closed() {
    CLOSED.store(true, Ordering::Relaxed);
}

/// Was there something that could not be written? It changes no result; what must tell of it does by its status, as dd.
pub fn were_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// A line of a command's own words. Names in it may come from anywhere: what could steer a terminal is shown as an escape.
pub fn say(line: impl Display) {
    write(&format!("{}\n", Printable(&line.to_string())));
}

/// Text as it is, which its writer has laid out and made safe.
pub fn write(text: &str) {
    write_bytes(text.as_bytes());
}

/// The same of another program's.
pub fn write_bytes(bytes: &[u8]) {
    if CLOSED.load(Ordering::Relaxed) || io::stderr().write_all(bytes).is_err() {
        LOST.store(true, Ordering::Relaxed);
    }
}
