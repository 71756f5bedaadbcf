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

use crate::error::Fault;
use crate::holds::HoldId;
use crate::object::Moving;
use crate::operation::fill::{Fill, Filled, Zeroing};
use crate::operation::lookup::{bucket_copy, bytes_of, read_pair};
use crate::operation::update::{Update, Updated};
use crate::operation::{Context, Event, Part, Step};
use crate::segment::inode::{Inode, InodeState, MoveTo};
use crate::segment::layout::Place;
use crate::segment::probe::SlotAddress;
use crate::volume::table::BucketCopy;

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

/// How far a move is.
pub(crate) enum Moved {
    /// It waits for this.
    Waits(Step),
    /// The segment lives in the target.
    Ended(Box<Inode>),
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

/// Where the move stands.
enum Phase {
    /// Between two phases.
    Between,
    /// The record of the next state is written; the token is ours.
    Recording(Record, Box<Inode>, Update),
    /// Waiting for the token, for this record.
    Wanting(Record),
    /// Reading the bucket; the token is ours.
    Looking(Record, Option<BucketCopy>),
    /// Waiting until no request touches the chunk.
    Quieting,
    /// Reading the chunk from the source.
    Reading,
    /// Writing it to the target.
    Writing,
    /// Zeroing what the segment is to be longer.
    Zeroing(Fill),
    /// Waiting for memory or slots, then going on with this.
    Pausing(Resume),
}

/// What is tried again after a pause.
#[derive(Clone, Copy, Debug)]
enum Resume {
    Chunk,
    Rest,
    Record(Record),
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
    phase: Phase,
    hold: Option<HoldId>,
    /// The chunk's memory, kept from one to the next.
    buffer: Option<Buffer>,
    pauses: u32,
}

impl Mover {
    /// Begins to move a live segment that was just found: the token is ours until the record is durable.
    ///
    /// # Errors
    /// Nothing was written then; the target is still the caller's.
    pub(crate) fn begin(
        cx: &mut Context<'_>,
        (address, bucket): (SlotAddress, BucketCopy),
        inode: Box<Inode>,
        (start, reserve): (u64, u64),
        blocks: u64,
    ) -> Result<Mover, Fault> {
        let to = MoveTo {
            start,
            blocks: reserve,
            done: 0,
        };
        let mut mover = Mover::new(address, inode, to, blocks, Patience::Caller);
        let next = mover.next_inode(cx, Record::Begin);
        let update = Update::begin(cx, bucket, address, &next)?;
        mover.phase = Phase::Recording(Record::Begin, next, update);
        Ok(mover)
    }

    /// Goes on with a move that was found half-done; gives the token back.
    ///
    /// # Errors
    /// As [`Mover::advance`].
    pub(crate) fn resume(
        cx: &mut Context<'_>,
        address: SlotAddress,
        inode: Box<Inode>,
        patience: Patience,
    ) -> Result<(Mover, Step), Fault> {
        let to = inode
            .move_to
            .ok_or_else(|| Fault::Corrupt("it is being moved nowhere".into()))?;
        let blocks = inode.blocks;
        let mut mover = Mover::new(address, inode, to, blocks, patience);
        if crate::seeded_bug("a-move-goes-on-behind-its-mark") {
            mover.to.done = (to.done + 1).min(blocks);
        }
        mover.show(cx, 0)?;
        cx.release_token();
        let step = mover.next_chunk(cx)?;
        Ok((mover, step))
    }

    fn new(address: SlotAddress, inode: Box<Inode>, to: MoveTo, blocks: u64, patience: Patience) -> Mover {
        Mover {
            address,
            inode,
            to,
            blocks,
            patience,
            phase: Phase::Between,
            hold: None,
            buffer: None,
            pauses: 0,
        }
    }

    /// After an error: the blocks that the segment holds, if nothing says on the device that it was to be moved.
    pub(crate) fn never_began(&self, cx: &Context<'_>) -> Option<u64> {
        let never = self.inode.state == InodeState::Live && !cx.volume.is_latched();
        never.then_some(self.inode.reserve_blocks)
    }

    /// Bytes that are in the target, and bytes that are to be there.
    pub(crate) fn progress(&self, block_size: u64) -> (u64, u64) {
        let zeroed = match &self.phase {
            Phase::Zeroing(fill) => fill.progress().0,
            _ => 0,
        };
        let bytes = |blocks: u64| blocks.saturating_mul(block_size);
        let of = bytes(self.blocks.max(self.inode.blocks));
        (bytes(self.to.done).saturating_add(zeroed).min(of), of)
    }

