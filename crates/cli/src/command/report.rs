//! `baio report`: does the main job, and measures it.

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::report::{self, Report};

/// Runs the experiments.
pub(crate) fn run(args: ReportArgs) -> Result<Report, Failure> {
    report::run(args.dir.as_deref(), args.input, args.quick, &args.only)
}
