//! `baio stress`: keeps a file, a device or a segment busy, and measures it. The work itself is in the loop.
//!
//! | file | what it is |
//! |---|---|
//! | `args.rs` | what is typed |
//! | `plan.rs` | what it means |
//! | `print.rs` | how it is shown |

pub(crate) mod args;
mod plan;
mod print;

use baio_console::failure::Failure;
use baio_console::interrupt;

use crate::measurement::Measurement;
use crate::result::Cut;
use args::{StressArgs, TypedDurability};
use plan::Plan;
use print::{Missed, Stressed};

/// Runs, and shows what came out.
pub(crate) fn run(args: StressArgs) -> Result<Stressed, Failure> {
    interrupt::hear(plan::COMMAND)?;
    let Plan {
        mut job,
        size,
        wants,
        claims,
    } = plan::plan(&args)?;
    crate::make(&mut job, &wants)?;
    let report = crate::run(&job)?;
    drop(claims);
    let first_error = report.first_error().map(|failure| {
        failure.tell();
        failure.to_json()["error"].take()
    });
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
        ended_early: report.cut.as_ref().map(Cut::said),
        cut: report.cut,
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
