//! # baio-measure: what the program measures with
//!
//! `baio stress` and `baio aio-stress` keep something busy in a known way and measure it; `baio report` does the main job and
//! takes figures beside the peers that do the same work. The program calls these three; nothing here knows the program.
//!
//! ```text
//! command ---> stress      two command lines over one loop
//!                 ^
//!                 | `baio stress` in a process of its own
//! report ----> figures     an experiment compares sides; each side is a process, and all are measured alike
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `stress/` | the loop that keeps requests in flight, and what it works on |
//! | `command/stress/`, `command/aio_stress/` | what is typed, what it means, how it is shown |
//! | `figures/` | one shape of result; the costs of a process; our sides (`stress`, workers) and fio's |
//! | `figures/worker/` | sides of ours that no command has, each in a process of its own |
//! | `../examples/` | those of them that are programs of their own, worth reading and running alone |
//! | `report/` | the experiments, each one line in a table; what they share: sides in turn, marks, places |
//!
//! A process of ours is this program again: with the words of a command line, or with a job in its environment, for which
//! `main` asks [`worker`] first. `docs/stress.md` and `docs/report.md` are for users.

// So that programs under `examples/` name this crate alike, alone and as workers of the report.
extern crate self as baio_measure;

use std::process::ExitCode;

use baio_console::failure::Failure;
use baio_console::output::Answer;

pub use command::aio_stress::args::AioStressArgs;
pub use command::stress::args::StressArgs;
pub use report::args::ReportArgs;

mod command;
mod figures;
pub mod program;
mod report;
mod stress;

/// Keeps a file, a device or a segment busy, and measures it.
///
/// # Errors
/// What was typed makes no sense, something could not be set up, or a block did not verify. Requests that fail one by one
/// are counted in the answer.
pub fn stress(args: StressArgs) -> Result<impl Answer, Failure> {
    command::stress::run(args)
}

/// The same with the letters and the output of aio-stress 0.21 (seed 000).
///
/// # Errors
/// As those of [`stress`].
pub fn aio_stress(args: AioStressArgs) -> Result<impl Answer, Failure> {
    command::aio_stress::run(args)
}

/// Does the main job and the experiments that are asked for, and takes figures.
///
/// # Errors
/// What was typed makes no sense, or one of our own sides cannot run.
pub fn report(args: ReportArgs) -> Result<impl Answer, Failure> {
    report::run(args)
}

/// Does the job that the report has started this process for, and gives the status to end with; `None` in every other process.
#[must_use]
pub fn worker() -> Option<ExitCode> {
    figures::worker::job_of_self().map(figures::worker::main)
}
