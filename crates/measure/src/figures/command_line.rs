//! A command line, of this program or of another: as a side runs it, and as a reader can.

use std::fmt;
use std::io::ErrorKind;
use std::process::Command;

use crate::figures::child::{self, Finished};
use crate::figures::quoted;

/// A program and its words.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    words: Vec<String>,
    is_own: bool,
}

impl CommandLine {
    /// Of another program; the first word names it.
    pub(crate) fn of(words: Vec<String>) -> CommandLine {
        CommandLine { words, is_own: false }
    }

    /// Of this program.
    pub(crate) fn own(words: impl IntoIterator<Item = String>) -> CommandLine {
        let program = std::env::current_exe().unwrap_or_else(|_| "baio".into());
        CommandLine {
            words: std::iter::once(program.display().to_string()).chain(words).collect(),
            is_own: true,
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It did not start, or the report was interrupted.
    pub(crate) fn process(&self) -> std::io::Result<Finished> {
        child::run(Command::new(&self.words[0]).args(&self.words[1..]))
    }

    /// Runs it to a good end.
    ///
    /// # Errors
    /// What it, or the system, said.
    pub(crate) fn finish(&self) -> Result<Finished, String> {
        let name = &self.words[0];
        let finished = self.process().map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("{name} is not installed"),
            _ => format!("{name}: {error}"),
        })?;
        if finished.success {
            return Ok(finished);
        }
        // Others say more than a line holds, and the first one tells what is wrong; ours begins with what it does.
        let said = finished.stderr.trim();
        let said = if self.is_own {
            said
        } else {
            said.lines().next().unwrap_or(said)
        };
        Err(match said {
            "" => format!("{name} failed without a message"),
            said => said.to_owned(),
        })
    }
}

/// As a shell would be given it.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
        f.write_str(&words.join(" "))
    }
}
