//! Making a segment: zero its blocks, flush, one record. Nothing is visible before the record is durable, and nothing that
//! others left in the blocks is visible after it.
//!
//! The look-up that finds the name free, and a slot for it, is under way beside the zeroing. The slot is kept with the
//! bucket as it was read, and still holds when no table update has begun meanwhile; else the name is looked up again. So a
//! lone create waits for: look-up and zeroes together, the flush, the table, mirror and read-back together.

use baio_engine::Completion;

use crate::error::Fault;
use crate::identity::Sight;
use crate::operation::fill::{Fill, Filled, Zeroing};
use crate::operation::lookup::{Looked, Lookup, SlotCopy};
use crate::operation::repeat::{OperationName, Traced, unknown};
use crate::operation::update::{Update, Updated};
use crate::operation::{Answer, Context, Event, Part, Step, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::volume::Volume;
use crate::volume::accounts::{EVERYBODY_ELSE, Usage, kept_back};
use crate::volume::inspect::SegmentInfo;

/// No group at all: the id that system calls take for none. Such is the group of a segment that uid 0 made for somebody else
/// without naming one.
pub const NO_GROUP: u32 = u32::MAX;

/// What the segment is to be like.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Size in bytes; rounded up to whole blocks.
    pub size_bytes: u64,
    /// Bytes up to which it can later grow in place; 0 for no more than its size.
    pub reserve_bytes: u64,
    /// How its blocks become zero.
    pub zero: Zeroing,
    /// Permission bits.
    pub mode: u32,
    /// The owner's group; `None` takes the caller's, and for a segment of another owner none, so that the group's bits of the
    /// mode are nobody's. A group that the caller is not in only uid 0 may name.
    pub group: Option<u32>,
}

impl CreateOptions {
    /// A private segment of this size.
    #[must_use]
    pub fn of_size(size_bytes: u64) -> CreateOptions {
        CreateOptions {
            size_bytes,
            reserve_bytes: 0,
            zero: Zeroing::Written,
            mode: 0o600,
            group: None,
        }
    }
}

/// A run of blocks taken from the free set, in blocks.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    /// Asked for, in whole blocks.
    blocks: u64,
    /// Taken: what may be grown into as well.
    reserve: u64,
}

/// Where the look-up stands.
enum Look {
    Reading(Lookup),
    Found(SlotCopy),
    /// There is nothing to look for any more.
    Ended,
}

/// Where the operation stands.
enum Phase {
    /// Waiting for the token.
    Begin,
    /// Looking whether it was done before.
    Recalling(Lookup),
    /// Looking whether the name is free, and filling the blocks with zeroes.
    Preparing(Look, Fill),
    /// Looking whether the name is free, only to say the right thing: no run could be had.
    Refusing(Lookup),
    /// All is zero; waiting for the token.
    Zeroed(SlotCopy),
    /// Looking again: something was changed in the table meanwhile.
    Placing(Lookup),
    /// Writing the record.
    Recording(Box<Inode>, Update),
}

/// A create under way.
pub(crate) struct Create {
    pub(super) subject: Subject,
    options: CreateOptions,
    operation: OperationName,
    phase: Phase,
    /// Charged and taken; given back by whatever fails before its record may be on the device.
    run: Option<Run>,
    /// Why it will fail, once nothing is under way any more.
    failed: Option<Fault>,
}

impl Create {
    pub(crate) fn new(subject: Subject, options: CreateOptions, operation: OperationName) -> Create {
        Create {
            subject,
            options,
            operation,
            phase: Phase::Begin,
            run: None,
            failed: None,
        }
    }

