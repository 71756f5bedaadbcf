//! The copy of one segment to another run, chunk by chunk, while it serves.
//!
//! ```text
//!   record Moving {target, mark 0}
//!   for each chunk:   hold it: new requests there wait, those in flight end
//!                     read the source, write the target, data-durably
//!                     record the mark behind the chunk; requests below it go to the target from now on
//!   zero what the segment is to be longer, flush
//!   record Live {start = target, the new sizes, a new allocation sequence}; the source's blocks return
//! ```
//!
//! The hold lies on the chunk at the mark until the record of the next mark is durable, so whatever the record says after a
//! crash, below it the target has every byte that was acknowledged, and above it the source. A request that crosses the mark
//! touches the held chunk and waits. The table token is held for the records only, so several segments can move at once.
//!
//! A read or write that fails stops the move where it stands: the segment stays `Moving` and is served by its mark, and
//! another move, or the next open, goes on from there. So does one that is asked to end ([`super::claims`]). Where a record
//! fails, the volume is latched, and whether the mark counts is known after the next open only: until then the chunk between
//! the two possible marks is refused, because what is written there would be lost in one of the two cases.
//!
//! What cannot begin for want of memory or slots is tried again a little later.

use std::time::Duration;

use baio_engine::{Buffer, Completion, Durability, Errno, Op, Request};

use crate::crossing::ToLane;
use crate::error::Fault;
use crate::holds::HoldId;
use crate::object::Moving;
use crate::operation::fill::{Fill, Zeroing};
use crate::operation::lookup::{Found, read_bucket};
use crate::operation::update::Update;
use crate::operation::waits::{completed, quiet, token, with};
use crate::operation::{Context, Part, Progress};
use crate::segment::inode::{Inode, InodeState, MoveTo};
use crate::segment::probe::SlotAddress;

/// Bytes copied at a time, unless the arena is small.
const CHUNK_BYTES: u64 = 1 << 20;
/// A chunk takes at most this part of the arena.
const ARENA_SHARE: u64 = 16;
/// How long to wait for memory or slots: this, then twice as long each time, up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_LAST: Duration = Duration::from_secs(1);
/// So often a move that somebody waits for is tried again; one in the background has all the time it needs.
const PAUSES_MAX: u32 = 12;

/// Who waits for the end of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A caller, who may be the one that has all the memory.
    Caller,
    /// Nobody, unless somebody wants to change the segment.
    Background,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// A move is under way; nothing is copied.
    Begin,
    /// So many blocks are copied.
    Mark(u64),
    /// The segment is the target.
    End,
}

/// A move under way. The operation around it has claimed the segment.
pub(crate) struct Mover {
    address: SlotAddress,
    /// As it stands on the device.
    inode: Box<Inode>,
    to: MoveTo,
    /// The size when it has moved, in blocks.
    blocks: u64,
    patience: Patience,
    /// The record with which it begins.
    begun: Option<(Box<Inode>, Update)>,
    hold: Option<HoldId>,
    /// The chunk's memory, kept from one to the next.
    buffer: Option<Buffer>,
    pauses: u32,
    /// Blocks behind the mark that may count as copied: their record failed.
    doubt: u64,
}

impl Mover {
    /// Begins to move a live segment that was just found to a run that was just taken, which is given back where this fails. The token
    /// is ours until the record is durable.
    ///
    /// # Errors
    /// Nothing was written then.
    pub(crate) fn begin(
        cx: &mut Context<'_>,
        found: Found,
        (start, reserve): (u64, u64),
        blocks: u64,
    ) -> Result<Mover, Fault> {
        let Found { at, inode, bucket } = found;
        let to = MoveTo {
            start,
            blocks: reserve,
            done: 0,
        };
        let mut mover = Mover::new(at, inode, to, blocks, Patience::Caller);
        let next = mover.next_inode(cx, Record::Begin);
        match Update::begin(cx, bucket, at, &next) {
            Ok(update) => mover.begun = Some((next, update)),
            Err(fault) => {
                // Nothing was written that names it.
                let _ = cx.volume.free.release(start, reserve);
                return Err(fault);
            }
        }
        mover.tell(cx);
        Ok(mover)
    }

