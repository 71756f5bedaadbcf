//! Another size, another reserve.
//!
//! ```text
//!   grow     take the blocks behind the run, if the reserve is to be longer;
//!            zero from `zeroed_to` to the new size, flush; one record; then handles see the new size
//!            where the blocks behind the run are taken, the segment is moved to where there is room, and grows there
//!   shrink   what the page cache has behind the new end is made safe and dropped;
//!            hold what lies there: new requests there wait, those in flight end;
//!            one record, with `zeroed_to` at most the new size; then handles see it, and the blocks return
//! ```
//!
//! What was cut off is zeroed again before it is shown again, because `zeroed_to` is not behind the end. The requests that
//! waited behind a new end are refused, as the end is then where it is.
//!
//! While a segment is being resized it is claimed (others may open it); the token is not held while blocks are zeroed or
//! requests end.

use baio_engine::Completion;

use crate::error::Fault;
use crate::object::Target;
use crate::operation::claims::Claim;
use crate::operation::fill::{Fill, Filled, Zeroing};
use crate::operation::lookup::{Looked, Lookup};
use crate::operation::mover::{Moved, Mover};
use crate::operation::moving::take_target;
use crate::operation::repeat::{OperationName, Traced, unknown};
use crate::operation::update::{Update, Updated};
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;
use crate::volume::Volume;
use crate::volume::accounts::Usage;
use crate::volume::inspect::SegmentInfo;
use crate::volume::table::BucketCopy;

/// What a segment is to become.
#[derive(Clone, Copy, Debug)]
pub struct ResizeOptions {
    /// Size in bytes; rounded up to whole blocks.
    pub size_bytes: u64,
    /// Bytes up to which it can grow in place. `None`: a segment that shrinks gives back all behind its new end, one that
    /// grows keeps a reserve that is large enough.
    pub reserve_bytes: Option<u64>,
    /// Nothing may be cut off: [`Fault::WouldCut`] where the segment is larger when its turn comes, whoever made it so.
    pub grows_only: bool,
}

impl ResizeOptions {
    /// This size, and no decision about the reserve. What lies behind it is cut off.
    #[must_use]
    pub fn to_size(size_bytes: u64) -> ResizeOptions {
        ResizeOptions {
            size_bytes,
            reserve_bytes: None,
            grows_only: false,
        }
    }

    /// This size, and no decision about the reserve; refused where anything would be cut off.
    #[must_use]
    pub fn grown_to(size_bytes: u64) -> ResizeOptions {
        ResizeOptions {
            grows_only: true,
            ..ResizeOptions::to_size(size_bytes)
        }
    }

    /// Size and reserve in blocks, for a segment that has these now.
    pub(crate) fn blocks(&self, inode: &Inode, block_size: u32) -> (u64, u64) {
        let blocks = self.size_bytes.div_ceil(u64::from(block_size));
        let reserve = match self.reserve_bytes {
            Some(bytes) => bytes.div_ceil(u64::from(block_size)),
            None if blocks < inode.blocks => blocks,
            None => inode.reserve_blocks,
        };
        (blocks, reserve.max(blocks))
    }
}

/// The segment as it was found, and what it is to become, in blocks.
struct Plan {
    at: SlotAddress,
    found: Box<Inode>,
    blocks: u64,
    reserve: u64,
}

impl Plan {
    /// Blocks to be taken behind the run.
    fn taken(&self) -> u64 {
        self.reserve.saturating_sub(self.found.reserve_blocks)
    }

    /// What must be zeroed before it is shown: first block of the run, and how many.
    fn unzeroed(&self) -> (u64, u64) {
        let from = self.found.zeroed_to.max(self.found.blocks);
        (from, self.blocks.saturating_sub(from))
    }

    fn shrinks(&self) -> bool {
        self.blocks < self.found.blocks
    }
}

/// Where the operation stands.
enum Phase {
    /// Waiting to look.
    Begin,
    /// Looking for the segment.
    Looking(Lookup),
    /// Filling what is to be shown with zeroes.
    Zeroing(Plan, Fill),
    /// Waiting for the page cache to let go of what lies behind the new end.
    Uncaching(Plan),
    /// Waiting for the requests behind the new end.
    Quieting(Plan),
    /// Waiting to look again, for the bucket as it is now.
    Ready(Plan),
    /// Looking again.
    Returning(Plan, Lookup),
    /// Writing the record.
    Recording(Plan, Box<Inode>, Update),
    /// Moving it to a run that is long enough.
    Moving(Plan, Box<Mover>),
}

