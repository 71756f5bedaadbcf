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

pub use baio_words::ResizeOptions;

use crate::error::Fault;
use crate::object::Target;
use crate::operation::claims::Claim;
use crate::operation::fill::{Fill, Zeroing};
use crate::operation::lookup::{Found, lookup};
use crate::operation::mover::Mover;
use crate::operation::moving::take_target;
use crate::operation::repeat::{OperationName, Traced, unknown};
use crate::operation::update::Update;
use crate::operation::waits::{quiet, token, uncached, unclaimed, with};
use crate::operation::{Answer, Context, Failed, Kind, Operation, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;
use crate::volume::Volume;
use crate::volume::accounts::Usage;
use crate::volume::table::BucketCopy;

/// Size and reserve in blocks, for a segment that has these now.
fn blocks_of(options: &ResizeOptions, inode: &Inode, block_size: u32) -> (u64, u64) {
    let blocks = options.size_bytes.div_ceil(u64::from(block_size));
    let reserve = match options.reserve_bytes {
        Some(bytes) => bytes.div_ceil(u64::from(block_size)),
        None if blocks < inode.blocks => blocks,
        None => inode.reserve_blocks,
    };
    (blocks, reserve.max(blocks))
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

    fn is_as_asked(&self) -> bool {
        (self.blocks, self.reserve) == (self.found.blocks, self.found.reserve_blocks)
    }
}

/// A segment gets another size or reserve.
pub(crate) fn resize(subject: Subject, options: ResizeOptions, operation: OperationName) -> Operation {
    let asked = Resize {
        options,
        operation,
        taken: None,
    };
    Operation::changing(subject, asked.run())
}

/// A resize under way.
struct Resize {
    options: ResizeOptions,
    operation: OperationName,
    /// Charged and taken behind the run: first block and how many; given back by whatever fails before its record may be on
    /// the device.
    taken: Option<(u64, u64)>,
}

impl Resize {
    async fn run(mut self) -> Result<Answer, Failed> {
        let resized = self.go().await;
        if resized.is_err() {
            with(|cx| self.give_back(cx));
        }
        Ok(resized?)
    }

    async fn go(&mut self) -> Result<Answer, Fault> {
        with(|cx| self.may_be(cx))?;
        token().await?;
        loop {
            let found = self.find().await?;
            let at = found.at;
            let (plan, bucket) = with(|cx| self.plan(cx, found))?;
            if plan.is_as_asked() {
                return with(|cx| {
                    cx.release_token();
                    cx.segment(&plan.found)
                });
            }
            if with(|cx| self.take_behind(cx, &plan))? {
                return self.in_place(plan, bucket).await;
            }
            let inode = self.elsewhere(at, &plan, bucket).await?;
            if inode.blocks == plan.blocks {
                return with(|cx| cx.segment(&inode));
            }
            // A longer reserve for a shorter segment: it has the reserve now, and shrinks as one that had it.
            token().await?;
        }
    }

    fn may_be(&self, cx: &Context<'_>) -> Result<(), Fault> {
        cx.subject.may_change(cx.volume)?;
        if self.options.size_bytes == 0 {
            return Err(Fault::BadSize("a segment has at least one byte".into()));
        }
        Ok(())
    }

    /// The segment, claimed.
    async fn find(&self) -> Result<Found, Fault> {
        loop {
            let key = with(|cx| cx.subject.key.clone());
            let absent = || {
                if self.operation.is_repeat {
                    unknown()
                } else {
                    Fault::NotFound
                }
            };
            let found = lookup(key).await?.found().ok_or_else(absent)?;
            let at = found.at;
            if with(|cx| cx.claims.claim(at, cx.index, Claim::Shared)) {
                return Ok(found);
            }
            drop(found);
            unclaimed(at).await?;
        }
    }

    /// What it is to become, if it may.
    fn plan(&self, cx: &mut Context<'_>, found: Found) -> Result<(Plan, BucketCopy), Fault> {
        let Found { at, inode, bucket } = found;
        if self.operation.is_repeat && inode.state != InodeState::Live {
            return Err(unknown());
        }
        cx.must_be_whole(at, &inode)?;
        let (blocks, reserve) = blocks_of(&self.options, &inode, cx.volume.block_size());
        let plan = Plan {
            at,
            found: inode,
            blocks,
            reserve,
        };
        if self.operation.is_repeat && !(plan.is_as_asked() && self.operation.has_written(&plan.found)) {
            return Err(unknown());
        }
        if plan.shrinks() {
            if self.options.grows_only {
                return Err(Fault::WouldCut {
                    has: plan.found.blocks.saturating_mul(u64::from(cx.volume.block_size())),
                    asked: self.options.size_bytes,
                });
            }
            cx.claims.claim(at, cx.index, Claim::Shorter);
            if cx.has_log(at) {
                return Err(Fault::HasLog);
            }
        }
        Ok((plan, bucket))
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
        cx.volume.accounts.give_back(cx.subject.key.owner_uid, less);
        // It was taken by this operation, so it can be released.
        let _ = cx.volume.free.release(start, blocks);
    }

    /// The neighbours of the run are taken: the segment is moved to where there is room for all of it. It is claimed, the
    /// token is here, nothing is charged or taken. While it is being moved its owner is charged for the run that it will
    /// have, and so is a move that stops half-way.
    async fn elsewhere(&self, at: SlotAddress, plan: &Plan, bucket: BucketCopy) -> Result<Box<Inode>, Fault> {
        let mut mover = with(|cx| self.begin_mover(cx, at, plan, bucket))?;
        with(|cx| cx.shown.kind = Kind::Moves);
        let moved = mover.run().await;
        with(|cx| {
            cx.shown.kind = Kind::Changes;
            if let (Err(_), Some(reserve)) = (&moved, mover.never_began(cx)) {
                let blocks = plan.reserve.saturating_sub(reserve);
                let less = Usage { blocks, segments: 0 };
                cx.volume.accounts.give_back(cx.subject.key.owner_uid, less);
            }
        });
        moved
    }

    fn begin_mover(
        &self,
        cx: &mut Context<'_>,
        at: SlotAddress,
        plan: &Plan,
        bucket: BucketCopy,
    ) -> Result<Mover, Fault> {
        let mut inode = plan.found.clone();
        // With the first record of the move; a repeat looks at the size as well.
        inode.operation_id = self.operation.id;
        let owner = inode.owner_uid;
        let more = Usage {
            blocks: plan.taken(),
            segments: 0,
        };
        let block_size = cx.volume.block_size();
        let charged = cx.volume.accounts.charge(owner, more);
        charged.map_err(|over| Fault::over_quota(over, block_size))?;
        let begun = take_target(cx, None, inode.start_block, plan.reserve).and_then(|start| {
            let blocks = plan.blocks.max(inode.blocks);
            Mover::begin(cx, Found { at, inode, bucket }, (start, plan.reserve), blocks)
        });
        if begun.is_err() {
            cx.volume.accounts.give_back(owner, more);
        }
        begun
    }

    /// What comes before the record: zeroes, or that requests end; then the record.
    async fn in_place(&mut self, plan: Plan, bucket: BucketCopy) -> Result<Answer, Fault> {
        let (from, count) = plan.unzeroed();
        let bucket = if count > 0 {
            drop(bucket); // The zeroes may need its memory.
            with(|cx| {
                if crate::seeded_bug("size-is-shown-early") {
                    let block_size = u64::from(cx.volume.block_size());
                    cx.show_size(plan.at, plan.blocks.saturating_mul(block_size));
                }
                cx.release_token();
            });
            let start = plan.found.start_block.saturating_add(from);
            let fill = with(|cx| Fill::new(cx, start, count, Zeroing::Written))?;
            fill.run().await?;
            with(|cx| cx.shown.progress = None);
            self.find_again(&plan).await?
        } else if plan.shrinks() {
            drop(bucket);
            with(|cx| cx.release_token());
            self.let_go_behind(&plan).await?;
            self.find_again(&plan).await?
        } else {
            bucket
        };
        self.record(plan, bucket).await
    }

    /// What lies behind the new end: first the page cache lets go of it, whose writes must still reach the device; then everybody.
    async fn let_go_behind(&self, plan: &Plan) -> Result<(), Fault> {
        if with(|cx| uncache(cx, plan))? {
            uncached().await?;
        }
        let hold = with(|cx| {
            let block_size = u64::from(cx.volume.block_size());
            let bytes = |blocks: u64| blocks.saturating_mul(block_size);
            cx.hold(plan.at, bytes(plan.blocks)..bytes(plan.found.blocks))
        });
        quiet(hold).await
    }

    /// The bucket as it is now; the token is here again.
    async fn find_again(&self, plan: &Plan) -> Result<BucketCopy, Fault> {
        token().await?;
        let key = with(|cx| cx.subject.key.clone());
        match lookup(key).await?.found() {
            Some(found) if found.at == plan.at => Ok(found.bucket),
            // It was claimed all the time.
            _ => {
                let why = "the inode is not where it was before its resize";
                Err(Fault::Corrupt(why.into()))
            }
        }
    }

    /// A record whose write failed may or may not be on the device: the volume is latched, what was taken stays taken, and
    /// nobody reaches what was to be cut off, as it may be gone at the next open.
    async fn record(&mut self, plan: Plan, bucket: BucketCopy) -> Result<Answer, Fault> {
        let inode = with(|cx| self.resized(cx, &plan));
        let update = with(|cx| Update::begin(cx, bucket, plan.at, &inode))?;
        let recorded = update.ended().await;
        with(|cx| {
            let bytes = inode.blocks.saturating_mul(u64::from(cx.volume.block_size()));
            if cx.volume.is_latched() || recorded.is_ok() {
                self.taken = None; // They are, or may be, the segment's on the device.
            }
            if recorded.is_err() && cx.volume.is_latched() && plan.shrinks() {
                cx.show_size(plan.at, bytes);
                cx.volume.doubt(plan.at);
            }
            recorded?;
            cx.release_token();
            cx.show_size(plan.at, bytes);
            let returned = plan.found.reserve_blocks.saturating_sub(inode.reserve_blocks);
            let less = Usage {
                blocks: returned,
                segments: 0,
            };
            cx.volume.accounts.give_back(inode.owner_uid, less);
            let _ = cx.volume.free.release(inode.end_block(), returned);
            cx.segment(&inode)
        })
    }

    /// The inode of what the segment is to become.
    fn resized(&self, cx: &mut Context<'_>, plan: &Plan) -> Box<Inode> {
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
        Box::new(Inode {
            blocks: plan.blocks,
            reserve_blocks: plan.reserve,
            zeroed_to: zeroed_to.min(plan.reserve),
            alloc_seq,
            rename_from: None,
            operation_id: self.operation.id,
            ..(**found).clone()
        })
    }
}

/// Asks the page cache to let go of what lies behind the new end; false when there is none.
fn uncache(cx: &mut Context<'_>, plan: &Plan) -> Result<bool, Fault> {
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
    let name = cx.subject.object.clone();
    Ok(cx.cut(&name, target, from))
}
