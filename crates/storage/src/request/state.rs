//! Where a request stands, whose it is, and what was asked.
//!
//! ```text
//!   Free ──► InHand ─┬─► InCache ───────────────────────┬─► Done ──► Free
//!              ▲     │     └─ deadline ──► Overdue ──────┘     ▲
//!              │     ├─► AtDevice ────────────────────────────┤
//!              │     │     ├─ deadline ──► Answered ───────────┘  the kernel has let go
//!              │     │     │                 └─ taken ──► Left ──► Free
//!              │     │     └─ abandoned ──────────────────┘
//!              │     ├─► MakingWay ───────────────────────────┐
//!              │     ├─► Held ─────────┬─► Woken ─────────────┤
//!              │     └─► BehindWrites ─┤                      │
//!              └───────────────────────┴──────────────────────┘  begins again; or cancelled, overdue: then Done
//! ```
//!
//! [`Requests::transition`](super::Requests::transition) is the one place where a state changes.

use std::ops::Range;

use baio_engine::{Durability, Memory, RequestId, Time};

use super::{Handle, Mode, SegmentOp, SegmentRequest};
use crate::cache::{self, IoId, IoKind, ObjectId};
use crate::log::{LogIoId, LogIoKind};
use crate::slot_map::SlotKey;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody uses the entry. Left by `insert`.
    Free,
    /// It has just come, or been called up from where it waited. Left within the same call.
    InHand,
    /// The page cache does it, under this id. Left when the cache tells its end.
    InCache(cache::RequestId),
    /// The same, and its deadline is over: its end is that.
    Overdue(cache::RequestId),
    /// A direct request on what is cached: the cache writes out or gives up what it has of the range. Left when it has.
    MakingWay(ObjectId, cache::RequestId),
    /// An operation holds a range that it touches. Left when that is released.
    Held,
    /// It is a fence, and writes that came before it have not ended. Left when they have.
    BehindWrites,
    /// What it waited for is over. It begins again at the next turn at which the engine has a slot.
    Woken,
    /// The engine has it. Left when the engine completes it.
    AtDevice(RequestId),
    /// Answered at its deadline, and the outcome waits to be taken; the kernel still has its memory.
    Answered(RequestId),
    /// Ended, and the outcome waits to be taken.
    Done,
    /// The kernel still has its memory, and nobody waits for anything. Left when the engine releases it.
    Left(RequestId),
}

impl State {
    /// May it go there?
    #[inline(always)]
    pub(super) fn may_become(self, to: State) -> bool {
        use State::{
            Answered, AtDevice, BehindWrites, Done, Free, Held, InCache, InHand, Left, MakingWay, Overdue, Woken,
        };
        match (self, to) {
            (Free, InHand)
            | (InHand, InCache(_) | MakingWay(..) | Held | BehindWrites | Woken | AtDevice(_) | Done | Free)
            | (InCache(_), Overdue(_) | Done)
            | (Overdue(_), Done)
            | (MakingWay(..) | Woken, InHand)
            | (Held | BehindWrites, InHand | Woken)
            | (AtDevice(_), Answered(_) | Done | Left(_) | Free)
            | (Answered(_), Done | Left(_))
            | (Done | Left(_), Free) => true,
            (InCache(_), Left(_)) => crate::seeded_bug("who-was-abandoned-is-on-the-device"),
            _ => false,
        }
    }

    /// Does it wait in the core alone, where neither the engine nor the cache counts it?
    pub(super) fn waits(self) -> bool {
        matches!(self, State::Held | State::Woken)
    }

    /// Does it wait for writes that came before it?
    pub(super) fn follows(self) -> bool {
        matches!(self, State::BehindWrites)
    }

    /// Is it the core that looks at its deadline?
    pub(super) fn is_timed_here(self) -> bool {
        self.waits() || matches!(self, State::BehindWrites | State::InCache(_) | State::MakingWay(..))
    }

    /// May the device be at work on it: also for nobody any more?
    pub(super) fn is_at_device(self) -> bool {
        matches!(self, State::AtDevice(_) | State::Answered(_) | State::Left(_))
    }

    /// Can nothing of it happen any more, neither here nor at the device?
    pub(super) fn is_over(self) -> bool {
        matches!(self, State::Done | State::Free)
    }

    /// Is there an outcome?
    pub(super) fn is_done(self) -> bool {
        matches!(self, State::Answered(_) | State::Done)
    }
}

/// Who is told a request's end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// A caller: its outcome waits in the table to be taken.
    Caller,
    /// The page cache.
    Cache(CacheIo),
    /// A log.
    Log(LogIo),
}

/// One direct request for a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogIo {
    /// Of the core's logs.
    pub(crate) log: SlotKey,
    pub(crate) id: LogIoId,
    pub(crate) kind: LogIoKind,
}

/// One direct request for the page cache: an I/O, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheIo {
    pub(crate) id: IoId,
    pub(crate) object: ObjectId,
    /// What this part does.
    pub(crate) kind: IoKind,
    /// The join that it belongs to, and whether it is the second there.
    pub(crate) join: Option<(SlotKey, bool)>,
    /// It is about the caller's own memory: nothing is copied when it has ended.
    pub(crate) bypasses: bool,
}

/// What was asked, without the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) handle: Handle,
    pub(crate) op: SegmentOp,
    /// Bytes; a read across the end of a segment is cut there.
    pub(crate) len: u64,
    pub(crate) mode: Mode,
    pub(crate) durability: Durability,
    pub(crate) deadline: Option<Time>,
}

impl Asked {
    pub(super) fn of(request: &SegmentRequest) -> Asked {
        Asked {
            handle: request.handle,
            op: request.op,
            len: request.memory.len() as u64,
            mode: request.mode,
            durability: request.durability,
            deadline: request.deadline,
        }
    }

    /// The request as it was asked, with its memory.
    pub(crate) fn with(&self, memory: Memory) -> SegmentRequest {
        SegmentRequest {
            mode: self.mode,
            durability: self.durability,
            deadline: self.deadline,
            ..SegmentRequest::new(self.handle, self.op, memory)
        }
    }

    /// The bytes of the segment that it touches: none for a sync.
    pub(crate) fn range(&self) -> Range<u64> {
        self.op.range(self.len)
    }
}
