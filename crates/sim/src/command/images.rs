//! `images`: writes explored images into a folder, and what the library says of them.

use std::path::PathBuf;
use std::process::ExitCode;

use baio_sim::images;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder, which must exist
    #[arg(long)]
    folder: PathBuf,
    /// How many
    #[arg(long, default_value_t = 200)]
    images: u64,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match images::write_all(&args.folder, args.seed, args.images) {
        Ok(all) => {
            all.iter().for_each(super::print_json);
            ExitCode::SUCCESS
        }
        Err(violation) => {
            eprintln!("baio-sim: {violation}");
            ExitCode::FAILURE
        }
    }
}
