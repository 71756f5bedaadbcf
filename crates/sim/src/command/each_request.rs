//! `each-request`: every fault at every request of short sessions.

use std::process::ExitCode;

use baio_sim::each_request;

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this case: what a failure prints
    #[arg(long, requires = "request")]
    case: Option<u64>,
    /// The request at which the fault strikes
    #[arg(long, requires = "case")]
    request: Option<u64>,
    #[command(flatten)]
    shared: Shared,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let report = match (args.case, args.request) {
        (Some(case), Some(request)) => each_request::run_only(case, request),
        _ => each_request::run(args.shared.threads()),
    };
    args.shared.tell(&report)
}
