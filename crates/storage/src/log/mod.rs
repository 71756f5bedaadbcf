//! # The durable log
//!
//! Records are appended, get an LSN at once, and are durable a little later, in order. **The log does no I/O**, as the page cache
//! does none. It has two halves that share one small state behind a mutex:
//!
//! - [`Appender`]: any thread appends, and waits for an LSN to be durable. It neither waits for the device nor does I/O.
//! - [`LogPart`]: whoever drives it asks it for I/Os and tells how they ended, in this order:
//!   1. [`LogPart::start`] (or [`tick`](LogPart::tick)): what is asked.
//!   2. [`LogPart::next_io`] until it gives none: carry these out, in any order. Writes are direct and data-durable.
//!   3. [`LogPart::io_ended`] for each that ended. Then 2 again, and:
//!   4. [`LogPart::next_done`] until it gives none: exactly one end per request; [`LogPart::take_fired`]: who waited.
//!
//! | file | what it holds |
//! |---|---|
//! | `format`, `stamp` | bytes: header, batch, record; by what a batch is known from a record that looks like one |
//! | `front`, `shared`, `appender` | the batch that is being filled; what both halves share; appending |
//! | `waits`, `room`, `retain`, `retained` | who waits for an LSN; for room, and how much there is; who still needs old records |
//! | `sleepers`, `bell` | threads that sleep until an LSN is durable; how the driver is woken |
//! | `flights` | batches at the device; what is durable; a failed write |
//! | `driven` | what its driver asks before it sleeps |
//! | `steps`, `jobs` | requests that change the log, one after the other: their data, their order |
//! | `ios` | whose I/Os are under way |
//! | `headers` | the two copies of the header |
//! | `begin` | how a log begins |
//! | `make`, `zero` | making, and whether one was ever made; what is new is written once |
//! | `opening`, `scan`, `chain` | opening; finding the end; which batch follows which |
//! | `settle` | what only the kernel's cache may have is written once more |
//! | `seen` | what a read gave: nothing judges what was not read |
//! | `truncate`, `grow` | space given up, space added |
//! | `index`, `recent`, `read`, `reader` | finding batches, reading them, records out of them |
//! | `look` | looking at a log that another may have open |
//!
//! What it promises: a record whose LSN is below the durable LSN is there after a crash, and its whole group; what is recovered has
//! no gap. An LSN is never given twice. Who waits for one that the crash before this opening has lost hears so. A failed write
//! acknowledges nothing from its batch on, until the log is opened again.
//!
//! The format stands in `docs/inside/log-format.md`.

mod appender;
mod begin;
mod bell;
mod chain;
mod driven;
mod error;
mod flights;
pub mod format;
mod front;
mod grow;
mod headers;
mod index;
mod ios;
mod jobs;
mod look;
mod make;
mod opening;
mod options;
mod read;
mod reader;
mod recent;
mod retain;
mod retained;
mod room;
mod scan;
mod seen;
mod settle;
mod shared;
mod sleepers;
mod stamp;
mod steps;
mod truncate;
mod waits;
mod zero;

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use baio_engine::{Arena, Buffer, Errno, Memory, Time};

use crate::slot_map::{SlotKey, SlotMap};
use begin::Maker;
use flights::Flights;
use format::{Head, Header};
use front::{Front, Life};
use headers::Headers;
use index::Index;
use ios::{IoOwner, PartCounts};
use read::Reads;
use shared::Shared;
use steps::{Job, Running};

pub use appender::{Appender, WaitKey};
pub use begin::LogStart;
pub use bell::LogBell;
pub use error::LogError;
pub use flights::BATCH_CLASSES;
pub use look::LogLook;
pub use options::LogOptions;
pub use read::{BatchRange, Batches};
pub use reader::{Record, RecordReader};
pub use retained::Retained;
pub use stamp::Salt;
pub use waits::{Fired, WhenDurable};

