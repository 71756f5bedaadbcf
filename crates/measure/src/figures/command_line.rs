//! A command line, of this program or of another: as a side runs it to its end, with what that has cost, and as a reader can. A process of
//! its own runs it (`runner.rs`).

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use baio_console::interrupt::Interrupt;
use baio_stress::Measurement;
use rustix::process::Pid;

use crate::figures::interrupt::{self, Running};
use crate::figures::runner::{Ended, Told, ends_with_this};
use crate::figures::{job, quoted};

/// A program and its words.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    words: Vec<String>,
    is_own: bool,
}

/// What can be a side of a comparison.
pub(crate) trait Measures {
    /// The command, as a side runs it and as a reader can.
    fn line(&self) -> CommandLine;

    /// Runs it to its end.
    ///
    /// # Errors
    /// It cannot run here, or did not come to a figure: why.
    fn run(&self) -> Result<Measurement, String>;
}

/// What a finished process printed and cost.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) ended: Ended,
}

impl Finished {
    /// Tells what a side of a comparison has cost, the whole process; `start` of it was not for its requests, where that is known.
    pub(crate) fn charge(&self, to: &mut Measurement, start: Option<Duration>) {
        let requests = to.requests.max(1) as f64;
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / requests;
        to.cpu_us_per_request = each(self.ended.cpu);
        to.cpu_less_start_us_per_request = start.map(|start| each(self.ended.cpu.saturating_sub(start)));
        to.context_switches_per_request = self.ended.context_switches as f64 / requests;
    }
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
    pub(crate) fn process(&self) -> io::Result<Finished> {
        let interrupted = |came: Interrupt| io::Error::other(came.to_string());
        interrupt::check().map_err(interrupted)?;
        let (tells, told) = io::pipe()?;
        let mut runner = job::command_of(&"Runner").map_err(io::Error::other)?;
        ends_with_this(&mut runner)
            .args(&self.words)
            .process_group(0)
            .stdin(told);
        let mut child = runner.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // With it goes this process's end of the pipe.
        drop(runner);
        let running = Running::new(Pid::from_child(&child));
        // Standard error is read by a thread of its own: a child that fills one pipe must not wait for the other.
        let errors = child.stderr.take();
        let reader = baio_process::thread::named("errors").start(move || errors.map_or_else(String::new, text_of))?;
        let stdout = child.stdout.take().map_or_else(String::new, text_of);
        let stderr = reader.join().unwrap_or_default();
        // A line is all that it tells, so it has ended by now or is about to.
        child.wait()?;
        drop(running);
        // What one printed that was ended is no measurement.
        interrupt::check().map_err(interrupted)?;
        match serde_json::from_str(&text_of(tells)) {
            Ok(Told::Ended(ended)) => Ok(Finished { stdout, stderr, ended }),
            Ok(Told::Refused { errno }) => Err(io::Error::from_raw_os_error(errno)),
            Err(_) => Err(io::Error::other("whoever ran it ended before it")),
        }
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
        if finished.ended.success {
            return Ok(finished);
        }
        Err(self.why_it_failed(&finished))
    }

    fn why_it_failed(&self, finished: &Finished) -> String {
        let name = &self.words[0];
        // Others say more than a line holds, and the first one tells what is wrong; ours begins with what it does.
        let said = finished.stderr.trim();
        let said = if self.is_own {
            said
        } else {
            said.lines().next().unwrap_or(said)
        };
        match (finished.ended.signal, said) {
            (None, "") => format!("{name} failed without a message"),
            (None, said) => said.to_owned(),
            // What it had said before, if anything, is not what has ended it.
            (Some(signal), said) => {
                // `signal: 9 (SIGKILL)`
                let killed = format!("{name} was killed, {}", ExitStatus::from_raw(signal));
                match said {
                    "" => killed,
                    said => format!("{killed}; before, it said: {said}"),
                }
            }
        }
    }
}

/// As a shell would be given it.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
        f.write_str(&words.join(" "))
    }
}

/// All that comes, as far as it is text.
fn text_of(mut from: impl Read) -> String {
    let mut text = String::new();
    let _ = from.read_to_string(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_was_killed_says_by_what() {
        let line = CommandLine::of(vec!["fio".to_owned(), "job".to_owned()]);
        let why = |signal, stderr: &str| {
            line.why_it_failed(&Finished {
                stderr: stderr.to_owned(),
                ended: Ended {
                    signal,
                    ..Ended::default()
                },
                ..Finished::default()
            })
        };
        assert_eq!(why(None, ""), "fio failed without a message");
        assert_eq!(why(None, "no such file\nmore"), "no such file");
        assert_eq!(why(Some(9), ""), "fio was killed, signal: 9 (SIGKILL)");
        let said = why(Some(9), "a warning");
        assert_eq!(said, "fio was killed, signal: 9 (SIGKILL); before, it said: a warning");
    }
}
