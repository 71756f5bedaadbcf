//! Another process, run to its end, and what it has cost. A process of its own runs it (`runner.rs`).

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use baio_stress::Measurement;
use baio_stress::costs::Costs;
use rustix::process::Pid;

use crate::figures::interrupt::{self, Interrupted, Running};
use crate::figures::runner::{self, Told, ends_with_this};

/// What a finished process printed and cost.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) costs: Costs,
    /// From its start to its end.
    pub(crate) elapsed: Duration,
    /// The most memory that it, or a process that it has started, has had; `None` where nobody has told.
    pub(crate) rss_bytes: Option<u64>,
}

impl Finished {
    /// Tells what a side of a comparison has cost, the whole process; `start` of it was not for its requests, where that is known.
    pub(crate) fn charge(&self, to: &mut Measurement, start: Option<Duration>) {
        let requests = to.requests.max(1) as f64;
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / requests;
        to.cpu_us_per_request = each(self.costs.cpu);
        to.cpu_less_start_us_per_request = start.map(|start| each(self.costs.cpu.saturating_sub(start)));
        to.context_switches_per_request = self.costs.context_switches as f64 / requests;
    }
}

/// Runs a command to its end.
///
/// # Errors
/// It did not start, or the report was interrupted.
pub(crate) fn run(command: &Command) -> std::io::Result<Finished> {
    let interrupted = |came: Interrupted| std::io::Error::other(came.to_string());
    interrupt::check().map_err(interrupted)?;
    let (mut tells, told) = std::io::pipe()?;
    let mut runner = runner::command(command)?;
    ends_with_this(&mut runner).process_group(0).stdin(told);
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
    finished(Told::read(&text_of(&mut tells))?, stdout, stderr)
}

/// What the runner has told, with what the command has printed.
fn finished(told: Told, stdout: String, stderr: String) -> std::io::Result<Finished> {
    match told {
        Told::Refused { errno } => Err(std::io::Error::from_raw_os_error(errno)),
        Told::Ended {
            status,
            cpu_ns,
            context_switches,
            elapsed_ns,
            memory_bytes,
        } => Ok(Finished {
            success: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            stdout,
            stderr,
            costs: Costs {
                cpu: Duration::from_nanos(cpu_ns),
                context_switches,
            },
            elapsed: Duration::from_nanos(elapsed_ns),
            rss_bytes: Some(memory_bytes),
        }),
    }
}

/// All that comes, as far as it is text.
fn text_of(mut from: impl Read) -> String {
    let mut text = String::new();
    let _ = from.read_to_string(&mut text);
    text
}
