//! The state of a request that changes a log as a whole: the step that it is in, and the data of that step. Each step's code is in
//! the file of its name; `jobs` moves a request from one step to the next.

use std::ops::Range;

use baio_engine::{Buffer, Errno, Frozen};

use super::chain::Chain;
use super::error::LogError;
use super::format::{Head, Header};
use super::seen::{Reading, Seen, Unread};
use super::{Hole, LogAnswer, LogIoKind, LogRequest, LogRequestId};

/// A request that waits for its turn; `who` is `None` for internal requests of the log.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) who: Option<(u64, LogRequestId)>,
    pub(super) request: LogRequest,
}

/// The one that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) job: Job,
    pub(super) step: Option<Step>,
    pub(super) is_waiting: bool,
    pub(super) ended: Option<Ended>,
}

impl Running {
    pub(super) fn new(job: Job, step: Step) -> Running {
        Running {
            job,
            step: Some(step),
            is_waiting: false,
            ended: None,
        }
    }
}

/// How the I/O of a step ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) result: Result<u32, Errno>,
    pub(super) buffer: Option<Buffer>,
}

/// Where a job is.
#[derive(Debug)]
pub(super) enum Step {
    Begin,
    /// A new log: its file is made longer.
    Lengthen(Lengthening),
    /// A new log: this copy of what may have been a header gives way to a mark.
    Clear {
        copy: usize,
    },
    /// Where none was ever made: is there nothing but zeroes?
    Blank(Blank),
    /// Zeroes are written, by several writes at once.
    Zero(Zeroing),
    /// This copy of the header is read.
    ReadHeader {
        copy: usize,
    },
    /// Batches are followed from the head on.
    Scan(Box<Scan>),
    /// What no watermark tells of is written once more.
    Settle(Box<Settling>),
    /// What was found is made durable.
    Sync(Box<Scan>),
    /// The header is written.
    Header(HeaderWrite),
    /// The group is looked for in which the new head lies.
    Find(Box<Find>),
    /// The batches that there are go to the device.
    Drain(AfterDrain),
    /// What has wrapped is copied behind the old end.
    Move(Growth),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AfterZero {
    Create,
    Grow(Growth),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AfterDrain {
    Close,
    Grow(Growth),
}

/// A new header, into one copy or both.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderWrite {
    pub(super) header: Header,
    /// Copies still to be written.
    pub(super) left: u8,
    pub(super) then: AfterHeader,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AfterHeader {
    /// The log is open, with its end there.
    Open {
        end: u64,
        place: u64,
    },
    Truncate(Head),
    Grow(Growth),
    Note,
    Close,
}

/// What a step does next.
pub(super) enum Next {
    /// Waits for this I/O.
    Io(Step, LogIoKind, Option<Buffer>),
    /// Goes on at once.
    Go(Step),
    /// Waits for something else.
    Stay(Step),
    End(Result<LogAnswer, LogError>),
}

/// How a file is made longer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lengthening {
    /// Its space is set aside, so many bytes in all.
    Allocating { to: u64 },
    /// Where the file system sets none aside: its last block is written, as all others are afterwards.
    Writing,
}

/// Looking for bytes that are not zero.
#[derive(Debug)]
pub(super) struct Blank {
    pub(super) reading: Reading,
    pub(super) from: u64,
    /// The end of the file may lie before that of the read.
    pub(super) to: u64,
}

/// Zeroes on their way.
#[derive(Debug)]
pub(super) struct Zeroing {
    /// What is still to be written, in bytes of data; more than one range after short writes.
    pub(super) left: Vec<Range<u64>>,
    pub(super) zeroes: Option<Frozen>,
    pub(super) under_way: u32,
    /// Why one of the writes has failed, and where.
    pub(super) failed: Option<(Errno, u64)>,
    pub(super) then: AfterZero,
}

/// How far a recovery has come.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) header: Header,
    /// The highest watermark of both copies, and of the batches that were followed.
    pub(super) watermark: u64,
    pub(super) chain: Chain,
    /// Memory to read into, while nothing is seen or being read.
    pub(super) buffer: Option<Buffer>,
    pub(super) chunk: u32,
    pub(super) reading: Option<Reading>,
    pub(super) seen: Option<Seen>,
    /// Where in the data what is seen begins, and its length up to the end of a block that could not be read.
    pub(super) at: u64,
    pub(super) len: u32,
    /// The first block that could not be read.
    pub(super) unread: Option<Unread>,
    /// Bytes of the data that were gone over.
    pub(super) passed: u64,
    pub(super) look: Option<Look>,
    pub(super) holes: Vec<Hole>,
}

/// Batches that are written once more.
#[derive(Debug)]
pub(super) struct Settling {
    /// What was found, up to its end.
    pub(super) scan: Box<Scan>,
    /// So far they are settled, or on their way.
    pub(super) chain: Chain,
    /// Bytes that are being written; if none are, a part is being read.
    pub(super) written: Option<u32>,
}

/// Looking for later batches behind a gap.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) place: u64,
    pub(super) left: u64,
    pub(super) passed: u64,
    pub(super) is_rot: bool,
    /// Up to there the next batch may lie that should begin in the gap: that must be readable.
    pub(super) next_to: u64,
    /// Where the first later batch lies, its LSN, and how far behind the gap.
    pub(super) found: Option<(u64, u64, u64)>,
}

/// Looking for the last group that begins at or below an LSN.
#[derive(Debug)]
pub(super) struct Find {
    pub(super) to: u64,
    pub(super) chain: Chain,
    pub(super) found: Head,
    /// The place that was read, and how many bytes.
    pub(super) at: u64,
    pub(super) len: u32,
}

/// A growth on its way, in bytes of data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    pub(super) size_bytes: u64,
    pub(super) old: u64,
    pub(super) new: u64,
    /// What has wrapped: bytes from the beginning.
    pub(super) wrapped: u64,
    /// So much of it is copied.
    pub(super) copied: u64,
    /// The next part is being read, and not written yet.
    pub(super) is_read: bool,
}