    /// Goes on with a move that was found half-done; gives the token back.
    ///
    /// # Errors
    /// Where it is being moved to is no place.
    pub(crate) fn resume(
        cx: &mut Context<'_>,
        address: SlotAddress,
        inode: Box<Inode>,
        patience: Patience,
    ) -> Result<Mover, Fault> {
        let to = inode
            .move_to
            .ok_or_else(|| Fault::Corrupt("it is being moved nowhere".into()))?;
        let blocks = inode.blocks;
        let mut mover = Mover::new(address, inode, to, blocks, patience);
        if crate::seeded_bug("a-move-goes-on-behind-its-mark") {
            mover.to.done = (to.done + 1).min(blocks);
        }
        mover.show(cx, 0)?;
        mover.tell(cx);
        cx.release_token();
        Ok(mover)
    }

    fn new(address: SlotAddress, inode: Box<Inode>, to: MoveTo, blocks: u64, patience: Patience) -> Mover {
        Mover {
            address,
            inode,
            to,
            blocks,
            patience,
            begun: None,
            hold: None,
            buffer: None,
            pauses: 0,
            doubt: 0,
        }
    }

    /// After an error: the blocks that the segment holds, if nothing says on the device that it was to be moved.
    pub(crate) fn never_began(&self, cx: &Context<'_>) -> Option<u64> {
        let never = self.inode.state == InodeState::Live && !cx.volume.is_latched();
        never.then_some(self.inode.reserve_blocks)
    }

    /// Says how many bytes are in the target, of those that are to be there.
    fn tell(&self, cx: &mut Context<'_>) {
        let of = self.bytes(cx, self.blocks.max(self.inode.blocks));
        let done = self.bytes(cx, self.to.done).min(of);
        cx.shown.progress = Some(Progress::Bytes { done, of });
    }

    /// Moves the segment; gives its inode, which lives in the target.
    ///
    /// # Errors
    /// The move has stopped where it stands; the token is given back, the segment is served by its mark.
    pub(crate) async fn run(&mut self) -> Result<Box<Inode>, Fault> {
        let moved = self.go().await;
        with(|cx| {
            cx.shown.progress = None;
            match moved {
                Ok(()) => Ok(self.inode.clone()),
                Err(fault) => Err(self.stop(cx, fault)),
            }
        })
    }

    async fn go(&mut self) -> Result<(), Fault> {
        if let Some((next, update)) = self.begun.take() {
            self.recorded(Record::Begin, next, update).await?;
        }
        loop {
            with(|cx| self.may_go_on(cx))?;
            if self.to.done >= self.inode.blocks {
                break;
            }
            match self.copy_chunk().await {
                Ok(copied) if crate::seeded_bug("mark-in-memory-only") => {
                    self.to.done += copied;
                    with(|cx| self.show(cx, 0))?;
                }
                Ok(copied) => self.record(Record::Mark(self.to.done + copied)).await?,
                Err(fault) => self.pause(fault).await?,
            }
        }
        self.buffer = None;
        if let Some(hold) = self.hold.take() {
            with(|cx| cx.release_hold(hold)); // Everything goes to the target already.
        }
        while let Err(fault) = self.zero_the_rest().await {
            self.pause(fault).await?;
        }
        self.record(Record::End).await
    }

    /// Was it asked to end?
    fn may_go_on(&self, cx: &Context<'_>) -> Result<(), Fault> {
        if cx.claims.is_asked_to_end(cx.index) {
            let mark = self.bytes(cx, self.to.done);
            return Err(Fault::MoveStopped { mark });
        }
        Ok(())
    }

    /// Holds the next chunk and copies it; how many blocks it was.
    async fn copy_chunk(&mut self) -> Result<u64, Fault> {
        let hold = with(|cx| self.hold_chunk(cx));
        quiet(hold).await?;
        with(|cx| self.read_chunk(cx))?;
        let read = completed().await?;
        with(|cx| {
            self.must_be_whole(cx, &read)?;
            let at = self.place(cx, self.to.start)?;
            cx.write(at, read.memory, Durability::Data)
        })?;
        let written = completed().await?;
        with(|cx| {
            self.must_be_whole(cx, &written)?;
            self.buffer = written.memory.into_buffer();
            Ok(u64::from(written.bytes_done) / u64::from(cx.volume.block_size()))
        })
    }

    fn hold_chunk(&mut self, cx: &mut Context<'_>) -> HoldId {
        let range = self.bytes(cx, self.to.done)..self.bytes(cx, self.to.done + self.chunk(cx));
        let hold = match self.hold {
            Some(hold) => {
                cx.move_hold(hold, range);
                hold
            }
            None => cx.hold(self.address, range),
        };
        self.hold = Some(hold);
        hold
    }

