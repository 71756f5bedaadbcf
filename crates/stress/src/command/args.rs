//! `baio stress` as typed.

use std::time::Duration;

use baio_console::duration::{parse_duration, parse_runtime};
use baio_console::memory_limit::Room;
use baio_console::size::Size;
use baio_console::target::TypedTarget;
use baio_engine::Durability;
use clap::{Args, ValueEnum};

use crate::job::{Backend, Mode, Rw};

/// `baio stress`
#[derive(Debug, Args)]
#[command(after_help = "\
A run that writes overwrites its target: an existing file or a segment of mine without asking, a volume image or a device
or somebody else's segment only with --force. It makes a missing file, really written, which stays (--size, default 1G). A run that
only reads makes none: what is not there cannot be read.
Without --once, --io-size, --stages or --runtime a run lasts 5 seconds. With --stages each stage goes once through the whole size, and
is followed by a sync if it writes; with --runtime it lasts that long.
Several threads share each file out between them; each has an engine of its own. A segment has one owner: its threads share
it by --service.
Exit status: 1 a request failed, 3 a block did not verify, 4 a threshold was missed.

Examples:
  baio stress file --size 64M --rw write --once
  baio stress file --runtime 2s
  baio stress file --interval 10ms --io-size 400K
  baio stress stamped --stages write,read,randwrite,randread --size 64M --verify
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio stress vol#log --rw randwrite --request-size 16K --durability data --io-size 4M --json

Elsewhere:
  baio stress /dev/loop0 --rw randread --depth 1 --runtime 10s --max-p99 500us")]
pub struct StressArgs {
    /// The file, device or segment
    #[arg(value_name = "TARGET")]
    pub(crate) target: TypedTarget,
    /// What to do
    #[arg(long, value_name = "PATTERN", default_value = "randread")]
    pub(crate) rw: Rw,
    /// Bytes of each request
    #[arg(long, visible_alias = "bs", value_name = "SIZE", default_value = "4K", value_parser = request_size)]
    pub(crate) request_size: Size,
    /// Requests that each thread keeps in flight [default: 32, or fewer if their buffers would not fit into memory]
    #[arg(long, visible_alias = "iodepth", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) depth: Option<u32>,
    /// Requests that are submitted at a time, after as many have ended
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,
    /// Through which cache; files take all four, segments direct and cached
    #[arg(long, value_name = "MODE", default_value = "direct")]
    pub(crate) mode: Mode,
    /// What is safe when a write completes
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    pub(crate) durability: TypedDurability,
    /// How requests are executed; of fio's names io_uring, libaio, psync, and posixaio for the threads
    #[arg(long, visible_alias = "ioengine", value_name = "NAME", default_value = "auto")]
    pub(crate) backend: Backend,
    /// How long each stage runs; a bare number is seconds, as for fio
    #[arg(long, value_name = "TIME", value_parser = parse_runtime)]
    pub(crate) runtime: Option<Duration>,
    /// Bytes of each file to use [default: all of it; a missing one that is written gets 1G]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// End each stage after so many bytes, over all threads, however often they go through the range
    #[arg(long, value_name = "SIZE", conflicts_with = "once")]
    pub(crate) io_size: Option<Size>,
    /// Sync the target after a stage that writes, as fio's --end_fsync=1; with several --stages that is done anyway
    #[arg(long)]
    pub(crate) end_sync: bool,
    /// Touch each block exactly once
    #[arg(long)]
    pub(crate) once: bool,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Files; several are named TARGET.0, TARGET.1, ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) files: u32,
    /// Requests on one file before the next file's turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Streams in each file, --offset apart
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) contexts: u32,
    /// By how much each stream's range is smaller at both ends than the one before
    #[arg(long, value_name = "SIZE", default_value = "2M")]
    pub(crate) offset: Size,
    /// Patterns that follow one another
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "rw")]
    pub(crate) stages: Vec<Rw>,
    /// Percentage of reads with randrw
    #[arg(long, visible_alias = "rwmixread", value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) read_percent: u8,
    /// Percentage of each file, from its beginning, that is read into baio's own cache before anything is measured
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) warm: Option<u8>,
    /// Write a stamp into every block that says what it is, and check every block that is read
    #[arg(long)]
    pub(crate) verify: bool,
    /// Take the buffers from a mapping that could be shared with another process
    #[arg(long)]
    pub(crate) shared_memory: bool,
    /// Submit and wait in one turn: one system call less; the submit latency is then not measured
    #[arg(long)]
    pub(crate) one_turn: bool,
    /// Rest from the end of each request to the beginning of the next; one is in flight then
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) interval: Option<Duration>,
    /// Reach the segment through a service thread, which owns the volume and which all --threads share
    #[arg(long)]
    pub(crate) service: bool,
    /// Memory of baio's own cache, with --mode cached [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = cache_size)]
    pub(crate) cache: Option<Size>,
    /// Drop the files from the kernel's page cache before each stage; with --mode kernel
    #[arg(long)]
    pub(crate) cold: bool,
    /// Seed of random offsets and stamps
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Exit with 4 if there were fewer requests a second
    #[arg(long, value_name = "N")]
    pub(crate) min_iops: Option<u64>,
    /// Exit with 4 if one request in a hundred took longer
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) max_p99: Option<Duration>,
    /// Overwrite a volume image, a device or somebody else's segment
    #[arg(long)]
    pub(crate) force: bool,
}

/// Requests in flight unless `--depth` says otherwise.
const DEPTH_DEFAULT: u32 = 32;

impl StressArgs {
    /// Requests that each thread keeps in flight.
    pub(crate) fn depth(&self) -> u32 {
        let one = self.interval.map(|_| 1);
        self.depth.or(one).unwrap_or_else(|| {
            let each = self.request_size.bytes().saturating_mul(u64::from(self.threads));
            Room::here().buffers(each, DEPTH_DEFAULT)
        })
    }
}

/// Memory that our own cache may be given.
const CACHE_MIN: u64 = 64 << 10;
const CACHE_MAX: u64 = 1 << 40;

fn request_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.bytes() {
        0 => Err("a request has at least one byte".to_owned()),
        _ => Ok(size),
    }
}

fn cache_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.bytes() {
        CACHE_MIN..=CACHE_MAX => Ok(size),
        _ => Err("a cache has 64K to 1T".to_owned()),
    }
}

/// The words for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TypedDurability {
    /// Nothing
    None,
    /// The bytes, and what is needed to find them
    Data,
    /// All of the inode too
    Full,
}

impl From<TypedDurability> for Durability {
    fn from(typed: TypedDurability) -> Durability {
        match typed {
            TypedDurability::None => Durability::None,
            TypedDurability::Data => Durability::Data,
            TypedDurability::Full => Durability::Full,
        }
    }
}
