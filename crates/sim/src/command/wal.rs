//! `wal`: crash states of databases whose pages wait for their logs, so many of them.

use std::process::ExitCode;

use baio_sim::wal::Plan;

use super::Asked;

pub(crate) fn run(args: &Asked) -> ExitCode {
    args.run(&Plan { seed: args.seed })
}