    /// Takes in what has happened.
    ///
    /// # Errors
    /// The move has stopped where it stands; the token is given back, the segment is served by its mark.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Moved, Fault> {
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Recording(record, next, update) => match event {
                Event::Completed(completion) => self.recorded(cx, record, next, update, completion),
                event => {
                    let fault = cx.unexpected(&event);
                    self.stop(cx, fault, 0).map(Moved::Waits)
                }
            },
            phase => {
                let stepped = self.go_on(cx, phase, event);
                stepped.or_else(|fault| self.stop(cx, fault, 0)).map(Moved::Waits)
            }
        }
    }

    fn go_on(&mut self, cx: &mut Context<'_>, phase: Phase, event: Event) -> Result<Step, Fault> {
        match (phase, event) {
            (Phase::Quieting, Event::Drained) => self.read_chunk(cx),
            (Phase::Reading, Event::Completed(completion)) => self.chunk_read(cx, completion),
            (Phase::Writing, Event::Completed(completion)) => self.chunk_written(cx, completion),
            (Phase::Zeroing(mut fill), Event::Completed(completion)) => match fill.completed(cx, completion, false) {
                Ok(filled) => self.zeroed(fill, filled),
                Err(fault) => self.pause(cx, Resume::Rest, fault),
            },
            (Phase::Wanting(record), Event::Token) => self.look(cx, record),
            (Phase::Looking(record, copy), Event::Completed(completion)) => self.looked(cx, record, copy, completion),
            // Whatever the timer says: where there are none it is said at once.
            (Phase::Pausing(resume), Event::Completed(_)) => match resume {
                Resume::Chunk => self.next_chunk(cx),
                Resume::Rest => self.zero_the_rest(cx),
                Resume::Record(record) => Ok(self.want(record)),
            },
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn next_chunk(&mut self, cx: &mut Context<'_>) -> Result<Step, Fault> {
        if cx.claims.is_asked_to_end(cx.index) {
            let mark = self.bytes(cx, self.to.done);
            return Err(Fault::MoveStopped { mark });
        }
        if self.to.done >= self.inode.blocks {
            // Everything goes to the target already.
            if let Some(hold) = self.hold.take() {
                cx.release_hold(hold);
            }
            self.buffer = None;
            return self.zero_the_rest(cx);
        }
        let range = self.bytes(cx, self.to.done)..self.bytes(cx, self.to.done + self.chunk(cx));
        let hold = match self.hold {
            Some(hold) => {
                cx.move_hold(hold, range);
                hold
            }
            None => cx.hold(self.address, range),
        };
        self.hold = Some(hold);
        self.phase = Phase::Quieting;
        Ok(Step::Quiet(hold))
    }

    /// Blocks to copy next.
    fn chunk(&self, cx: &Context<'_>) -> u64 {
        let share = cx.engine.arena().size() as u64 / ARENA_SHARE;
        let blocks = CHUNK_BYTES.min(share) / u64::from(cx.volume.block_size());
        blocks.max(1).min(self.inode.blocks - self.to.done)
    }

    fn read_chunk(&mut self, cx: &mut Context<'_>) -> Result<Step, Fault> {
        let at = self.place(cx, self.inode.start_block)?;
        let len = self.bytes(cx, self.chunk(cx)) as usize;
        // That of the chunk before is large enough: all have one size, and the last less.
        let begun = match self.buffer.take().map_or_else(|| cx.buffer(len), Ok) {
            Ok(mut buffer) => {
                buffer.set_len(len);
                cx.read_into(Part::Main, at, buffer).map_err(|(fault, _)| fault)
            }
            Err(fault) => Err(fault),
        };
        match begun {
            Ok(()) => {
                self.phase = Phase::Reading;
                Ok(Step::Requests)
            }
            Err(fault) => self.pause(cx, Resume::Chunk, fault),
        }
    }

    fn chunk_read(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<Step, Fault> {
        self.must_be_whole(cx, &completion)?;
        let at = self.place(cx, self.to.start)?;
        match cx.write(at, completion.memory, Durability::Data) {
            Ok(()) => {
                self.phase = Phase::Writing;
                Ok(Step::Requests)
            }
            Err(fault) => self.pause(cx, Resume::Chunk, fault),
        }
    }

    fn chunk_written(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<Step, Fault> {
        self.must_be_whole(cx, &completion)?;
        let copied = u64::from(completion.bytes_done) / u64::from(cx.volume.block_size());
        self.buffer = completion.memory.into_buffer();
        if crate::seeded_bug("mark-in-memory-only") {
            self.to.done += copied;
            self.show(cx, 0)?;
            return self.next_chunk(cx);
        }
        Ok(self.want(Record::Mark(self.to.done + copied)))
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

    fn zero_the_rest(&mut self, cx: &mut Context<'_>) -> Result<Step, Fault> {
        let copied = self.inode.blocks;
        if self.blocks <= copied {
            return Ok(self.want(Record::End));
        }
        // The record says that it moves: it ends, else both runs stay taken.
        let mut fill =
            Fill::new(cx, self.to.start + copied, self.blocks - copied, Zeroing::Written)?.going_to_the_end();
        match fill.go_on(cx, false) {
            Ok(filled) => self.zeroed(fill, filled),
            Err(fault) => self.pause(cx, Resume::Rest, fault),
        }
    }

    fn zeroed(&mut self, fill: Fill, filled: Filled) -> Result<Step, Fault> {
        if filled == Filled::UnderWay {
            self.phase = Phase::Zeroing(fill);
            return Ok(Step::Requests);
        }
        Ok(self.want(Record::End))
    }

    fn want(&mut self, record: Record) -> Step {
        self.phase = Phase::Wanting(record);
        Step::Token
    }

    /// The bucket is read anew for each record: others change their inodes in it meanwhile.
    fn look(&mut self, cx: &mut Context<'_>, record: Record) -> Result<Step, Fault> {
        if let Err(fault) = read_pair(cx, self.address.bucket, Place::Table) {
            cx.release_token();
            return self.pause(cx, Resume::Record(record), fault);
        }
        self.phase = Phase::Looking(record, None);
        Ok(Step::Requests)
    }

    fn looked(
        &mut self,
        cx: &mut Context<'_>,
        record: Record,
        copy: Option<BucketCopy>,
        completion: Completion,
    ) -> Result<Step, Fault> {
        let copy = match copy {
            Some(mut copy) => {
                copy.add_mirror(bytes_of(completion)?);
                copy
            }
            None => bucket_copy(cx, self.address.bucket, completion)?,
        };
        if copy.needs_mirror() {
            if let Err(fault) = read_pair(cx, self.address.bucket, Place::Mirror) {
                cx.release_token();
                return self.pause(cx, Resume::Record(record), fault);
            }
            self.phase = Phase::Looking(record, Some(copy));
            return Ok(Step::Requests);
        }
        let geometry = *cx.volume.superblock.geometry();
        let found = copy.image()?.slot(self.address.slot, &geometry).and_then(Result::ok);
        if found.as_ref() != Some(&*self.inode) {
            return Err(Fault::Corrupt("its inode was changed while it was being moved".into()));
        }
        let next = self.next_inode(cx, record);
        match Update::begin(cx, copy, self.address, &next) {
            Ok(update) => {
                self.phase = Phase::Recording(record, next, update);
                Ok(Step::Requests)
            }
            Err(fault) => {
                cx.release_token();
                self.pause(cx, Resume::Record(record), fault)
            }
        }
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

    fn recorded(
        &mut self,
        cx: &mut Context<'_>,
        record: Record,
        next: Box<Inode>,
        mut update: Update,
        completion: Completion,
    ) -> Result<Moved, Fault> {
        match update.completed(cx, completion) {
            Ok(Updated::Writing) => {
                self.phase = Phase::Recording(record, next, update);
                return Ok(Moved::Waits(Step::Requests));
            }
            Ok(Updated::Done) => {}
            Err(fault) => {
                let doubt = match record {
                    _ if !cx.volume.is_latched() => 0, // Nothing was written.
                    Record::Mark(done) => done - self.to.done,
                    // Whichever holds: all is in the source, or all in the target.
                    Record::Begin | Record::End => 0,
                };
                if self.never_began(cx).is_some() {
                    let _ = cx.volume.free.release(self.to.start, self.to.blocks);
                }
                return self.stop(cx, fault, doubt).map(Moved::Waits);
            }
        }
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
                cx.objects.moved(self.address, start, size);
                cx.show_size(self.address, size);
                cx.volume.unfinished_moves.retain(|moving| *moving != self.address);
                // It was the segment's until now.
                let _ = cx.volume.free.release(before.start_block, before.reserve_blocks);
                return Ok(Moved::Ended(self.inode.clone()));
            }
        }
        self.show(cx, 0)?;
        let stepped = self.next_chunk(cx);
        stepped.or_else(|fault| self.stop(cx, fault, 0)).map(Moved::Waits)
    }

    /// Ends the move where it stands.
    fn stop(&mut self, cx: &mut Context<'_>, fault: Fault, doubt: u64) -> Result<Step, Fault> {
        cx.release_token();
        self.buffer = None;
        // First the handles, then who waited: what crosses the mark is to be refused.
        self.show(cx, doubt)?;
        if let Some(hold) = self.hold.take() {
            cx.release_hold(hold);
        }
        Err(fault)
    }

    /// Tells the handles where the segment lives.
    fn show(&self, cx: &mut Context<'_>, doubt: u64) -> Result<(), Fault> {
        let moving = Moving {
            target: self.run_at(cx, self.to.start)?,
            mark: self.bytes(cx, self.to.done),
            doubt: self.bytes(cx, doubt),
        };
        if self.inode.state == InodeState::Moving {
            cx.objects.set_moving(self.address, Some(moving));
        }
        Ok(())
    }

    fn pause(&mut self, cx: &mut Context<'_>, resume: Resume, fault: Fault) -> Result<Step, Fault> {
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
        let at = cx.engine.now().after(pause);
        let policy = cx.volume.device.policy(Durability::None);
        cx.submit_as(Part::Main, Request::bare(Op::Timer { at }, None, policy), true)?;
        self.phase = Phase::Pausing(resume);
        Ok(Step::Requests)
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
