//! What to do. Everything is resolved: sizes are known, names are paths, words are enums.

use std::path::PathBuf;
use std::time::Duration;

use baio::Identity;
use baio_console::named::{NamedSegment, Volume};
use baio_engine::{Caching, Choice, Durability};
use clap::ValueEnum;

/// Segments are read and written in multiples of this: volumes have no smaller block.
pub(crate) const SEGMENT_BLOCK: u64 = 4096;

/// A whole run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The command at work, for messages.
    pub(crate) command: &'static str,
    pub(crate) objects: Objects,
    /// One thread each, with an engine of its own unless it is shared; never empty.
    pub(crate) lanes: Vec<Lane>,
    /// One after the other; all lanes begin and end each together.
    pub(crate) stages: Vec<Stage>,
    /// Bytes of each request.
    pub(crate) request_size: u64,
    /// Requests that a stream makes before the lane goes on to the next one.
    pub(crate) run_length: u32,
    pub(crate) mode: Mode,
    /// Bytes of each lane's own cache, with the mode that has one.
    pub(crate) cache_bytes: usize,
    pub(crate) durability: Durability,
    pub(crate) backend: Choice,
    /// Buffers in memory that could be shared with another process.
    pub(crate) shared_memory: bool,
    /// Hand over and wait in one turn: a system call less, and no submit latency to measure.
    pub(crate) one_turn: bool,
    /// Rest before each request, from the end of the one before: with one in flight.
    pub(crate) interval: Option<Duration>,
    /// A segment through a service thread, which all lanes share; else each lane owns what it works on.
    pub(crate) service: bool,
    /// Files are dropped from the kernel's page cache before each stage.
    pub(crate) cold: bool,
    /// So many percent of the requests of a mix are reads.
    pub(crate) read_percent: u8,
    /// So many percent of each stream, from its start, are read into our own cache before the first stage.
    pub(crate) warm_percent: Option<u8>,
    pub(crate) verify: Option<Verify>,
    pub(crate) seed: u64,
}

/// What requests are made on.
#[derive(Clone, Debug)]
pub(crate) enum Objects {
    /// Files and devices.
    Files(Vec<PathBuf>),
    /// One segment.
    Segment(SegmentPath),
}

/// Where a segment is.
#[derive(Clone, Debug)]
pub(crate) struct SegmentPath {
    /// As it was typed, for messages.
    pub(crate) typed: String,
    /// Who opens it.
    pub(crate) identity: Identity,
    pub(crate) volume: Volume,
    pub(crate) owner_uid: u32,
    pub(crate) name: String,
}

impl SegmentPath {
    /// The one that this user means.
    pub(crate) fn of_named(named: &NamedSegment, identity: Identity) -> SegmentPath {
        SegmentPath {
            typed: named.typed.clone(),
            identity,
            volume: named.volume.clone(),
            owner_uid: named.owner_uid(identity),
            name: named.name.clone(),
        }
    }
}

/// What one thread does.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// Requests kept in flight, over all its streams.
    pub(crate) depth: u32,
    /// Requests that are handed over at a time.
    pub(crate) batch: u32,
    pub(crate) streams: Vec<Stream>,
}

/// A range of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) object: usize,
    pub(crate) start: u64,
    /// Behind the last byte.
    pub(crate) end: u64,
}

/// What is done in one stage, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    pub(crate) rw: Rw,
    /// Random requests touch each block exactly once.
    pub(crate) once: bool,
    /// Streams begin again at their end; else they make as many requests as they have room for.
    pub(crate) endless: bool,
    /// No request begins after this long.
    pub(crate) runtime: Option<Duration>,
    /// No more than so many requests of each lane.
    pub(crate) requests: Option<u64>,
    /// What follows it.
    pub(crate) sync: Option<Durability>,
}

/// How blocks are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    /// Every block has been stamped by this very run before the first stage.
    Stamped,
    /// Some run before this one has written the blocks; every one that is read must carry a stamp.
    Earlier,
    /// Only what this run writes is known.
    Own,
}

/// The pattern of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// In order
    Read,
    /// In order
    Write,
    /// At random
    #[value(name = "randread")]
    RandomRead,
    /// At random
    #[value(name = "randwrite")]
    RandomWrite,
    /// Reads and writes at random, by a coin: --read-percent
    #[value(name = "randrw")]
    RandomMixed,
}

