//! # baio-measure: what baio is measured by
//!
//! `baio tour` shows a disk on one screen; `baio report` does the main job and takes figures beside the peers that do the same work; `baio latency` measures one target. The
//! program calls them; nothing here knows the program.
//!
//! ```text
//! report ----> figures     an experiment compares sides; each side is a process, and all are measured alike
//!                 | `baio stress`, fio, or a worker in a process of its own
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `disk/` | a disk in figures, and what they advise |
//! | `figures/` | the costs of a process; our sides (`stress`, workers) and fio's |
//! | `figures/worker/` | sides of ours that no command has, each in a process of its own |
//! | `../examples/` | those of them that are programs of their own, worth reading and running alone |
//! | `latency/` | `baio latency`: writes posted at once, I/O schedulers, durable appends |
//! | `tour/` | `baio tour`: this disk on one screen |
//! | `report/` | the experiments, each one line in a table; what they share: sides in turn, marks, places |
//!
//! A process of ours is this program again: with the words of a command line, or as `baio worker JOB`, for which
//! `main` asks [`worker`] first. `docs/use/report.md` is for users.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

// So that programs under `examples/` name this crate alike, alone and as workers of the report.
extern crate self as baio_measure;

use std::process::ExitCode;

use baio_console::failure::Failure;
use baio_console::output::Answer;

pub use latency::args::LatencyArgs;
pub use report::args::ReportArgs;
pub use tour::TourArgs;

mod disk;
mod figures;
mod latency;
pub mod program;
mod report;
mod tour;

/// Does the main job and the experiments that are asked for, and takes figures.
///
/// # Errors
/// What was typed makes no sense, or one of our own sides cannot run.
pub fn report(args: ReportArgs) -> Result<impl Answer, Failure> {
    report::run(args)
}

/// The words of `baio report --only`.
pub fn experiments() -> impl Iterator<Item = &'static str> {
    report::experiments::names()
}

/// Shows what works here and how fast this disk is, and proves that nothing is lost.
///
/// # Errors
/// Something could not be tried.
pub fn tour(args: &TourArgs) -> Result<impl Answer, Failure> {
    tour::run(args)
}

/// Measures many writes that are posted at once, or durable appends.
///
/// # Errors
/// What was typed makes no sense, or something could not be set up. A request that fails is told in the answer.
pub fn latency(args: LatencyArgs) -> Result<impl Answer, Failure> {
    latency::run(args)
}

/// Does the job that the report has started this process for, and gives the status to end with; `None` in every other process.
#[must_use]
pub fn worker() -> Option<ExitCode> {
    figures::worker::job_of_self().map(figures::worker::main)
}
