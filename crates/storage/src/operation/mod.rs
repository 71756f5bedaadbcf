//! Operations on the volume's metadata, each an `async fn` that reads from top to bottom.
//!
//! An operation never keeps its thread: it waits by `await` ([`waits`]), and the core polls it when what it waits for has come: a completion
//! of the engine, the table token, or the end of the requests on a segment. It reaches the core by [`waits::with`].
//!
//! The token lets one operation at a time read and change the inode table. It is held for look-ups and record writes, not
//! while blocks are zeroed or copied. So at most one update of a bucket is in flight, and no probe passes over a slot that
//! another operation is about to take.
//!
//! What changes one segment in more than one turn with the token *claims* it first ([`claims`]): a delete that waits for
//! requests, a resize that zeroes, a move. Whoever else wants to change that segment waits until the claim ends.
//!
//! | file | what it does |
//! |---|---|
//! | `waits.rs` | how operations wait, and reach the core |
//! | `lookup.rs`, `update.rs`, `vacate.rs` | find a name; write its record; give its slot up |
//! | `fill.rs` | zero blocks before they are exposed |
//! | `mover.rs` | copy a segment to another run while it serves |
//! | `walk.rs` | read the table from end to end |
//! | `claims.rs` | who changes which segment |
//! | `repeat.rs` | which operation was done before |
//! | `create.rs`, `open.rs`, `delete.rs`, `moving.rs`, `rename.rs`, `resize.rs`, `quota.rs`, `list.rs`, `defrag.rs`, `freeze.rs`, `check.rs` | the operations |

use std::future::Future;
use std::sync::Arc;

use std::ops::Range;

use baio_engine::{Buffer, Completion, Durability, Memory, Op, Request};
pub use baio_words::Answer;

use self::check::Told;
use self::claims::Claims;
use self::defrag::DefragProgress;
use self::freeze::Freeze;
use self::waits::Story;
use crate::crossing::{Awaited, CutOff, LaneDoor, ToLane};
use crate::error::{Error, Fault, Result};
use crate::holds::{HoldId, Touched};
use crate::identity::{Identity, Sight};
use crate::object::Target;
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;
use crate::slot_map::SlotKey;
use crate::volume::Volume;
use crate::volume::check::CheckProgress;
use crate::volume::inspect::segment_info;

pub(crate) mod check;
pub(crate) mod claims;
pub(crate) mod create;
pub(crate) mod defrag;
pub(crate) mod delete;
pub(crate) mod fill;
pub(crate) mod freeze;
pub(crate) mod list;
pub(crate) mod lookup;
pub(crate) mod mover;
pub(crate) mod moving;
pub(crate) mod open;
pub(crate) mod quota;
pub(crate) mod rename;
pub(crate) mod repeat;
pub(crate) mod resize;
pub(crate) mod update;
pub(crate) mod vacate;
pub(crate) mod waits;
pub(crate) mod walk;

/// Which of an operation's requests: those of two parts may be under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Look-ups, records, and whatever an operation does one at a time.
    Main,
    /// Zeroes ([`fill`]).
    Zeroes,
    /// What was just written, read again ([`update`]).
    ReadBack,
    /// Stretches of the table ([`walk`]): one is read while the other is looked at.
    OneStretch,
    OtherStretch,
}

impl Part {
    const ALL: [Part; 5] = [
        Part::Main,
        Part::Zeroes,
        Part::ReadBack,
        Part::OneStretch,
        Part::OtherStretch,
    ];
    /// Where the part stands in a tag: above the number of the operation.
    const SHIFT: u32 = 32;

    /// The part that a completion ends.
    pub(crate) fn of(completion: &Completion) -> Part {
        let number = (completion.tag >> Part::SHIFT) & 0xff;
        let is_it = |part: &Part| *part as u64 == number;
        Part::ALL.into_iter().find(is_it).unwrap_or(Part::Main)
    }
}

/// What has happened.
pub(crate) enum Event {
    /// The operation begins.
    Begin,
    /// It has the token now.
    Token,
    /// One of its requests has ended.
    Completed(Completion),
    /// The requests on the segment that it wants to change, or in the range that it holds, have ended.
    Drained,
    /// The page cache has made safe and let go of what the operation is about to cut off, or cannot.
    Uncached(std::result::Result<(), Fault>),
    /// The core is turned again.
    Turn,
    /// The device is at work on nothing that changes it.
    Still,
    /// Its thread has ended.
    Thread,
    /// The operation that it has begun has ended.
    Answered(Result<Answer>),
    /// It was called off while it waited for others. Its wait fails, and it ends by its own way of failing, which undoes what it has done.
    CalledOff,
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Begin => "its beginning",
            Event::Token => "the table token",
            Event::Completed(_) => "the end of a request",
            Event::Drained => "the end of others' requests",
            Event::Uncached(_) => "word from the page cache",
            Event::Turn => "the next turn",
            Event::Still => "a device that is still",
            Event::Thread => "the end of a thread",
            Event::Answered(_) => "the end of another operation",
            Event::CalledOff => "that it is called off",
        }
    }
}

