//! What passes between the table of a core and its lane: the volume's metadata with the operations on it, and the requests with all that
//! serves them ([`crate::core`]). Neither reaches into the other. They tell each other these things, and no others.
//!
//! What the lane has to tell waits in a queue until the core hands it on. What it is told it obeys at once, as long as it is in one thread
//! with the table; nobody looks at what came of that. What somebody looks at is a question of [`LaneDoor`]: with a thread between, each is
//! a wait.

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
    /// The end of all requests that change the device, as far as it is to be so still.
    Still(Stillness),
}

/// What the table tells a lane.
#[derive(Debug)]
pub(crate) enum ToLane {
    /// Holds back new requests in a range of a segment, for an operation.
    Hold { id: HoldId, operation: u32, place: Touched },
    /// Holds another range of the same segment instead.
    MoveHold { id: HoldId, range: Range<u64> },
    /// Those that were held back go on.
    ReleaseHold { id: HoldId },
    /// An operation has ended: nothing is held or kept for it any more.
    Ended { operation: SlotKey },
    /// Handles of a segment serve again.
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
    /// Nobody wants a handle.
    Close { handle: Handle },
    /// The ends of what was written back were told: none is called off any more.
    WrittenBack,
    /// How still the device is to be.
    BeStill(Stillness),
    /// Nobody wants it still any more: who waited goes on.
    Thawed,
    /// The volume ends here now.
    Grown { end: u64 },
    /// May the log be there that has claimed its segment ([`ToTable::LogClaims`])?
    LogMay {
        handle: Handle,
        may: std::result::Result<(), Fault>,
    },
}

/// A handle that is wanted, for this user.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) name: String,
    pub(crate) access: Access,
    pub(crate) target: Target,
    pub(crate) uid: u32,
}

/// What the cache is to let go of: the bytes of a segment from `from` on, until the operation ends.
#[derive(Debug)]
pub(crate) struct CutOff {
    pub(crate) operation: SlotKey,
    pub(crate) tag: u64,
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) from: u64,
}

/// What a lane tells the table.
#[derive(Debug)]
pub(crate) enum ToTable {
    /// What an operation waits for.
    HasCome { operation: SlotKey },
    /// The cache has made safe and let go of what an operation asked it to, or cannot; by the tag of the operation.
    Uncached { tag: u64, ended: Result<(), Fault> },
    /// The device has become too small for the volume, or gives less than was asked for.
    Shrunk,
    /// Whoever kept the volume frozen under this number does so no more.
    Thaw { freeze: u64 },
    /// A log has claimed a segment, by this handle of its own, and begins when [`ToLane::LogMay`] has come. Whoever wants the segment gone or
    /// shorter claims it as well before he asks for logs: so one of the two sees the other.
    LogClaims { handle: Handle, at: SlotAddress },
}

/// A lane, as the table and operations reach it.
pub(crate) trait LaneDoor {
    fn obey(&mut self, message: ToLane);

    /// A handle on a segment.
    fn open(&mut self, opening: Opening) -> Handle;

    /// Will an operation be told by [`ToTable::HasCome`] when this comes about? Not where it has already.
    fn will_tell(&mut self, operation: SlotKey, what: Awaited) -> bool;

    /// Handles of a segment refuse requests from now on, also those that are held back. How many are under way?
    fn drain(&mut self, at: SlotAddress) -> usize;

    /// Is there a cache to let go of this? Then [`ToTable::Uncached`] tells when it is gone.
    fn cut(&mut self, what: CutOff) -> bool;

    /// The cache writes back what was changed of segments. How many ends will [`ToTable::Uncached`] tell of?
    fn write_back(&mut self, tag: u64) -> usize;

    /// How many cached writes do callers have under way?
    fn cached_writes(&self) -> usize;

    /// Is a log open in a segment?
    fn has_log(&self, at: SlotAddress) -> bool;

    /// The engine by which operations read and write: while there is one lane, its own.
    fn engine(&self) -> &Engine;

    fn engine_mut(&mut self) -> &mut Engine;
}