/// A resize under way.
pub(crate) struct Resize {
    pub(super) subject: Subject,
    options: ResizeOptions,
    operation: OperationName,
    phase: Phase,
    /// Charged and taken behind the run: first block and how many; given back by whatever fails before its record may be on
    /// the device.
    taken: Option<(u64, u64)>,
}

impl Resize {
    pub(crate) fn new(subject: Subject, options: ResizeOptions, operation: OperationName) -> Resize {
        Resize {
            subject,
            options,
            operation,
            phase: Phase::Begin,
            taken: None,
        }
    }

    pub(super) fn is_moving(&self) -> bool {
        matches!(self.phase, Phase::Moving(..))
    }

    pub(super) fn progress(&self, block_size: u64) -> Option<(u64, u64)> {
        match &self.phase {
            Phase::Zeroing(_, fill) => Some(fill.progress()),
            Phase::Moving(_, mover) => Some(mover.progress(block_size)),
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
            (Phase::Begin, Event::Begin) => {
                self.subject.may_change(cx.volume)?;
                if self.options.size_bytes == 0 {
                    return Err(Fault::BadSize("a segment has at least one byte".into()));
                }
                Ok(Step::Token)
            }
            (Phase::Begin, Event::Token) => {
                self.phase = Phase::Looking(Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Looking(lookup), Event::Completed(completion)) => self.looked(cx, lookup, completion),
            (Phase::Zeroing(plan, mut fill), Event::Completed(completion)) => {
                let filled = fill.completed(cx, completion, false)?;
                self.zeroed(plan, fill, filled)
            }
            (Phase::Uncaching(plan), Event::Uncached(uncached)) => {
                uncached?;
                Ok(self.quiet(cx, plan))
            }
            (Phase::Quieting(plan), Event::Drained) => {
                self.phase = Phase::Ready(plan);
                Ok(Step::Token)
            }
            (Phase::Ready(plan), Event::Token) => {
                self.phase = Phase::Returning(plan, Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Returning(plan, lookup), Event::Completed(completion)) => {
                self.returned(cx, plan, lookup, completion)
            }
            (Phase::Recording(plan, inode, update), Event::Completed(completion)) => {
                self.recorded(cx, plan, inode, update, completion)
            }
            (Phase::Moving(plan, mover), event) => self.moved(cx, plan, mover, event),
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn looked(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        let (at, found, bucket) = match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Looking(lookup);
                return Ok(Step::Requests);
            }
            Looked::Absent(_) if self.operation.is_repeat => return Err(unknown()),
            Looked::Absent(_) => return Err(Fault::NotFound),
            Looked::Found { address, inode, bucket } => (address, inode, bucket),
        };
        if !cx.claims.claim(at, cx.index, Claim::Shared) {
            return Ok(cx.wait_for_claim(at));
        }
        if self.operation.is_repeat && found.state != InodeState::Live {
            return Err(unknown());
        }
        cx.must_be_whole(at, &found)?;
        let (blocks, reserve) = self.options.blocks(&found, cx.volume.block_size());
        let plan = Plan {
            at,
            found,
            blocks,
            reserve,
        };
        let is_as_asked = (plan.blocks, plan.reserve) == (plan.found.blocks, plan.found.reserve_blocks);
        if self.operation.is_repeat && !(is_as_asked && self.operation.has_written(&plan.found)) {
            return Err(unknown());
        }
        if plan.shrinks() {
            if self.options.grows_only {
                return Err(Fault::WouldCut {
                    has: plan.found.blocks.saturating_mul(u64::from(cx.volume.block_size())),
                    asked: self.options.size_bytes,
                });
            }
            if cx.objects.segment_has_log(at) {
                return Err(Fault::HasLog);
            }
            cx.claims.claim(at, cx.index, Claim::Shorter);
        }
        if is_as_asked {
            cx.release_token();
            return self.answer(cx, &plan.found);
        }
        if !self.take_behind(cx, &plan)? {
            return self.elsewhere(cx, plan, bucket);
        }
        self.prepare(cx, plan, bucket)
    }

    /// Takes the blocks behind the run that a longer reserve needs; `false` if others have some of them.
    fn take_behind(&mut self, cx: &mut Context<'_>, plan: &Plan) -> Result<bool, Fault> {
        let (start, blocks) = (plan.found.end_block(), plan.taken());
        if blocks == 0 {
            return Ok(true);
        }
        let block_size = cx.volume.block_size();
        let Volume { free, accounts, .. } = &mut *cx.volume;
        let owner = plan.found.owner_uid;
        let more = Usage { blocks, segments: 0 };
        accounts
            .charge(owner, more)
            .map_err(|over| Fault::over_quota(over, block_size))?;
        if free.occupy(start, blocks).is_err() {
            accounts.give_back(owner, more);
            return Ok(false);
        }
        self.taken = Some((start, blocks));
        Ok(true)
    }

    fn give_back(&mut self, cx: &mut Context<'_>) {
        let Some((start, blocks)) = self.taken.take() else {
            return;
        };
        let less = Usage { blocks, segments: 0 };
        cx.volume.accounts.give_back(self.subject.key.owner_uid, less);
        // It was taken by this operation, so it can be released.
        let _ = cx.volume.free.release(start, blocks);
    }

    /// The neighbours of the run are taken: the segment is moved to where there is room for all of it. It is claimed, the
    /// token is here, nothing is charged or taken. While it is being moved its owner is charged for the run that it will
    /// have, and so is a move that stops half-way.
    fn elsewhere(&mut self, cx: &mut Context<'_>, mut plan: Plan, bucket: BucketCopy) -> Result<Step, Fault> {
        let mut found = std::mem::take(&mut plan.found);
        // With the first record of the move; a repeat looks at the size as well.
        found.operation_id = self.operation.id;
        let (owner, from) = (found.owner_uid, found.start_block);
        let more = Usage {
            blocks: plan.reserve.saturating_sub(found.reserve_blocks),
            segments: 0,
        };
        let block_size = cx.volume.block_size();
        let charged = cx.volume.accounts.charge(owner, more);
        charged.map_err(|over| Fault::over_quota(over, block_size))?;
        let begun = take_target(cx, None, from, plan.reserve).and_then(|start| {
            let blocks = plan.blocks.max(found.blocks);
            let mover = Mover::begin(cx, (plan.at, bucket), found, (start, plan.reserve), blocks);
            if mover.is_err() {
                // It was taken just now, and nothing was written that names it.
                let _ = cx.volume.free.release(start, plan.reserve);
            }
            mover
        });
        match begun {
            Ok(mover) => {
                self.phase = Phase::Moving(plan, Box::new(mover));
                Ok(Step::Requests)
            }
            Err(fault) => {
                cx.volume.accounts.give_back(owner, more);
                Err(fault)
            }
        }
    }

    fn moved(&mut self, cx: &mut Context<'_>, plan: Plan, mut mover: Box<Mover>, event: Event) -> Result<Step, Fault> {
        let advanced = mover.advance(cx, event);
        if let (Err(_), Some(reserve)) = (&advanced, mover.never_began(cx)) {
            let blocks = plan.reserve.saturating_sub(reserve);
            let less = Usage { blocks, segments: 0 };
            cx.volume.accounts.give_back(self.subject.key.owner_uid, less);
        }
        match advanced? {
            Moved::Waits(step) => {
                self.phase = Phase::Moving(plan, mover);
                Ok(step)
            }
            // A longer reserve for a shorter segment: it has the reserve now, and shrinks as one that had it.
            Moved::Ended(inode) if inode.blocks != plan.blocks => {
                self.phase = Phase::Begin;
                Ok(Step::Token)
            }
            Moved::Ended(inode) => self.answer(cx, &inode),
        }
    }

    /// What comes before the record: zeroes, or that requests end.
    fn prepare(&mut self, cx: &mut Context<'_>, plan: Plan, bucket: BucketCopy) -> Result<Step, Fault> {
        let (from, count) = plan.unzeroed();
        if count > 0 {
            if crate::seeded_bug("size-is-shown-early") {
                let block_size = u64::from(cx.volume.block_size());
                cx.show_size(plan.at, plan.blocks.saturating_mul(block_size));
            }
            drop(bucket); // The zeroes may need its memory.
            cx.release_token();
            let start = plan.found.start_block.saturating_add(from);
            let mut fill = Fill::new(cx, start, count, Zeroing::Written)?;
            let filled = fill.go_on(cx, false)?;
            return self.zeroed(plan, fill, filled);
        }
        if plan.shrinks() {
            cx.release_token();
            drop(bucket);
            return self.uncache(cx, plan);
        }
        self.record(cx, plan, bucket)
    }

    /// First the page cache, whose writes must still reach the device; then everybody.
    fn uncache(&mut self, cx: &mut Context<'_>, plan: Plan) -> Result<Step, Fault> {
        let found = &plan.found;
        let run = cx.volume.layout().run_at(found.start_block, found.blocks);
        let (start, size) = run.ok_or_else(|| Fault::Corrupt("its blocks lie outside of the volume".into()))?;
        let target = Target::Segment {
            address: plan.at,
            owner_uid: found.owner_uid,
            start,
            size,
            moving: None,
        };
        let from = plan.blocks.saturating_mul(u64::from(cx.volume.block_size()));
        if cx.cut(&self.subject.object, target, from) {
            self.phase = Phase::Uncaching(plan);
            return Ok(Step::Uncached);
        }
        Ok(self.quiet(cx, plan))
    }

    fn quiet(&mut self, cx: &mut Context<'_>, plan: Plan) -> Step {
        let block_size = u64::from(cx.volume.block_size());
        let bytes = |blocks: u64| blocks.saturating_mul(block_size);
        let hold = cx.hold(plan.at, bytes(plan.blocks)..bytes(plan.found.blocks));
        self.phase = Phase::Quieting(plan);
        Step::Quiet(hold)
    }

    fn zeroed(&mut self, plan: Plan, fill: Fill, filled: Filled) -> Result<Step, Fault> {
        if filled == Filled::UnderWay {
            self.phase = Phase::Zeroing(plan, fill);
            return Ok(Step::Requests);
        }
        self.phase = Phase::Ready(plan);
        Ok(Step::Token)
    }

    fn returned(
        &mut self,
        cx: &mut Context<'_>,
        plan: Plan,
        mut lookup: Lookup,
        completion: Completion,
    ) -> Result<Step, Fault> {
        match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Returning(plan, lookup);
                Ok(Step::Requests)
            }
            Looked::Found { address, bucket, .. } if address == plan.at => self.record(cx, plan, bucket),
            // It was claimed all the time.
            Looked::Found { .. } | Looked::Absent(_) => {
                let why = "the inode is not where it was before its resize";
                Err(Fault::Corrupt(why.into()))
            }
        }
    }

