//! `soak`: random workloads of ever new seeds, until the time is over or a promise is broken.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baio_sim::explore::{self, Plan};

use super::Shared;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// From which the seeds follow; the clock's time unless told
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    shared: Shared,
}

/// How often it says how far it is, in seconds.
const TELL_EVERY: f64 = 60.0;

pub(crate) fn run(args: &Args) -> ExitCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or(now.as_nanos() as u64);
    eprintln!("baio-sim: soak --seed {seed}");
    let mut told = 0.0;
    let report = explore::soak(
        &Plan::of(seed),
        Duration::from_secs(args.seconds),
        args.shared.threads(),
        |sum| {
            if sum.seconds() - told >= TELL_EVERY {
                told = sum.seconds();
                eprintln!("baio-sim: {} distinct states in {told:.0} s", sum.distinct());
            }
        },
    );
    args.shared.tell(&report)
}
