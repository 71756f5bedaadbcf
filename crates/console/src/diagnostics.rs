//! The one way to standard error: what people read beside a result.
//!
//! Nobody may be there to read it: the stream is closed, full, or its reader has gone. That changes no result, so nothing here fails.
//! `clippy.toml` refuses the macros that panic then.

use std::fmt::Display;
use std::io::{self, Write};

use crate::printable::Printable;

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
    let _ = io::stderr().write_all(bytes);
}
