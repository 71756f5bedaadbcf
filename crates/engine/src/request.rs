//! What a caller asks for. Plain data: what happens next is named by the tag, never by a closure.

use std::time::Duration;

use crate::file::File;
use crate::memory::Memory;
use crate::policy::{Durability, Policy, Space, Time};

/// One operation. Lengths come from the request's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads into the request's memory, exactly: fewer bytes mean end of file.
    Read {
        /// First byte in the file; `None` reads a stream, which returns what there is.
        offset: Option<u64>,
    },
    /// Writes the request's memory, exactly.
    Write {
        /// First byte in the file; `None` writes to a stream.
        offset: Option<u64>,
    },
    /// Makes every write completed before the submission of this request durable, as far as its policy says.
    Sync,
    /// A sync that starts by itself when every write submitted to the file before it has ended.
    Fence,
    /// Starts and waits for write-back of a range; no flush of the device (sync_file_range(2)), so it proves nothing.
    SyncRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Changes how a range is stored.
    Allocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// To what.
        space: Space,
    },
    /// Completes when the descriptor is ready; the result is the ready events (poll(2)).
    Poll {
        /// `POLLIN`, `POLLOUT`, ...
        events: u32,
    },
    /// Completes at a moment of engine time.
    Timer {
        /// When.
        at: Time,
    },
}

impl Op {
    /// The word used in messages and statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Op::Read { .. } => "read",
            Op::Write { .. } => "write",
            Op::Sync => "sync",
            Op::Fence => "fence",
            Op::SyncRange { .. } => "sync range",
            Op::Allocate {
                space: Space::Reserve, ..
            } => "allocate",
            Op::Allocate { space: Space::Zero, .. } => "zero",
            Op::Allocate {
                space: Space::Discard, ..
            } => "discard",
            Op::Poll { .. } => "poll",
            Op::Timer { .. } => "timer",
        }
    }

    pub(crate) fn is_write(self) -> bool {
        matches!(self, Op::Write { .. } | Op::Allocate { .. })
    }
}

/// One operation to be carried out: on what, with which memory, how.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub op: Op,
    /// On which file; only timers have none.
    pub file: Option<File>,
    /// From or into which memory; comes back with the completion.
    pub memory: Memory,
    /// How.
    pub policy: Policy,
    /// The caller's name for it, handed back untouched.
    pub tag: u64,
}

impl Request {
    /// A read of `memory.len()` bytes at `offset`.
    #[must_use]
    pub fn read(file: &File, offset: u64, memory: impl Into<Memory>, policy: Policy) -> Request {
        let offset = Some(offset);
        Request {
            op: Op::Read { offset },
            file: Some(file.clone()),
            memory: memory.into(),
            policy,
            tag: 0,
        }
    }

    /// A write of `memory.len()` bytes at `offset`.
    #[must_use]
    pub fn write(file: &File, offset: u64, memory: impl Into<Memory>, policy: Policy) -> Request {
        let offset = Some(offset);
        Request {
            op: Op::Write { offset },
            file: Some(file.clone()),
            memory: memory.into(),
            policy,
            tag: 0,
        }
    }

    /// Any operation without memory.
    #[must_use]
    pub fn bare(op: Op, file: Option<&File>, policy: Policy) -> Request {
        Request {
            op,
            file: file.cloned(),
            memory: Memory::None,
            policy,
            tag: 0,
        }
    }

    /// A sync that makes completed writes durable as far as `durability` says.
    #[must_use]
    pub fn sync(file: &File, durability: Durability) -> Request {
        Request::bare(Op::Sync, Some(file), Policy::direct().durable(durability))
    }

    /// The same with this tag.
    #[must_use]
    pub fn tagged(mut self, tag: u64) -> Request {
        self.tag = tag;
        self
    }
}

/// Names a request in flight. A stale one is an error, never another's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl RequestId {
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_bits(bits: u64) -> RequestId {
        RequestId {
            slot: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// How long a turn may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until `count` requests have completed, the deadline has passed, or the doorbell rings.
    Until {
        /// How many completions to wait for.
        count: u32,
        /// Unless zero: after this long, one completion is enough.
        min_wait: Duration,
        /// Engine time to give up at.
        deadline: Option<Time>,
    },
}

impl Wait {
    /// Until one request has completed.
    #[must_use]
    pub fn one() -> Wait {
        Wait::for_count(1)
    }

    /// Until `count` requests have completed.
    #[must_use]
    pub fn for_count(count: u32) -> Wait {
        Wait::Until {
            count,
            min_wait: Duration::ZERO,
            deadline: None,
        }
    }
}