/// What the operation waits for now.
pub(crate) enum Step {
    /// Its requests.
    Requests,
    /// The token.
    Token,
    /// The end of somebody's claim, then the token.
    Unclaimed,
    /// What the lane sees; where that has come about already it goes on at once.
    Lane(Awaited),
    /// That the page cache lets go of a range ([`Context::cut`]).
    Uncached,
    /// The next turn: it has done as much in this one as it may.
    Turn,
    /// The end of all that changes the device.
    Still,
    /// The end of a thread of its own, which rings the doorbell then.
    Thread,
    /// The end of this operation, which is begun for it.
    Begin(Box<Operation>),
    /// Nothing: it has ended.
    Done(Result<Answer>),
}

/// How far an operation is, while it does what takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Bytes zeroed or copied; of a list, bytes of the inode table that were looked at.
    Bytes {
        /// Bytes that are done.
        done: u64,
        /// Bytes in all.
        of: u64,
    },
    /// Of a defragmentation.
    Defrag(DefragProgress),
    /// Of a check.
    Check(CheckProgress),
}

/// What whoever asked is told of an operation that was called off.
pub(crate) const CALLED_OFF: Fault = Fault::Io(baio_engine::Error::Cancelled);

/// What an operation wants the table token for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// To change the table.
    Alone,
    /// To read it from end to end.
    Walking,
    /// To find one name in it.
    Looking,
}

/// What a step may use.
pub(crate) struct Context<'a> {
    pub(crate) volume: &'a mut Volume,
    /// The requests, and all that serves them.
    pub(crate) lane: &'a mut dyn LaneDoor,
    /// Which operation it is.
    pub(crate) key: SlotKey,
    /// Its place, by which others name it.
    pub(crate) index: u32,
    /// How many holds there were so far.
    pub(crate) holds_made: &'a mut u64,
    /// The tag of this operation's requests.
    pub(crate) tag: u64,
    /// Does this operation have the token? A step that is done with it clears it.
    pub(crate) has_token: &'a mut bool,
    /// Who changes which segment.
    pub(crate) claims: &'a mut Claims,
    /// Segments whose moves were stopped for an operation that has failed: they go on.
    pub(crate) goes_on: &'a mut Vec<SlotAddress>,
    /// Nobody waits for the answer any more.
    pub(crate) is_abandoned: bool,
    /// It is to end early.
    pub(crate) is_called_off: bool,
    /// Who keeps the device still.
    pub(crate) freeze: &'a mut Freeze,
    /// Requests of the operation that have not ended.
    pub(crate) under_way: &'a mut u32,
    /// What the operation is about.
    pub(crate) subject: &'a mut Subject,
    /// What others see of it.
    pub(crate) shown: &'a mut Shown,
    /// What has happened, until it is taken.
    pub(crate) event: &'a mut Option<Event>,
    /// What it waits for now.
    pub(crate) waits_for: &'a mut Option<Step>,
}

