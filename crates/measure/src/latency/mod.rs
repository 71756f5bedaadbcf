//! `baio latency`: when writes that are posted at once are known complete (seed 003), and how long a small record takes to be durable, and
//! known to be (seed 002).
//!
//! | file | what it is |
//! |---|---|
//! | `args.rs` | what is typed |
//! | `posted.rs` | seed 003's test: many writes, two times of each |
//! | `schedulers.rs` | that test with each I/O scheduler of the device, and the guard that puts the old one back |
//! | `log/` | seed 002's question: durable appends, by those who keep a log |
//! | `below.rs` | what lies below the target, and whether a write must be made durable |
//! | `sheet.rs` | a file with results: what it may replace |
//! | `show.rs` | latencies for people: points of the distribution, a histogram |

use std::io::{self, Write};

use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::interrupt::{self, Interrupt};
use baio_console::output::Answer;
use serde::Serialize;

pub(crate) mod args;
pub(crate) mod below;
mod log;
mod posted;
pub(crate) mod schedulers;
mod sheet;
mod show;

use args::LatencyArgs;

const COMMAND: &str = "latency";

/// Bytes of a file that is made.
const SIZE_DEFAULT: u64 = 64 << 20;

/// What `latency` has to say.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Told {
    Posted(Box<posted::Told>),
    Log(Box<log::Told>),
}

/// Measures what was asked for.
pub(crate) fn run(args: LatencyArgs) -> Result<Told, Failure> {
    interrupt::hear(COMMAND)?;
    if args.log.is_asked_for() {
        return log::run(&args).map(|told| Told::Log(told.into()));
    }
    match args.writes {
        Some(writes) => posted::run(&args, writes).map(|told| Told::Posted(told.into())),
        None => Err(Failure::usage(COMMAND, "nothing is to be measured")
            .on(args.target.to_string())
            .needing("--writes N, --log or --peer NAME")
            .cured_by("add one of them; `baio stress TARGET --interval 10ms` tells how long single requests take")),
    }
}

/// The mode in which requests went, for people.
fn mode(name: &'static str) -> &'static str {
    match name {
        "kernel" => "direct, which is through the kernel's page cache here",
        name => name,
    }
}

impl Told {
    /// What has ended the run before its end.
    fn ended_early(&self) -> Option<Interrupt> {
        match self {
            Told::Posted(told) => told.ended_early,
            Told::Log(told) => told.ended_early,
        }
    }
}

impl Answer for Told {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Told::Posted(told) => told.write_text(out),
            Told::Log(told) => told.write_text(out),
        }?;
        match self.ended_early() {
            Some(interrupt) => writeln!(out, "ended early: {interrupt}"),
            None => Ok(()),
        }
    }

    fn exit_status(&self) -> ExitStatus {
        match (self.ended_early(), self) {
            (Some(interrupt), _) => interrupt.exit_status(),
            // A request has failed.
            (None, Told::Posted(told)) if told.errors > 0 => ExitStatus::Failed,
            _ => ExitStatus::Success,
        }
    }
}