/// A byte position in a log's stream. It only grows, and is never given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRequest {
    /// Tells when the log is made or recovered, and may be appended to. One that was neither asked begins with it.
    Open,
    /// Gives up the space of all records below this LSN, as far as nobody retains them; the group in which it lies is kept whole.
    Truncate {
        /// The oldest LSN that is still wanted.
        to: Lsn,
    },
    /// The batches from that on in which this LSN lies.
    Read {
        /// Where to begin: a record's, or [`Batches::next`].
        from: Lsn,
    },
    /// Makes the log larger.
    Grow {
        /// Bytes of its area, all of which are there already.
        size_bytes: u64,
    },
    /// Tells the device how far the log is durable now; the log does it by itself when it is idle.
    NoteWatermark,
    /// Makes durable what was appended and notes it. Nothing is appended after that.
    Close,
}

/// What a request gave.
#[derive(Clone, Debug)]
pub enum LogAnswer {
    /// The log is open.
    Opened(Recovered),
    /// The head is there now.
    Head(Lsn),
    /// Batches; none when the LSN is not durable yet: wait for it, then ask again.
    Batches(Option<Arc<Batches>>),
    /// Done.
    Done,
}

/// What an opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The oldest LSN that is kept.
    pub head: Lsn,
    /// All records of the past are below this LSN.
    pub end: Lsn,
    /// New records get LSNs from here on.
    pub next: Lsn,
    /// The number of this opening.
    pub epoch: u64,
    /// It had been closed.
    pub was_clean: bool,
    /// What an earlier or this opening went on behind: only with `salvage`.
    pub holes: Vec<Hole>,
}

/// Records that cannot be read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hole {
    /// The end of what is there in front of it.
    pub from: Lsn,
    /// Where it goes on.
    pub to: Lsn,
    /// Where in the area it begins, in bytes.
    pub offset: u64,
}

/// Names a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogRequestId(pub(super) u64);

/// Names an I/O. Carries a generation: a stale one names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogIoId {
    index: u32,
    generation: u32,
}

/// What the device is to do, in bytes of the log's area, directly; offsets and lengths are multiples of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogIoKind {
    /// Read into the memory.
    Read {
        /// Where it begins.
        offset: u64,
        /// How many: the memory's length.
        len: u32,
    },
    /// Write from the memory, and end when it is durable.
    Write {
        /// Where it begins.
        offset: u64,
        /// How many: the memory's length.
        len: u32,
    },
    /// Make durable what any process has written before. Without memory. One at each opening: what is found must not be in the
    /// device's cache alone.
    Sync,
    /// Set the space up to this byte aside, and make the file so long if it is shorter. Without memory. Where a log is made, and only there.
    Allocate {
        /// Where it ends.
        to: u64,
    },
}

/// The end of a request.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogDone {
    /// Who asked.
    pub owner: u64,
    /// Which.
    pub id: LogRequestId,
    /// What it gave.
    pub result: Result<LogAnswer, LogError>,
}

/// What a log holds and has done.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogUsage {
    /// Bytes of the area, headers included.
    pub size_bytes: u64,
    /// Size of a block.
    pub block_bytes: u32,
    /// Whose log.
    pub uuid: [u8; 16],
    /// The oldest LSN that is kept.
    pub head: Lsn,
    /// Everything below is durable.
    pub durable: Lsn,
    /// What the next record gets, or a little less.
    pub next: Lsn,
    /// Number of this opening.
    pub epoch: u64,
    /// Bytes of the data area in use.
    pub used_bytes: u64,
    /// Bytes of it that are free.
    pub free_bytes: u64,
    /// LSNs between what is durable and what was given.
    pub pending_bytes: u64,
    /// Records appended.
    pub appends: u64,
    /// Bytes of them, with their headers.
    pub append_bytes: u64,
    /// Appends that found no room.
    pub would_block: u64,
    /// Batches that are durable.
    pub batches: u64,
    /// Bytes of them, with padding.
    pub batch_bytes: u64,
    /// Records in them.
    pub batch_records: u64,
    /// Batches by their size: the class `n` has at most 512 << n bytes.
    pub batch_sizes: [u64; BATCH_CLASSES],
    /// Most batches that were in flight at once.
    pub in_flight_max: u32,
    /// Times that the driver was rung for.
    pub bells: u64,
    /// Headers that were written.
    pub headers: u64,
    /// Reads that were answered from memory, by the driver or without it.
    pub reads_recent: u64,
    /// Reads that went to the device.
    pub reads_device: u64,
}