impl Context<'_> {
    pub(crate) fn release_token(&mut self) {
        *self.has_token = false;
    }

    /// Refuses a segment of which not all is as it should be: it can be deleted, and nothing else.
    pub(crate) fn must_be_whole(&self, at: SlotAddress, inode: &Inode) -> std::result::Result<(), Fault> {
        if inode.state == InodeState::Quarantined || self.volume.quarantined.contains(&at) {
            return Err(quarantined());
        }
        if inode.state == InodeState::Moving {
            return Err(Fault::Moving);
        }
        Ok(())
    }

    /// The answer that is a segment as it is now.
    pub(crate) fn segment(&self, inode: &Inode) -> std::result::Result<Answer, Fault> {
        let name = inode.name.as_ref().ok_or(Fault::NotFound)?;
        let info = segment_info(inode, name, self.volume.block_size(), false);
        Ok(Answer::Segment { info })
    }

    /// Refuses whoever sees only its own of the volume.
    pub(crate) fn must_see_all(&self) -> std::result::Result<(), Fault> {
        let who = self.subject.who;
        match self.volume.device.sight(who) {
            Sight::Whole => Ok(()),
            Sight::Own => Err(Fault::Access { uid: who.uid }),
        }
    }

    /// No free run has so many blocks. How long the longest is takes a walk: only for those to whom it is shown, as anybody may ask.
    pub(crate) fn no_space(&self, blocks: u64) -> Fault {
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(self.volume.block_size()));
        let free = &self.volume.free;
        let is_shown = self.volume.device.sight(self.subject.who) == Sight::Whole;
        Fault::NoSpace {
            asked: bytes(blocks),
            free: Some(bytes(free.free_blocks())),
            largest: is_shown.then(|| bytes(free.largest_free_run().1)),
        }
    }

    /// The table has no slot for another name.
    pub(crate) fn table_full(&self) -> Fault {
        let segments_max = Some(self.volume.superblock.geometry().segments_max);
        Fault::TableFull { segments_max }
    }

    /// Holds back new requests in a range of a segment, in bytes of the segment, until the hold is released or the operation
    /// ends. Those in flight there end: [`Awaited::Quiet`] waits for that.
    pub(crate) fn hold(&mut self, address: SlotAddress, range: Range<u64>) -> HoldId {
        *self.holds_made += 1;
        let id = HoldId::new(*self.holds_made);
        let (operation, place) = (self.index, Touched { address, range });
        self.lane.obey(ToLane::Hold { id, operation, place });
        id
    }

    /// Holds another range of the same segment instead.
    pub(crate) fn move_hold(&mut self, hold: HoldId, range: Range<u64>) {
        self.lane.obey(ToLane::MoveHold { id: hold, range });
    }

    /// Lets those that were held back go on, as the segment is now.
    pub(crate) fn release_hold(&mut self, hold: HoldId) {
        self.lane.obey(ToLane::ReleaseHold { id: hold });
    }

    /// Refuses new requests on a segment, and those that are held back; says how many are under way.
    pub(crate) fn drain(&mut self, address: SlotAddress) -> usize {
        self.lane.drain(address)
    }

    /// Nothing that the page cache has of a segment may reach its blocks any more.
    pub(crate) fn forget_cached(&mut self, address: SlotAddress) {
        if !crate::seeded_bug("deleted-pages-stay") {
            self.lane.obey(ToLane::Forget { at: address });
        }
    }

    /// Handles learn that the segment has this many bytes now, and so does the page cache.
    pub(crate) fn show_size(&mut self, address: SlotAddress, bytes: u64) {
        self.lane.obey(ToLane::Resized { at: address, bytes });
    }

    /// Asks the page cache to let go of the bytes of a segment from `from` on, and to keep out until the operation ends; false
    /// when there is none. Else [`Event::Uncached`] will tell.
    pub(crate) fn cut(&mut self, name: &str, target: Target, from: u64) -> bool {
        if crate::seeded_bug("shrink-leaves-the-cache-alone") {
            return false;
        }
        self.lane.cut(CutOff {
            operation: self.key,
            tag: self.tag,
            name: name.to_owned(),
            target,
            from,
        })
    }

    /// Is a log open in a segment?
    pub(crate) fn has_log(&self, address: SlotAddress) -> bool {
        self.lane.has_log(address)
    }

    /// Reads into memory that was taken before. What cannot be begun gives it back.
    pub(crate) fn read_into(
        &mut self,
        part: Part,
        offset: u64,
        buffer: Buffer,
    ) -> std::result::Result<(), (Fault, Option<Buffer>)> {
        let policy = self.volume.device.policy(Durability::None);
        let request = Request::read(&self.volume.device.file, offset, buffer, policy);
        let request = request.tagged(self.tag | (part as u64) << Part::SHIFT);
        match self.lane.engine_mut().submit_reserved(request) {
            Ok(_) => {
                *self.under_way += 1;
                Ok(())
            }
            Err(back) => Err((Fault::Io(baio_engine::Error::Full), back.memory.into_buffer())),
        }
    }

    pub(crate) fn buffer(&self, len: usize) -> std::result::Result<Buffer, Fault> {
        self.lane
            .engine()
            .buffer(len)
            .ok_or(Fault::NoMemory { asked: len as u64 })
    }

    pub(crate) fn write(
        &mut self,
        offset: u64,
        memory: Memory,
        durability: Durability,
    ) -> std::result::Result<(), Fault> {
        let policy = self.volume.device.policy(durability);
        let request = Request::write(&self.volume.device.file, offset, memory, policy);
        self.submit_as(Part::Main, request, true)
    }

    pub(crate) fn sync_as(&mut self, part: Part) -> std::result::Result<(), Fault> {
        let policy = self.volume.device.policy(Durability::Data);
        let request = Request::bare(Op::Sync, Some(&self.volume.device.file), policy);
        self.submit_as(part, request, true)
    }

    /// Submits a request of a part; into a reserved slot only if it must not wait for the requests of others.
    pub(crate) fn submit_as(&mut self, part: Part, request: Request, reserved: bool) -> std::result::Result<(), Fault> {
        let request = request.tagged(self.tag | (part as u64) << Part::SHIFT);
        let submitted = if reserved {
            self.lane.engine_mut().submit_reserved(request)
        } else {
            self.lane.engine_mut().submit(request)
        };
        submitted.map_err(|_| Fault::Io(baio_engine::Error::Full))?;
        *self.under_way += 1;
        Ok(())
    }
}

