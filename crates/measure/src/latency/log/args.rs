//! What is appended, how, and by whom, as typed.

use std::time::Duration;

use baio_console::duration::parse_duration;
use baio_console::size::Size;
use clap::{ArgGroup, Args, ValueEnum};

/// The part of `baio latency` that appends.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("appends").args(["log", "peers"]).multiple(true)))]
pub(crate) struct LogArgs {
    /// Append durable records to a log that is made in the target; everything that was there is lost
    #[arg(long, conflicts_with = "writes")]
    pub(super) log: bool,
    /// The log behind a service thread, as with --threads; without it, it is driven by the thread that appends
    #[arg(long, requires = "log")]
    pub(super) service: bool,
    /// Batches that the log has in flight at once [default: as `LogOptions`]
    #[arg(long, value_name = "N", requires = "log", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) window: Option<u32>,
    /// Write a batch that is not full only while fewer than N are in flight [default: as the device asks, see docs/inside/log.md]
    #[arg(long, value_name = "N", requires = "log", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) window_short: Option<u32>,
    /// How long the first record of a batch of the log may wait for others
    #[arg(long, value_name = "TIME", requires = "log", default_value = "0s", value_parser = parse_duration)]
    pub(super) gather: Duration,
    /// Longest batch of the log, a multiple of 4 KiB up to 16M [default: as `LogOptions`]
    #[arg(long, value_name = "SIZE", requires = "log")]
    pub(super) batch_max: Option<Size>,
    /// Append durable records to this kind of writer too; several take turns
    #[arg(long = "peer", value_name = "NAME", conflicts_with = "writes")]
    pub(super) peers: Vec<Peer>,
    /// Closed loop: one thread keeps so many records waiting to become durable [default: 8]
    #[arg(long, value_name = "N", requires = "appends", conflicts_with_all = ["threads", "rate"], value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) waiting: Option<u32>,
    /// Closed loop: so many threads, each of which waits for its own record
    #[arg(long, value_name = "N", requires = "appends", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: Option<u32>,
    /// Open loop: so many records a second at random moments, each latency from the moment at which it should have come
    #[arg(long, value_name = "N", requires = "appends", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) rate: Option<u32>,
    /// Bytes of each record
    #[arg(long, value_name = "SIZE", default_value = "256", requires = "appends", value_parser = record_size)]
    pub(super) record_size: Size,
    /// How long each side is measured in a round
    #[arg(long, value_name = "TIME", default_value = "3s", requires = "appends", value_parser = parse_duration)]
    pub(super) runtime: Duration,
    /// Rounds of each side, in turn [default: 3, of a single one 1]
    #[arg(long, value_name = "N", requires = "appends", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: Option<u32>,
}

/// Who else keeps a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// A thread that writes what there is, then calls fdatasync
    ThreadFdatasync,
    /// A thread that writes what there is with O_DIRECT and O_DSYNC
    ThreadDirect,
    /// No log: each record alone by one write(2), O_DIRECT and O_DSYNC
    Bare,
}

impl LogArgs {
    /// Is it this part of the command that is meant?
    pub(crate) fn is_asked_for(&self) -> bool {
        self.log || !self.peers.is_empty()
    }
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::ThreadFdatasync => "thread-fdatasync",
            Peer::ThreadDirect => "thread-direct",
            Peer::Bare => "bare",
        }
    }
}

/// The largest record that this test appends.
const RECORD_MAX: u64 = 1 << 20;

fn record_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.bytes() {
        0..=RECORD_MAX => Ok(size),
        _ => Err("a record has at most 1M".to_owned()),
    }
}