    /// Blocks to copy next.
    fn chunk(&self, cx: &Context<'_>) -> u64 {
        let share = cx.lane.engine().arena().size() as u64 / ARENA_SHARE;
        let blocks = CHUNK_BYTES.min(share) / u64::from(cx.volume.block_size());
        blocks.max(1).min(self.inode.blocks - self.to.done)
    }

    fn read_chunk(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        let at = self.place(cx, self.inode.start_block)?;
        let len = self.bytes(cx, self.chunk(cx)) as usize;
        // That of the chunk before is large enough: all have one size, and the last less.
        let mut buffer = self.buffer.take().map_or_else(|| cx.buffer(len), Ok)?;
        buffer.set_len(len);
        cx.read_into(Part::Main, at, buffer).map_err(|(fault, _)| fault)
    }

    /// Less than asked for is no error of the engine's, but one here.
    fn must_be_whole(&self, cx: &mut Context<'_>, completion: &Completion) -> Result<(), Fault> {
        let asked = self.bytes(cx, self.chunk(cx));
        match completion.result {
            Ok(got) if u64::from(got) == asked => Ok(()),
            Ok(_) => {
                cx.volume.latch();
                Err(cx.volume.must_fit().err().unwrap_or(Fault::from(Errno::EIO)))
            }
            Err(error) => Err(Fault::Io(error)),
        }
    }

    /// Zeroes what the segment is to be longer.
    async fn zero_the_rest(&mut self) -> Result<(), Fault> {
        let copied = self.inode.blocks;
        if self.blocks <= copied {
            return Ok(());
        }
        // The record says that it moves: it ends, else both runs stay taken.
        let fill = with(|cx| {
            let fill = Fill::new(cx, self.to.start + copied, self.blocks - copied, Zeroing::Written)?;
            Ok::<_, Fault>(fill.going_to_the_end(self.bytes(cx, copied)))
        })?;
        fill.run().await
    }

    /// Writes a record.
    async fn record(&mut self, record: Record) -> Result<(), Fault> {
        let (next, update) = loop {
            token().await?;
            match self.begin_record(record).await {
                Ok(begun) => break begun,
                Err(fault) => {
                    with(|cx| cx.release_token());
                    self.pause(fault).await?;
                }
            }
        };
        self.recorded(record, next, update).await
    }

    /// The bucket is read anew for each record: others change their inodes in it meanwhile.
    async fn begin_record(&mut self, record: Record) -> Result<(Box<Inode>, Update), Fault> {
        let bucket = read_bucket(self.address.bucket, []).await?;
        with(|cx| {
            let found = bucket.image()?.slot(self.address.slot, cx.volume.superblock.geometry());
            if found.and_then(Result::ok).as_ref() != Some(&*self.inode) {
                return Err(Fault::Corrupt("its inode was changed while it was being moved".into()));
            }
            let next = self.next_inode(cx, record);
            let update = Update::begin(cx, bucket, self.address, &next)?;
            Ok((next, update))
        })
    }

    fn next_inode(&self, cx: &mut Context<'_>, record: Record) -> Box<Inode> {
        let mut next = self.inode.clone();
        next.rename_from = None;
        match record {
            Record::Begin => {
                next.state = InodeState::Moving;
                next.move_to = Some(self.to);
                // The target was free: claimed later than by whoever had it before.
                if !crate::seeded_bug("move-keeps-its-number") {
                    next.alloc_seq = cx.volume.next_alloc_seq();
                }
            }
            Record::Mark(done) => next.move_to = Some(MoveTo { done, ..self.to }),
            Record::End => {
                next.state = InodeState::Live;
                next.move_to = None;
                next.start_block = self.to.start;
                next.reserve_blocks = self.to.blocks;
                next.blocks = self.blocks;
                next.zeroed_to = self.blocks;
                // Blocks that were free are claimed: later than by whoever had them before.
                if !crate::seeded_bug("move-keeps-its-number") {
                    next.alloc_seq = cx.volume.next_alloc_seq();
                }
            }
        }
        next
    }