/// The blocks of a segment belong to another one.
pub(crate) fn quarantined() -> Fault {
    let why = "its blocks belong to a segment allocated later; it is quarantined, and readable by `check` only";
    Fault::Corrupt(why.into())
}

/// Why an operation fails.
pub(crate) enum Failed {
    /// What is wrong with its subject.
    Fault(Fault),
    /// What else was wrong, which says itself of what: a part of the table.
    Elsewhere(Error),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Failed {
        Failed::Fault(fault)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Elsewhere(error)
    }
}

/// What sort of operation it is, for those who keep some back or ask some to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It changes the table.
    Changes,
    /// It moves segments, or moves its own now: it may take long, and has a mark to write before it ends.
    Moves,
    /// It changes nothing, so it may go on while the volume is frozen.
    Reads,
    /// The same, on a thread of its own.
    Checks,
    /// It brings a freeze about.
    Freezes,
}

impl Kind {
    /// Does it change nothing, so that it may go on while the volume is frozen?
    pub(crate) fn only_reads(self) -> bool {
        matches!(self, Kind::Reads | Kind::Checks | Kind::Freezes)
    }

    /// Is it told at a turn to look whether anybody wants it? Others wait for its end.
    pub(crate) fn is_turned(self) -> bool {
        matches!(self, Kind::Checks | Kind::Freezes)
    }
}

/// What others see of an operation, which it keeps true.
pub(crate) struct Shown {
    pub(crate) kind: Kind,
    /// What it wants the token for. Only what changes nothing, and waits for nothing while it has the token, shares it.
    pub(crate) taking: Taking,
    /// How far it is, while it does what takes long.
    progress: Option<Progress>,
    /// What its thread tells.
    check: Option<Arc<Told>>,
}

impl Shown {
    /// How far it is.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let check = self.check.as_ref().map(|told| Progress::Check(told.progress()));
        check.or(self.progress)
    }

    /// Has the thread ended that it waits for?
    pub(crate) fn thread_is_over(&self) -> bool {
        self.check.as_ref().is_some_and(|told| told.is_over())
    }
}

/// One operation under way.
pub(crate) struct Operation {
    pub(crate) subject: Subject,
    pub(crate) shown: Shown,
    pub(crate) story: Story,
}

impl Operation {
    pub(crate) fn new(
        subject: Subject,
        kind: Kind,
        taking: Taking,
        story: impl Future<Output = std::result::Result<Answer, Failed>> + Send + 'static,
    ) -> Operation {
        Operation {
            subject,
            shown: Shown {
                kind,
                taking,
                progress: None,
                check: None,
            },
            story: Box::pin(story),
        }
    }

    /// One that changes the table.
    pub(crate) fn changing(
        subject: Subject,
        story: impl Future<Output = std::result::Result<Answer, Failed>> + Send + 'static,
    ) -> Operation {
        Operation::new(subject, Kind::Changes, Taking::Alone, story)
    }
}

/// Whose segment, by which name, and who asks.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) operation: &'static str,
    pub(crate) key: crate::segment::name::Key,
    pub(crate) who: Identity,
    /// `PATH#UID/NAME`, for messages.
    pub(crate) object: String,
}

impl Subject {
    pub(crate) fn error(&self, fault: impl Into<Fault>) -> Error {
        Error::new(self.operation, &self.object, fault)
    }

    /// The same segment by the name that it has now.
    pub(crate) fn rename(&mut self, name: crate::segment::name::SegmentName) {
        let old = self.key.name.as_ref().map_or(0, |old| old.as_str().len());
        self.object.truncate(self.object.len().saturating_sub(old));
        self.object.push_str(name.as_str());
        self.key.name = Some(name);
    }

    /// May it change what this is about, and can anything be changed at all?
    pub(crate) fn may_change(&self, volume: &Volume) -> std::result::Result<(), Fault> {
        if !self.who.acts_for(self.key.owner_uid) {
            return Err(Fault::Access { uid: self.who.uid });
        }
        volume.may_change()
    }
}
