//! `baio latency` as typed.

use std::path::PathBuf;
use std::time::Duration;

use baio_console::duration::parse_duration;
use baio_console::size::Size;
use baio_console::target::TypedTarget;
use baio_stress::Backend;
use clap::Args;

use super::log::args::LogArgs;

/// `baio latency`
#[derive(Debug, Args)]
#[command(after_help = "\
One request at a time, direct: 4 KiB are read at random places, 100 times. With --writes N it is another test: N writes of 512 bytes,
posted as fast as possible into a queue that holds all of them, each stamped when it is enqueued and when it is known complete.
With --log or --peer NAME a third: small durable records, appended to a log.
A run that writes overwrites its target, by the rules of `baio stress`: an existing file or a segment of mine without asking, a volume
image or a device or somebody else's segment only with --force. It makes a file that is missing, really written, which stays.
Exit status: 1 a request failed.

Examples:
  baio latency /tmp/file
  baio latency /tmp/vol#log --write --durable --count 1000 --interval 0s
  baio latency /dev/loop0 --writes 1000 --force --csv writes.csv
  baio latency /dev/loop0 --writes 1000 --force --schedulers --csv schedulers.csv
  baio latency /tmp/log --log --peer thread-direct --waiting 64")]
pub struct LatencyArgs {
    /// The file, device or segment
    #[arg(value_name = "TARGET")]
    pub(super) target: TypedTarget,
    /// Write single requests instead of reading
    #[arg(long, conflicts_with = "writes")]
    pub(super) write: bool,
    /// Each write is data-durable when it completes; with --writes that is so wherever it makes a difference
    #[arg(long)]
    pub(super) durable: bool,
    /// How many single requests
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "writes", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) count: u64,
    /// Time from the end of a single request to the beginning of the next
    #[arg(long, value_name = "TIME", default_value = "10ms", conflicts_with = "writes", value_parser = parse_duration)]
    pub(super) interval: Duration,
    /// Bytes of each request [default: 4K, with --writes 512; more where the device has larger blocks]
    #[arg(long, visible_alias = "bs", value_name = "SIZE")]
    pub(super) request_size: Option<Size>,
    /// Post so many writes at once, and stamp each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=WRITES_MAX))]
    pub(super) writes: Option<u32>,
    /// All of them to the first block, not one behind the other
    #[arg(long, requires = "writes")]
    pub(super) same_block: bool,
    /// Once with each I/O scheduler of the device, as root; the one in force now is put back, also if this process is killed
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
