//! `baio report`: does the main job, and measures it.

use baio_console::failure::Failure;

use crate::args::ReportArgs;
use crate::report::{self, Report};

/// Runs the experiments.
pub(crate) fn run(args: ReportArgs) -> Result<Report, Failure> {
    let working_set = args.working_set.map(|size| size.bytes());
    report::run(
        args.dir.as_deref(),
        args.input,
        args.quick,
        working_set,
        args.segments,
        &args.only,
    )
}
