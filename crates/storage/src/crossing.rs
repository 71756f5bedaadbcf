//! What passes between the table of a core and its lane: the volume's metadata with the operations on it, and the requests with all that
//! serves them ([`crate::core`]). Neither reaches into the other. They tell each other these things, and no others.
//!
//! The lane obeys at once, and gives what a message says that it gives. What the lane has to tell waits in a queue until the core hands it on.

use std::ops::Range;

use baio_engine::Engine;

use crate::error::Fault;
use crate::holds::{HoldId, Touched};
use crate::identity::Access;
use crate::object::{Moving, Target};
use crate::request::Handle;
use crate::segment::probe::SlotAddress;
use crate::slot_map::SlotKey;

/// How still the device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stillness {
    /// Everybody writes.
    #[default]
    None,
    /// Callers wait.
    Draining,
    /// Everybody waits.
    Frozen,
}

/// What an operation waits for that only the lane can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The end of the requests on the handles of a segment.
    Drained(SlotAddress),
    /// The end of the requests that touch a range which it holds.
    Quiet(HoldId),
}

/// What the table tells a lane, or asks it.
#[derive(Debug)]
pub(crate) enum ToLane {
    /// Holds back new requests in a range of a segment, for an operation.
    Hold { id: HoldId, operation: u32, place: Touched },
    /// Holds another range of the same segment instead.
    MoveHold { id: HoldId, range: Range<u64> },
    /// Those that were held back go on.
    ReleaseHold { id: HoldId },
    /// An operation is to be told by [`ToTable::HasCome`]. Gives 0 where it has come about already, and tells nothing more.
    Await { operation: SlotKey, what: Awaited },
    /// An operation has ended: nothing is held or kept for it any more.
    Ended { operation: SlotKey },
    /// Handles of a segment refuse requests from now on, also those that are held back. Gives how many are under way.
    Drain { at: SlotAddress },
    /// They serve again.
    Serve { at: SlotAddress },
    /// The segment is gone: they never will.
    Gone { at: SlotAddress },
    /// Nothing that is cached of a segment may reach its blocks any more.
    Forget { at: SlotAddress },
    /// A segment has this many bytes now.
    Resized { at: SlotAddress, bytes: u64 },
    /// A segment is being moved, and has come so far.
    Moving { at: SlotAddress, moving: Moving },
    /// It was: it lives elsewhere now.
    Moved { at: SlotAddress, start: u64, bytes: u64 },
    /// Its inode lives elsewhere, it has that owner, and messages call it so.
    Renamed {
        from: SlotAddress,
        to: SlotAddress,
        owner_uid: u32,
        name: String,
    },
    /// Gives a handle on a segment, for this user.
    Open {
        name: String,
        access: Access,
        target: Target,
        uid: u32,
    },
    /// Nobody wants a handle.
    Close { handle: Handle },
    /// The cache lets go of the bytes of a segment from `from` on, and keeps out until the operation ends; [`ToTable::Uncached`] tells when
    /// they are gone. Gives 0 where there is no cache, and tells nothing.
    Cut {
        operation: SlotKey,
        tag: u64,
        name: String,
        target: Target,
        from: u64,
    },
    /// The cache writes back what was changed of segments. Gives how many ends [`ToTable::Uncached`] will tell of.
    WriteBack { tag: u64 },
    /// Those ends were told: none is called off any more.
    WrittenBack,
    /// How still the device is to be.
    BeStill(Stillness),
    /// Nobody wants it still any more: who waited goes on.
    Thawed,
    /// Gives 1 if it is as still as that, as far as the lane knows.
    IsStill(Stillness),
    /// Gives how many cached writes callers have under way.
    CachedWrites,
    /// Gives 1 if a log is open in a segment.
    HasLog { at: SlotAddress },
    /// The volume ends here now.
    Grown { end: u64 },
}

/// What a message gives at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Nothing,
    Count(usize),
    Handle(Handle),
}

impl Given {
    pub(crate) fn count(self) -> usize {
        match self {
            Given::Count(count) => count,
            Given::Nothing | Given::Handle(_) => 0,
        }
    }
}

/// What a lane tells the table.
#[derive(Debug)]
pub(crate) enum ToTable {
    /// What an operation waits for ([`ToLane::Await`]).
    HasCome { operation: SlotKey },
    /// The cache has made safe and let go of what an operation asked it to, or cannot; by the tag of the operation.
    Uncached { tag: u64, ended: Result<(), Fault> },
    /// The device has become too small for the volume, or gives less than was asked for.
    Shrunk,
    /// Whoever kept the volume frozen under this number does so no more.
    Thaw { freeze: u64 },
}

/// A lane, as operations reach it.
pub(crate) trait LaneDoor {
    fn obey(&mut self, message: ToLane) -> Given;

    /// The engine by which operations read and write: while there is one lane, its own.
    fn engine(&self) -> &Engine;

    fn engine_mut(&mut self) -> &mut Engine;
}