    /// Waits for the end of a record, and shows what it says.
    async fn recorded(&mut self, record: Record, next: Box<Inode>, update: Update) -> Result<(), Fault> {
        let recorded = update.ended().await;
        with(|cx| match recorded {
            Ok(()) => self.has_recorded(cx, record, next),
            Err(fault) => {
                self.doubt = match record {
                    // Whichever holds of the others: all is in the source, or all in the target.
                    Record::Mark(done) if cx.volume.is_latched() => done - self.to.done,
                    _ => 0,
                };
                if self.never_began(cx).is_some() {
                    let _ = cx.volume.free.release(self.to.start, self.to.blocks);
                }
                Err(fault)
            }
        })
    }

    fn has_recorded(&mut self, cx: &mut Context<'_>, record: Record, next: Box<Inode>) -> Result<(), Fault> {
        cx.release_token();
        self.pauses = 0;
        let before = std::mem::replace(&mut self.inode, next);
        match record {
            Record::Begin => {
                cx.volume.unfinished_moves.push(self.address);
                if crate::seeded_bug("source-is-released-early") {
                    let _ = cx.volume.free.release(before.start_block, before.reserve_blocks);
                }
            }
            Record::Mark(done) => self.to.done = done,
            Record::End => {
                let size = self.bytes(cx, self.inode.blocks);
                let start = self.run_at(cx, self.to.start)?;
                let at = self.address;
                cx.lane.obey(ToLane::Moved { at, start, bytes: size });
                cx.show_size(self.address, size);
                cx.volume.unfinished_moves.retain(|moving| *moving != self.address);
                // It was the segment's until now.
                let _ = cx.volume.free.release(before.start_block, before.reserve_blocks);
                return Ok(());
            }
        }
        self.tell(cx);
        self.show(cx, 0)
    }

    /// Ends the move where it stands; gives why.
    fn stop(&mut self, cx: &mut Context<'_>, fault: Fault) -> Fault {
        cx.release_token();
        self.buffer = None;
        // First the handles, then who waited: what crosses the mark is to be refused.
        if let Err(fault) = self.show(cx, self.doubt) {
            return fault;
        }
        if let Some(hold) = self.hold.take() {
            cx.release_hold(hold);
        }
        fault
    }

    /// Tells the handles where the segment lives.
    fn show(&self, cx: &mut Context<'_>, doubt: u64) -> Result<(), Fault> {
        let moving = Moving {
            target: self.run_at(cx, self.to.start)?,
            mark: self.bytes(cx, self.to.done),
            doubt: self.bytes(cx, doubt),
        };
        if self.inode.state == InodeState::Moving {
            let at = self.address;
            cx.lane.obey(ToLane::Moving { at, moving });
        }
        Ok(())
    }

    /// Waits a while where memory or slots were missing.
    ///
    /// # Errors
    /// Something else was wrong, or it has waited long enough.
    async fn pause(&mut self, fault: Fault) -> Result<(), Fault> {
        with(|cx| self.begin_pause(cx, fault))?;
        completed().await?; // Whatever the timer says: where there are none it is said at once.
        Ok(())
    }

    fn begin_pause(&mut self, cx: &mut Context<'_>, fault: Fault) -> Result<(), Fault> {
        if !matches!(fault, Fault::NoMemory { .. } | Fault::Io(baio_engine::Error::Full)) {
            return Err(fault);
        }
        let is_awaited = self.patience == Patience::Caller || cx.claims.is_awaited(cx.index);
        if cx.claims.is_asked_to_end(cx.index) || is_awaited && self.pauses >= PAUSES_MAX {
            return Err(fault);
        }
        self.buffer = None;
        let pause = PAUSE_FIRST.saturating_mul(1 << self.pauses.min(16)).min(PAUSE_LAST);
        self.pauses += 1;
        let at = cx.lane.engine().now().after(pause);
        let policy = cx.volume.device.policy(Durability::None);
        cx.submit_as(Part::Main, Request::bare(Op::Timer { at }, None, policy), true)
    }

    /// Where the chunk lies in a run that begins with this block, on the device.
    fn place(&self, cx: &Context<'_>, start: u64) -> Result<u64, Fault> {
        Ok(self.run_at(cx, start)?.saturating_add(self.bytes(cx, self.to.done)))
    }

    fn run_at(&self, cx: &Context<'_>, start: u64) -> Result<u64, Fault> {
        let run = cx.volume.layout().run_at(start, self.inode.blocks);
        run.map(|(at, _)| at)
            .ok_or_else(|| Fault::Corrupt("a run of blocks outside of the volume".into()))
    }

    fn bytes(&self, cx: &Context<'_>, blocks: u64) -> u64 {
        blocks.saturating_mul(u64::from(cx.volume.block_size()))
    }
}