    fn record(&mut self, cx: &mut Context<'_>, plan: Plan, bucket: BucketCopy) -> Result<Step, Fault> {
        let found = &plan.found;
        let zeroed_to = if plan.shrinks() {
            match crate::seeded_bug("shrunk-counts-as-zeroed") {
                true => found.zeroed_to,
                false => found.zeroed_to.min(plan.blocks),
            }
        } else {
            found.zeroed_to.max(plan.blocks)
        };
        // Blocks that were free are claimed: later than by whoever had them before.
        let alloc_seq = match plan.taken() {
            0 => found.alloc_seq,
            _ if crate::seeded_bug("growth-keeps-its-number") => found.alloc_seq,
            _ => cx.volume.next_alloc_seq(),
        };
        let inode = Inode {
            blocks: plan.blocks,
            reserve_blocks: plan.reserve,
            zeroed_to: zeroed_to.min(plan.reserve),
            alloc_seq,
            rename_from: None,
            operation_id: self.operation.id,
            ..(**found).clone()
        };
        let update = Update::begin(cx, bucket, plan.at, &inode)?;
        self.phase = Phase::Recording(plan, Box::new(inode), update);
        Ok(Step::Requests)
    }

    /// A record whose write failed may or may not be on the device: the volume is latched, what was taken stays taken, and
    /// nobody reaches what was to be cut off, as it may be gone at the next open.
    fn recorded(
        &mut self,
        cx: &mut Context<'_>,
        plan: Plan,
        inode: Box<Inode>,
        mut update: Update,
        completion: Completion,
    ) -> Result<Step, Fault> {
        let block_size = u64::from(cx.volume.block_size());
        let bytes = inode.blocks.saturating_mul(block_size);
        let updated = update.completed(cx, completion);
        if cx.volume.is_latched() || matches!(updated, Ok(Updated::Done)) {
            self.taken = None; // They are, or may be, the segment's on the device.
        }
        if updated.is_err() && cx.volume.is_latched() && plan.shrinks() {
            cx.show_size(plan.at, bytes);
            cx.volume.doubt(plan.at);
        }
        match updated? {
            Updated::Writing => {
                self.phase = Phase::Recording(plan, inode, update);
                Ok(Step::Requests)
            }
            Updated::Done => {
                cx.release_token();
                cx.show_size(plan.at, bytes);
                let returned = plan.found.reserve_blocks.saturating_sub(inode.reserve_blocks);
                let less = Usage {
                    blocks: returned,
                    segments: 0,
                };
                cx.volume.accounts.give_back(inode.owner_uid, less);
                let _ = cx.volume.free.release(inode.end_block(), returned);
                self.answer(cx, &inode)
            }
        }
    }

    fn answer(&self, cx: &Context<'_>, inode: &Inode) -> Result<Step, Fault> {
        let name = inode.name.clone().ok_or(Fault::NotFound)?;
        let info = SegmentInfo::of(inode, &name, cx.volume.block_size(), false);
        Ok(Step::Done(Ok(Answer::Segment(info))))
    }
}
