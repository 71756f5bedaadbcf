//! `rot`: every bit of every metadata page of reference images, one at a time.

use std::process::ExitCode;

use baio_sim::every_bit::{self, Ending};

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only every so many bits
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    stride: u64,
    /// Only one bit of this image ("closed", "idle", "half-done"): what a failure prints
    #[arg(long, requires_all = ["page", "bit"], conflicts_with = "stride", value_parser = ending)]
    image: Option<Ending>,
    /// The page, counted over those that have a meaning
    #[arg(long, requires = "image")]
    page: Option<usize>,
    /// The bit of the page
    #[arg(long, requires = "image")]
    bit: Option<u64>,
    #[command(flatten)]
    shared: Shared,
}

fn ending(name: &str) -> Result<Ending, String> {
    Ending::by_name(name).ok_or_else(|| "there are: closed, idle, half-done".into())
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let report = match (args.image, args.page, args.bit) {
        (Some(image), Some(page), Some(bit)) => Ok(every_bit::run_only(image, page, bit)),
        _ => every_bit::run(args.stride, args.shared.threads()),
    };
    match report {
        Ok(report) => args.shared.tell(&report),
        Err(violation) => {
            eprintln!("baio-sim: the reference image: {violation}");
            ExitCode::FAILURE
        }
    }
}
