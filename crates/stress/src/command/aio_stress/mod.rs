//! `baio aio-stress`: the letters and the output of aio-stress 0.21 (seed 000; seed 001 §3.6 and §7.3), over the same loop
//! as `baio stress`.
//!
//! | file | what it is |
//! |---|---|
//! | `args.rs` | the letters |
//! | `plan.rs` | what they mean, and the lines at the beginning |
//! | `print.rs` | the lines after each stage |

pub(crate) mod args;
mod plan;
mod print;

use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_console::interrupt;

use super::carry_out;
use crate::Kind;
use crate::result::Cut;
use args::AioStressArgs;
use plan::Plan;
use print::Ended;

/// Runs, and prints what aio-stress prints.
pub(crate) fn run(args: AioStressArgs) -> Result<Ended, Failure> {
    interrupt::hear(plan::COMMAND)?;
    let Plan {
        mut job,
        wants,
        claims,
        opening,
    } = plan::plan(&args)?;
    opening.iter().for_each(|line| diagnostics::write(&format!("{line}\n")));
    let (report, first_error) = carry_out(&mut job, &wants, claims, &mut |job, stage| {
        for line in print::after_stage(&args, job, stage) {
            diagnostics::write(&format!("{line}\n"));
        }
    })?;
    if let Some(cut) = &report.cut {
        // The old program's two lines have no place for it.
        diagnostics::say(format_args!("baio: {}: ended early: {}", plan::COMMAND, cut.said()));
    }
    let mut unlinked = Vec::new();
    for want in wants
        .iter()
        .filter(|want| args.unlink && want.place.kind != Kind::Device)
    {
        let shown = want.place.path.display().to_string();
        std::fs::remove_file(&want.place.path).map_err(|error| {
            Failure::from_io(plan::COMMAND, &error)
                .on(shown.as_str())
                .needing("a file that can be unlinked")
                .cured_by("remove it by hand, or leave out -u")
        })?;
        unlinked.push(shown);
    }
    Ok(Ended {
        total: report.total(&job),
        parts: report.parts(&job),
        first_error,
        ended_early: report.cut.as_ref().map(Cut::said),
        cut: report.cut,
        threads: job.lanes.len(),
        unlinked,
    })
}
