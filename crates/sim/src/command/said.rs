//! `said`: what the library says of the images in a folder.

use std::path::PathBuf;
use std::process::ExitCode;

use baio_sim::images;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder
    #[arg(long)]
    folder: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let entries = match std::fs::read_dir(&args.folder) {
        Ok(entries) => entries,
        Err(error) => {
            eprintln!("baio-sim: read {}: {error}", args.folder.display());
            return ExitCode::FAILURE;
        }
    };
    for entry in entries.flatten() {
        super::print_json(&images::said_of_file(&entry.path()));
    }
    ExitCode::SUCCESS
}