    pub(super) fn progress(&self) -> Option<(u64, u64)> {
        match &self.phase {
            Phase::Preparing(_, fill) => Some(fill.progress()),
            _ => None,
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let stepped = self.go_on(cx, event);
        if stepped.is_err() {
            self.give_back(cx);
        }
        stepped
    }

    fn go_on(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let phase = std::mem::replace(&mut self.phase, Phase::Begin);
        match (phase, event) {
            (Phase::Begin, Event::Begin) => self.begin(cx),
            (Phase::Begin, Event::Token) if self.operation.is_repeat => {
                self.phase = Phase::Recalling(Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Begin, Event::Token) => self.prepare(cx),
            (Phase::Recalling(lookup), Event::Completed(completion)) => self.recalled(cx, lookup, completion),
            (Phase::Preparing(look, fill), Event::Completed(completion)) => self.prepared(cx, look, fill, completion),
            (Phase::Refusing(lookup), Event::Completed(completion)) => self.refused(cx, lookup, completion),
            (Phase::Zeroed(place), Event::Token)
                if place.holds(cx) || crate::seeded_bug("two-updates-from-one-image") =>
            {
                self.record(cx, place)
            }
            (Phase::Zeroed(_), Event::Token) => {
                self.phase = Phase::Placing(Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Placing(lookup), Event::Completed(completion)) => self.placed(cx, lookup, completion),
            (Phase::Recording(inode, update), Event::Completed(completion)) => {
                self.recorded(cx, inode, update, completion)
            }
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn begin(&self, cx: &Context<'_>) -> Result<Step, Fault> {
        self.subject.may_change(cx.volume)?;
        if self.options.size_bytes == 0 {
            return Err(Fault::BadSize("a segment has at least one byte".into()));
        }
        if self.subject.key.owner_uid == EVERYBODY_ELSE {
            return Err(Fault::Access {
                uid: self.subject.who.uid,
            });
        }
        if let Some(gid) = self.options.group.filter(|gid| !self.subject.who.may_give_to(*gid)) {
            return Err(Fault::Group { gid });
        }
        Ok(Step::Token)
    }

    fn recalled(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        let own = OperationName::again(self.operation.id);
        match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Recalling(lookup);
                Ok(Step::Requests)
            }
            Looked::Found { inode, .. } if own.has_written(&inode) => {
                cx.release_token();
                let name = inode.name.clone().ok_or(Fault::NotFound)?;
                let info = SegmentInfo::of(&inode, &name, cx.volume.block_size(), false);
                Ok(Step::Done(Ok(Answer::Segment(info))))
            }
            Looked::Found { .. } | Looked::Absent(_) => Err(unknown()),
        }
    }

    fn prepare(&mut self, cx: &mut Context<'_>) -> Result<Step, Fault> {
        let lookup = Lookup::begin(cx, self.subject.key.clone())?;
        let begun = self.allocate(cx).and_then(|run| {
            self.run = Some(run);
            let mut fill = Fill::new(cx, run.start, run.blocks, self.options.zero)?;
            // What there is no room for beside the look-up begins when that has ended.
            fill.go_on(cx, true).map(|_| fill)
        });
        self.phase = match begun {
            Ok(fill) => Phase::Preparing(Look::Reading(lookup), fill),
            Err(fault) => {
                self.failed = Some(fault);
                Phase::Refusing(lookup)
            }
        };
        Ok(Step::Requests)
    }

    fn allocate(&self, cx: &mut Context<'_>) -> Result<Run, Fault> {
        let segments_max = cx.volume.superblock.geometry().segments_max;
        let kept_back = match cx.volume.device.sight(self.subject.who) {
            Sight::Whole => 0,
            Sight::Own => kept_back(segments_max),
        };
        if cx.volume.accounts.segments() >= segments_max.saturating_sub(kept_back) {
            return Err(Fault::TableFull {
                segments_max: Some(segments_max),
            });
        }
        let block_size = cx.volume.block_size();
        let blocks = self.options.size_bytes.div_ceil(u64::from(block_size));
        let reserve = self.options.reserve_bytes.div_ceil(u64::from(block_size)).max(blocks);
        let owner = self.subject.key.owner_uid;
        let more = Usage {
            blocks: reserve,
            segments: 1,
        };
        let Volume { free, accounts, .. } = &mut *cx.volume;
        accounts
            .charge(owner, more)
            .map_err(|over| Fault::over_quota(over, block_size))?;
        match free.allocate(reserve) {
            Ok(start) => Ok(Run { start, blocks, reserve }),
            Err(space) => {
                accounts.give_back(owner, more);
                Err(Fault::no_space(&space, block_size))
            }
        }
    }

    fn give_back(&mut self, cx: &mut Context<'_>) {
        let Some(run) = self.run.take() else {
            return;
        };
        let less = Usage {
            blocks: run.reserve,
            segments: 1,
        };
        if !crate::seeded_bug("what-is-refused-is-charged") {
            cx.volume.accounts.give_back(self.subject.key.owner_uid, less);
        }
        // It was allocated by this operation, so it can be released.
        let _ = cx.volume.free.release(run.start, run.reserve);
    }

    /// One of the requests of look-up and zeroing has ended.
    fn prepared(
        &mut self,
        cx: &mut Context<'_>,
        mut look: Look,
        mut fill: Fill,
        completion: Completion,
    ) -> Result<Step, Fault> {
        let filled = match (Part::of(&completion), look) {
            (Part::Zeroes, same) => {
                look = same;
                fill.completed(cx, completion, matches!(look, Look::Reading(_)))
            }
            (_, Look::Reading(lookup)) => {
                look = self.looked(cx, lookup, completion);
                if self.failed.is_some() {
                    fill.stop();
                }
                fill.go_on(cx, matches!(look, Look::Reading(_)))
            }
            (_, same) => {
                look = same;
                Ok(fill.outcome())
            }
        };
        let filled = filled.unwrap_or_else(|fault| {
            self.failed = self.failed.take().or(Some(fault));
            fill.stop();
            Filled::Ended
        });
        if filled == Filled::UnderWay || matches!(look, Look::Reading(_)) {
            self.phase = Phase::Preparing(look, fill);
            return Ok(Step::Requests);
        }
        match (self.failed.take(), look) {
            (Some(fault), _) => Err(fault),
            (None, Look::Found(place)) => {
                self.phase = Phase::Zeroed(place);
                Ok(Step::Token)
            }
            // Neither can be: what ended without a place has failed.
            (None, Look::Reading(_) | Look::Ended) => Err(Fault::NotFound),
        }
    }

    /// What the look-up says now; the token is given back when it says all.
    fn looked(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Look {
        let looked = lookup.completed(cx, completion);
        if let Ok(Looked::Reading) = looked {
            return Look::Reading(lookup);
        }
        match looked.and_then(|looked| self.free_place(cx, looked)) {
            Ok(place) => {
                cx.release_token();
                Look::Found(place)
            }
            Err(fault) => {
                cx.release_token();
                // That it exists says more than why it could not be made.
                let exists = matches!(fault, Fault::Exists);
                if exists || self.failed.is_none() {
                    self.failed = Some(fault);
                }
                Look::Ended
            }
        }
    }

    fn free_place(&self, cx: &Context<'_>, looked: Looked) -> Result<SlotCopy, Fault> {
        match looked {
            Looked::Absent(Some(place)) => Ok(place),
            Looked::Absent(None) => {
                let segments_max = Some(cx.volume.superblock.geometry().segments_max);
                Err(Fault::TableFull { segments_max })
            }
            Looked::Found { .. } | Looked::Reading => Err(Fault::Exists),
        }
    }

    fn refused(&mut self, cx: &mut Context<'_>, lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        match self.looked(cx, lookup, completion) {
            Look::Reading(lookup) => {
                self.phase = Phase::Refusing(lookup);
                Ok(Step::Requests)
            }
            Look::Found(_) | Look::Ended => Err(self.failed.take().unwrap_or(Fault::Exists)),
        }
    }

    fn placed(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Placing(lookup);
                Ok(Step::Requests)
            }
            looked => {
                let place = self.free_place(cx, looked)?;
                self.record(cx, place)
            }
        }
    }

    fn record(&mut self, cx: &mut Context<'_>, place: SlotCopy) -> Result<Step, Fault> {
        let inode = self.inode(cx, &place)?;
        let update = Update::begin(cx, place.bucket, place.at, &inode)?;
        self.phase = Phase::Recording(Box::new(inode), update);
        Ok(Step::Requests)
    }

    /// The caller's group is nobody's business in a segment that it makes for another: without a named one it has none.
    fn owner_gid(&self) -> u32 {
        let who = self.subject.who;
        let own = if who.uid == self.subject.key.owner_uid {
            who.gid
        } else {
            NO_GROUP
        };
        self.options.group.unwrap_or(own)
    }

    fn inode(&self, cx: &mut Context<'_>, place: &SlotCopy) -> Result<Inode, Fault> {
        // It is there: whatever gets here has taken one.
        let run = self.run.ok_or(Fault::NotFound)?;
        let mut uuid = [0; 16];
        cx.engine.random(&mut uuid)?;
        Ok(Inode {
            state: InodeState::Live,
            name: self.subject.key.name.clone(),
            owner_uid: self.subject.key.owner_uid,
            owner_gid: self.owner_gid(),
            mode: self.options.mode & 0o777,
            generation: place.next_generation(cx)?,
            uuid,
            start_block: run.start,
            blocks: run.blocks,
            reserve_blocks: run.reserve,
            zeroed_to: run.blocks,
            alloc_seq: cx.volume.next_alloc_seq(),
            created_ns: cx.wall_clock_ns(),
            operation_id: self.operation.id,
            ..Inode::default()
        })
    }

    /// A record whose write failed may or may not be on the device: the volume is latched and the run stays taken. Where it
    /// is not latched, nothing was written, and the run is given back.
    fn recorded(
        &mut self,
        cx: &mut Context<'_>,
        inode: Box<Inode>,
        mut update: Update,
        completion: Completion,
    ) -> Result<Step, Fault> {
        let updated = update.completed(cx, completion);
        if cx.volume.is_latched() || matches!(updated, Ok(Updated::Done)) {
            self.run = None; // It is, or may be, the segment's on the device: nothing gives it back.
        }
        match updated? {
            Updated::Writing => {
                self.phase = Phase::Recording(inode, update);
                Ok(Step::Requests)
            }
            Updated::Done => {
                cx.release_token();
                let name = inode.name.clone().ok_or(Fault::NotFound)?;
                let info = SegmentInfo::of(&inode, &name, cx.volume.block_size(), false);
                Ok(Step::Done(Ok(Answer::Segment(info))))
            }
        }
    }
}
