//! `mutate`: damaged images, and everything that looks at them or repairs them.

use std::path::PathBuf;
use std::process::ExitCode;

use baio_sim::mangle::{self, Plan};

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many images
    #[arg(long, default_value_t = 20_000)]
    images: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only this image: what a failure prints
    #[arg(long, conflicts_with = "images")]
    only: Option<u64>,
    /// Where images are left, damaged and repaired, for another reader; the system's folder for temporary files unless told
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Leave one of so many; 0 leaves none
    #[arg(long, default_value_t = 0)]
    sample: u64,
    #[command(flatten)]
    shared: Shared,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let folder = args.folder.clone().unwrap_or_else(std::env::temp_dir);
    let plan = Plan {
        seed: args.seed,
        images: args.images,
        folder: &folder,
        sample: args.sample,
    };
    // What panics is caught and told with the command that replays it.
    let report = match args.only {
        Some(number) => mangle::run_only(&plan, number),
        None => mangle::run(&plan, args.shared.threads()),
    };
    args.shared.tell(&report)
}