/// The driven half of a log. See the module.
#[derive(Debug)]
pub struct LogPart {
    shared: Arc<Shared>,
    arena: Arc<Arena>,
    options: LogOptions,
    size_bytes: u64,
    headers: Headers,
    /// What counts: read when it was opened, or durable since in as many copies as it takes.
    header: Option<Header>,
    ios: SlotMap<IoOwner>,
    outgoing: VecDeque<(LogIoId, LogIoKind, Memory)>,
    flights: Flights,
    jobs: VecDeque<Job>,
    running: Option<Running>,
    reads: Reads,
    index: Index,
    /// What an opening went on behind.
    recovered: Recovered,
    /// The head that both copies of the header have.
    head: Head,
    /// Up to where truncation has looked.
    truncated_for: u64,
    /// For headers: kept, so that truncation needs no memory.
    block_buffer: Option<Buffer>,
    /// Nothing is written.
    only_looks: bool,
    /// Its caller can write blocks that are smaller than the device's.
    takes_smaller: bool,
    /// Its I/Os go through the kernel's page cache.
    is_cached: bool,
    /// Makes a log where none was ever made.
    maker: Option<Maker>,
    /// Every record of the open batch has come after this time.
    gather_since: Option<Time>,
    now: Time,
    next_request: u64,
    done: VecDeque<LogDone>,
    counts: PartCounts,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Front({:?}, next {})", self.life, self.next_lsn())
    }
}