impl Rw {
    /// As it is typed, here and for fio.
    pub fn name(self) -> &'static str {
        match self {
            Rw::Read => "read",
            Rw::Write => "write",
            Rw::RandomRead => "randread",
            Rw::RandomWrite => "randwrite",
            Rw::RandomMixed => "randrw",
        }
    }

    /// Is anything written?
    pub fn writes(self) -> bool {
        matches!(self, Rw::Write | Rw::RandomWrite | Rw::RandomMixed)
    }

    /// Is there no order in it?
    pub fn is_random(self) -> bool {
        !matches!(self, Rw::Read | Rw::Write)
    }
}

/// Through which cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Past every cache
    Direct,
    /// Through the kernel's page cache; files only
    Kernel,
    /// The same, dropped behind each request; files only
    Uncached,
    /// Through our own
    Cached,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Cached => "cached",
            other => other.caching().name(),
        }
    }

    /// What reaches the file.
    pub(crate) fn caching(self) -> Caching {
        match self {
            Mode::Direct | Mode::Cached => Caching::Direct,
            Mode::Kernel => Caching::Kernel,
            Mode::Uncached => Caching::Uncached,
        }
    }
}

/// A way to execute requests, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The best that works here
    Auto,
    /// Blocking system calls
    #[value(alias = "psync")]
    Sync,
    /// A pool of threads
    #[value(alias = "posixaio")]
    Threads,
    /// Linux native AIO
    #[value(alias = "libaio")]
    Aio,
    /// io_uring
    #[value(alias = "io_uring")]
    Uring,
}

impl From<Backend> for Choice {
    fn from(backend: Backend) -> Choice {
        match backend {
            Backend::Auto => Choice::Auto,
            Backend::Sync => Choice::Sync,
            Backend::Threads => Choice::Threads,
            Backend::Aio => Choice::Aio,
            Backend::Uring => Choice::Uring,
        }
    }
}

impl Objects {
    /// What messages call an object.
    pub(crate) fn name(&self, object: usize) -> String {
        match self {
            Objects::Files(paths) => paths
                .get(object)
                .map_or_else(String::new, |path| path.display().to_string()),
            Objects::Segment(segment) => segment.typed.clone(),
        }
    }

    /// What messages call that which carries the requests to all of them.
    pub(crate) fn carrier(&self) -> &str {
        match self {
            Objects::Segment(segment) if segment.volume.is_served() => &segment.typed,
            Objects::Files(_) | Objects::Segment(_) => "the engine",
        }
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Objects::Files(paths) => paths.len(),
            Objects::Segment(_) => 1,
        }
    }
}

/// So many percent of `bytes`, in whole requests.
pub fn warm_bytes(bytes: u64, percent: u8, request_size: u64) -> u64 {
    let part = bytes / 100 * u64::from(percent) + bytes % 100 * u64::from(percent) / 100;
    part / request_size * request_size
}

impl Stage {
    /// Goes once through its streams, and syncs nothing.
    pub(crate) fn of(rw: Rw) -> Stage {
        Stage {
            rw,
            once: false,
            endless: false,
            runtime: None,
            requests: None,
            sync: None,
        }
    }
}

impl Job {
    /// Direct requests of this size in no lane yet, with nothing asked for beside.
    pub(crate) fn new(command: &'static str, objects: Objects, request_size: u64) -> Job {
        Job {
            command,
            objects,
            lanes: Vec::new(),
            stages: Vec::new(),
            request_size,
            run_length: 1,
            mode: Mode::Direct,
            cache_bytes: 0,
            durability: Durability::None,
            backend: Choice::Auto,
            shared_memory: false,
            one_turn: false,
            interval: None,
            service: false,
            cold: false,
            read_percent: 50,
            warm_percent: None,
            verify: None,
            seed: 1,
        }
    }

    pub(crate) fn writes(&self) -> bool {
        self.stages.iter().any(|stage| stage.rw.writes())
    }

    /// Behind the last byte of an object that any stream touches.
    pub(crate) fn end_of(&self, object: usize) -> u64 {
        let streams = self.lanes.iter().flat_map(|lane| &lane.streams);
        let ends = streams
            .filter(|stream| stream.object == object)
            .map(|stream| stream.end);
        ends.max().unwrap_or(0)
    }
}
