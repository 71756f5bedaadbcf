//! `baio stress`: keeps a file, a device or a segment busy, and measures it. The work itself is in the loop.
//!
//! | file | what it is |
//! |---|---|
//! | `args.rs` | what is typed |
//! | `plan.rs` | what it means |
//! | `print.rs` | how it is shown |

pub(crate) mod args;
pub(crate) mod plan;
pub(crate) mod print;

use std::io::{self, Write};

use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::output::Answer;
use serde::Serialize;

use super::carry_out;
use super::fio::{self, Jobs};
use crate::measurement::Measurement;
use args::{StressArgs, TypedDurability};
use plan::Plan;
use print::{Missed, Stressed};

/// What a run or a job file has to say.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Told {
    /// Of one target.
    One(Box<Stressed>),
    /// Of a job file.
    Jobs(Jobs),
}

impl Answer for Told {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Told::One(stressed) => stressed.write_text(out),
            Told::Jobs(jobs) => jobs.write_text(out),
        }
    }

    fn exit_status(&self) -> ExitStatus {
        match self {
            Told::One(stressed) => stressed.exit_status(),
            Told::Jobs(jobs) => jobs.exit_status(),
        }
    }
}

/// Runs, and shows what came out.
pub(crate) fn run(args: StressArgs) -> Result<Told, Failure> {
    if let Some(path) = fio::meant(&args) {
        return fio::run(&args, &path).map(Told::Jobs);
    }
    if args.directory.is_some() {
        return Err(
            Failure::usage(plan::COMMAND, "only a job file has files to put somewhere")
                .on("--directory")
                .needing("a job file of fio")
                .cured_by("leave it out, and name the target with its path"),
        );
    }
    one(args).map(|stressed| Told::One(Box::new(stressed)))
}

/// One target.
fn one(args: StressArgs) -> Result<Stressed, Failure> {
    let Plan {
        mut job,
        size,
        wants,
        claims,
    } = plan::plan(&args)?;
    let (report, first_error) = carry_out(&mut job, &wants, claims, &mut |_, _| ())?;
    let total = report.total(&job);
    Ok(Stressed {
        target: args.target.to_string(),
        request_size: job.request_size,
        depth: args.depth(),
        batch: args.batch,
        threads: args.threads,
        files: args.files,
        size_bytes: size,
        durability: match args.durability {
            TypedDurability::None => "none",
            TypedDurability::Data => "data",
            TypedDurability::Full => "full",
        },
        service: args.service,
        cold: args.cold,
        seed: args.seed,
        missed: missed(&args, &total.measured),
        parts: report.parts(&job),
        first_error,
        total,
    })
}

fn missed(args: &StressArgs, measured: &Measurement) -> Vec<Missed> {
    let few = args.min_iops.filter(|&least| measured.iops < least as f64);
    let few = few.map(|least| Missed {
        threshold: "--min-iops",
        asked: least as f64,
        measured: measured.iops,
    });
    // Nothing measured is nothing met.
    let p99 = measured.latency_us.p99.unwrap_or(f64::INFINITY);
    let most = args.max_p99.map(|most| most.as_secs_f64() * 1e6);
    let slow = most.filter(|&most| p99 > most).map(|asked| Missed {
        threshold: "--max-p99 us",
        asked,
        measured: p99,
    });
    few.into_iter().chain(slow).collect()
}