impl LogPart {
    /// Batches take so many bytes of the arena at most, where they can be made short enough: what others need of it stays. Before it is
    /// opened, and anything is asked of it.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn take_at_most(&mut self, bytes: usize) -> Result<(), LogError> {
        let mut front = self.shared.lock();
        front.memory_max = bytes;
        // A new log has taken its own.
        match front.spare.is_empty() {
            true => Ok(()),
            false => {
                front.drop_buffers();
                front.take_buffers()
            }
        }
    }

    /// For whoever appends. It refuses until the log is open.
    #[must_use]
    pub fn appender(&self) -> Appender {
        Appender::new(&self.shared)
    }

    /// Begins a request. Requests that change the log are done one after the other; reads beside them.
    pub fn start(&mut self, owner: u64, request: LogRequest) -> LogRequestId {
        self.next_request += 1;
        let id = LogRequestId(self.next_request);
        match request {
            LogRequest::Read { from } => self.start_read(owner, id, from),
            _ => self.start_job(Some((owner, id)), request),
        }
        id
    }

    /// The next I/O to carry out. None: there is none before something else happens here.
    pub fn next_io(&mut self) -> Option<(LogIoId, LogIoKind, Memory)> {
        self.go_on();
        self.outgoing.pop_front().or_else(|| self.next_batch())
    }

    /// An I/O has ended: with so many bytes, or why not; its memory comes back here.
    pub fn io_ended(&mut self, id: LogIoId, result: Result<u32, Errno>, memory: Memory) {
        let key = SlotKey {
            index: id.index,
            generation: id.generation,
        };
        let Some(owner) = self.ios.remove(key) else {
            return;
        };
        let buffer = memory.into_buffer();
        match owner {
            IoOwner::Batch(number) => self.batch_ended(number, result, buffer),
            IoOwner::Job => self.job_io_ended(result, buffer),
            IoOwner::Zeroes { at, len } => self.zeroes_ended(at, len, result),
            IoOwner::Read(key) => self.read_io_ended(key, result, buffer),
        }
        self.go_on();
    }

    /// The next request that has ended.
    pub fn next_done(&mut self) -> Option<LogDone> {
        self.done.pop_front()
    }

    /// Who waited, and hears now: to be let go outside of every borrow. Threads that sleep are woken here.
    pub fn take_fired(&mut self, into: &mut Vec<Fired>) {
        let due = {
            let mut front = self.shared.lock();
            front.waits.take_fired(into);
            front.waits.sleepers.take_due()
        };
        self.shared.beds.wake(due);
    }

    /// It is now so late. What is due by the clock is done at the next [`LogPart::next_io`].
    pub fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.note_when_idle();
    }

    /// When [`LogPart::tick`] has something to do next.
    #[must_use]
    pub fn next_tick(&self) -> Option<Time> {
        // With a full window the end of a batch comes first.
        let may_send = || self.shared.lock().may_send(false);
        let gathers = self.gather_since.filter(|_| may_send());
        let gathers = gathers.map(|since| since.after(self.options.gather));
        let idles = self.idle_note_at();
        match (gathers, idles) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Nothing is under way: no I/O is wanted or at the device, and no request waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.ios.iter().next().is_none() && self.jobs.is_empty() && self.running.is_none() && self.reads.is_empty()
    }

    /// What it holds and has done.
    #[must_use]
    pub fn usage(&self) -> LogUsage {
        let reads_recent = self.shared.recent().taken();
        let front = self.shared.lock();
        let mut usage = LogUsage {
            size_bytes: self.size_bytes,
            block_bytes: front.shape.block,
            uuid: self.header.map_or([0; 16], |header| header.uuid),
            head: Lsn(front.head),
            durable: Lsn(self.shared.durable()),
            next: Lsn(front.next_lsn()),
            epoch: self.recovered.epoch,
            used_bytes: front.used,
            free_bytes: front.shape.capacity.saturating_sub(front.used),
            pending_bytes: front.next_lsn().saturating_sub(front.durable_to),
            appends: front.counts.appends,
            append_bytes: front.counts.append_bytes,
            would_block: front.counts.would_block,
            bells: front.counts.bells,
            headers: self.counts.headers,
            reads_recent,
            reads_device: self.counts.reads_device,
            ..LogUsage::default()
        };
        self.flights.tell(&mut usage);
        usage
    }

    /// Puts an I/O into the queue.
    fn ask(&mut self, owner: IoOwner, kind: LogIoKind, buffer: Option<Buffer>) {
        let id = self.new_io(owner);
        self.outgoing
            .push_back((id, kind, buffer.map_or(Memory::None, Memory::Own)));
    }

    fn new_io(&mut self, owner: IoOwner) -> LogIoId {
        let key = self.ios.insert(owner);
        LogIoId {
            index: key.index,
            generation: key.generation,
        }
    }

    fn end(&mut self, who: Option<(u64, LogRequestId)>, result: Result<LogAnswer, LogError>) {
        if let Some((owner, id)) = who {
            self.done.push_back(LogDone { owner, id, result });
        }
    }
}

impl Drop for LogPart {
    /// Nobody drives the log any more: who waits hears it.
    fn drop(&mut self) {
        self.shared.recent().end();
        let (fired, due) = {
            let mut front = self.shared.lock();
            // Also of batches in front of a failed one: nobody hears any more how they end.
            let from = front.lost_from.min(self.shared.durable());
            front.lost_from = from;
            let error = match &front.life {
                Life::Failed(LogError::Failed { errno, .. }) => LogError::Failed {
                    errno: *errno,
                    lsn: Lsn(from),
                },
                Life::Failed(error) => error.clone(),
                _ => LogError::Closed,
            };
            front.life = match &error {
                LogError::Closed => Life::Closed,
                _ => Life::Failed(error.clone()),
            };
            front.waits.fail_from(from, &error);
            front.is_driven = false;
            front.drop_buffers();
            (std::mem::take(&mut front.waits.fired), front.waits.sleepers.take_due())
        };
        self.shared.beds.wake(due);
        for fired in fired {
            // Anybody's code: its panic keeps nobody from being told.
            let _ = catch_unwind(AssertUnwindSafe(|| fired.fire()));
        }
    }
}
