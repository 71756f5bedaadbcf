//! `baio latency` as typed.

use std::path::PathBuf;

use baio_console::size::Size;
use baio_console::target::TypedTarget;
use baio_stress::Backend;
use clap::Args;

use super::log::args::LogArgs;

/// `baio latency`
#[derive(Debug, Args)]
#[command(after_help = "\
With --writes N: N writes of 512 bytes, posted as fast as possible into a queue that holds all of them, each stamped when it is enqueued
and when it is known complete. With --log or --peer NAME: small durable records, appended to a log.
It overwrites its target, by the rules of `baio stress`: an existing file or a segment of mine without asking, a volume
image or a device or somebody else's segment only with --force. It makes a file that is missing, really written, which stays.
Exit status: 1 a request failed.

Examples:
  baio latency file --writes 1000 --csv writes.csv
  baio latency journal --log --peer thread-direct --waiting 64 --size 16M --runtime 1s

Elsewhere:
  baio latency /dev/loop0 --writes 1000 --force --schedulers --csv schedulers.csv")]
pub struct LatencyArgs {
    /// The file, device or segment
    #[arg(value_name = "TARGET")]
    pub(super) target: TypedTarget,
    /// Make each write durable (data), even where that makes no difference
    #[arg(long, requires = "writes")]
    pub(super) durable: bool,
    /// Bytes of each write [default: 512, more where the device has larger blocks]
    #[arg(long, visible_alias = "bs", value_name = "SIZE", requires = "writes")]
    pub(super) request_size: Option<Size>,
    /// Submit so many writes at once, and take both times of each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=WRITES_MAX))]
    pub(super) writes: Option<u32>,
    /// Write all of them to the first block, not one after the other
    #[arg(long, requires = "writes")]
    pub(super) same_block: bool,
    /// Measure with each I/O scheduler of the device, as root; the present one is put back, even if this process is killed
    #[arg(long, requires = "writes")]
    pub(super) schedulers: bool,
    /// Write both times of each write to a file
    #[arg(long, value_name = "FILE", requires = "writes")]
    pub(super) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(super) log: LogArgs,
    /// How requests are executed
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(super) backend: Backend,
    /// Bytes of the target to use [default: all of it; a file that is made gets 64M, or what the writes need, for appends 256M]
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Size>,
    /// Overwrite a volume image, a device or somebody else's segment
    #[arg(long)]
    pub(super) force: bool,
}

/// Requests that one queue holds.
const WRITES_MAX: i64 = 16_384;
