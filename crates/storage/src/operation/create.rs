//! Making a segment: zero its blocks, flush, one record. Nothing is visible before the record is durable, and nothing that
//! others left in the blocks is visible after it.

use baio_engine::{Completion, Frozen, Memory};

use crate::error::Fault;
use crate::operation::lookup::{Looked, Lookup};
use crate::operation::update::{Update, Updated};
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;
use crate::volume::Volume;
use crate::volume::accounts::Usage;
use crate::volume::inspect::SegmentInfo;
use crate::volume::table::BucketCopy;

/// Writes of zeroes at a time, and bytes of each.
const ZERO_DEPTH: u32 = 8;
const ZERO_BYTES: u64 = 1 << 20;

/// What the segment is to be like.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Size in bytes; rounded up to whole blocks.
    pub size_bytes: u64,
    /// Bytes up to which it can later grow in place; 0 for no more than its size.
    pub reserve_bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// The owner's group; `None` takes the caller's.
    pub group: Option<u32>,
    /// Names the operation, so that a repeat of it can be recognised.
    pub operation_id: [u8; 16],
}

impl CreateOptions {
    /// A private segment of this size.
    #[must_use]
    pub fn of_size(size_bytes: u64) -> CreateOptions {
        CreateOptions {
            size_bytes,
            reserve_bytes: 0,
            mode: 0o600,
            group: None,
            operation_id: [0; 16],
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

/// Where the operation stands.
enum Phase {
    /// Waiting to look whether the name is free.
    Begin,
    /// Looking.
    Checking(Lookup),
    /// Filling the blocks with zeroes; how many bytes are submitted, and how many writes are under way.
    Zeroing {
        run: Run,
        submitted: u64,
        under_way: u32,
        failed: Option<Fault>,
    },
    /// Making the zeroes durable.
    Flushing(Run),
    /// Waiting to look again: the name may have been taken meanwhile.
    Zeroed(Run),
    /// Looking again, for the slot.
    Placing(Run, Lookup),
    /// Writing the record.
    Recording(Run, Box<Inode>, Update),
}

/// A create under way.
pub(crate) struct Create {
    pub(super) subject: Subject,
    options: CreateOptions,
    phase: Phase,
    zeros: Option<Frozen>,
}

impl Create {
    pub(crate) fn new(subject: Subject, options: CreateOptions) -> Create {
        Create {
            subject,
            options,
            phase: Phase::Begin,
            zeros: None,
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let phase = std::mem::replace(&mut self.phase, Phase::Begin);
        match (phase, event) {
            (Phase::Begin, Event::Begin) => self.begin(cx),
            (Phase::Begin, Event::Token) => {
                self.phase = Phase::Checking(Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Checking(lookup), Event::Completed(completion)) => self.checked(cx, lookup, completion),
            (
                Phase::Zeroing {
                    run,
                    submitted,
                    under_way,
                    failed,
                },
                Event::Completed(completion),
            ) => {
                let failed = failed.or(completion.result.err().map(Fault::Io));
                drop(completion.memory); // What comes next may need it.
                self.zero(cx, run, submitted, under_way - 1, failed)
            }
            (Phase::Flushing(run), Event::Completed(completion)) => {
                self.or_give_back(cx, run, completion.result.map_err(Fault::Io))?;
                self.phase = Phase::Zeroed(run);
                Ok(Step::Token)
            }
            (Phase::Zeroed(run), Event::Token) => {
                let lookup = Lookup::begin(cx, self.subject.key.clone());
                let lookup = self.or_give_back(cx, run, lookup)?;
                self.phase = Phase::Placing(run, lookup);
                Ok(Step::Requests)
            }
            (Phase::Placing(run, lookup), Event::Completed(completion)) => self.placed(cx, run, lookup, completion),
            (Phase::Recording(run, inode, update), Event::Completed(completion)) => {
                self.recorded(cx, run, inode, update, completion)
            }
            (phase, _) => {
                // Nothing else can happen in any phase; going on where it stood loses nothing.
                self.phase = phase;
                Ok(Step::Requests)
            }
        }
    }

    fn begin(&self, cx: &Context<'_>) -> Result<Step, Fault> {
        self.subject.may_change(cx.volume)?;
        if self.options.size_bytes == 0 {
            return Err(Fault::BadSize("a segment has at least one byte".into()));
        }
        Ok(Step::Token)
    }

    fn checked(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Checking(lookup);
                return Ok(Step::Requests);
            }
            Looked::Found { .. } => return Err(Fault::Exists),
            Looked::Absent(_) => {}
        }
        let run = self.allocate(cx)?;
        cx.release_token();
        self.zero(cx, run, 0, 0, None)
    }

    fn allocate(&self, cx: &mut Context<'_>) -> Result<Run, Fault> {
        let segments_max = cx.volume.superblock.geometry().segments_max;
        if cx.volume.accounts.segments() >= segments_max {
            return Err(Fault::TableFull { segments_max });
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

    /// The run goes back when the operation fails before its record may be on the device.
    fn or_give_back<T>(&self, cx: &mut Context<'_>, run: Run, result: Result<T, Fault>) -> Result<T, Fault> {
        if result.is_err() {
            self.give_back(cx, run);
        }
        result
    }

    fn give_back(&self, cx: &mut Context<'_>, run: Run) {
        let less = Usage {
            blocks: run.reserve,
            segments: 1,
        };
        cx.volume.accounts.give_back(self.subject.key.owner_uid, less);
        // It was allocated by this operation, so it can be released.
        let _ = cx.volume.free.release(run.start, run.reserve);
    }

    /// Keeps some writes of zeroes under way until the run is filled, then flushes.
    fn zero(
        &mut self,
        cx: &mut Context<'_>,
        run: Run,
        mut submitted: u64,
        mut under_way: u32,
        mut failed: Option<Fault>,
    ) -> Result<Step, Fault> {
        let total = run.blocks.saturating_mul(u64::from(cx.volume.block_size()));
        while failed.is_none() && submitted < total && under_way < ZERO_DEPTH {
            match self.zero_one(cx, run, submitted, total - submitted) {
                Ok(len) => {
                    submitted += len;
                    under_way += 1;
                }
                // One of those under way gives back what is missing.
                Err(Fault::Io(baio_engine::Error::Full) | Fault::NoMemory { .. }) if under_way > 0 => break,
                Err(fault) => failed = Some(fault),
            }
        }
        if under_way > 0 {
            self.phase = Phase::Zeroing {
                run,
                submitted,
                under_way,
                failed,
            };
            return Ok(Step::Requests);
        }
        let flushed = failed.map_or(Ok(()), Err).and_then(|()| cx.sync());
        self.or_give_back(cx, run, flushed)?;
        self.zeros = None;
        self.phase = Phase::Flushing(run);
        Ok(Step::Requests)
    }

    /// Begins to fill some of what is left; says how much.
    fn zero_one(&mut self, cx: &mut Context<'_>, run: Run, at: u64, left: u64) -> Result<u64, Fault> {
        let start = cx.volume.layout().block_at(run.start).unwrap_or(u64::MAX);
        let zeros = match &self.zeros {
            Some(zeros) if zeros.len() as u64 <= left => zeros.clone(),
            _ => {
                self.zeros = None;
                let zeros = some_zeros(cx, ZERO_BYTES.min(left))?;
                self.zeros = Some(zeros.clone());
                zeros
            }
        };
        let len = zeros.len() as u64;
        let memory = Memory::Shared(zeros);
        cx.write(start.saturating_add(at), memory, baio_engine::Durability::None)?;
        Ok(len)
    }

    fn placed(
        &mut self,
        cx: &mut Context<'_>,
        run: Run,
        mut lookup: Lookup,
        completion: Completion,
    ) -> Result<Step, Fault> {
        let looked = lookup.completed(cx, completion);
        match self.or_give_back(cx, run, looked)? {
            Looked::Reading => {
                self.phase = Phase::Placing(run, lookup);
                Ok(Step::Requests)
            }
            Looked::Found { .. } => {
                self.give_back(cx, run);
                Err(Fault::Exists)
            }
            Looked::Absent(None) => {
                self.give_back(cx, run);
                let segments_max = cx.volume.superblock.geometry().segments_max;
                Err(Fault::TableFull { segments_max })
            }
            Looked::Absent(Some((address, bucket))) => self.record(cx, run, address, &bucket),
        }
    }

    fn record(&mut self, cx: &mut Context<'_>, run: Run, at: SlotAddress, bucket: &BucketCopy) -> Result<Step, Fault> {
        let inode = self.inode(cx, run, at, bucket);
        let inode = self.or_give_back(cx, run, inode)?;
        let update = Update::begin(cx, bucket, at, &inode);
        let update = self.or_give_back(cx, run, update)?;
        self.phase = Phase::Recording(run, Box::new(inode), update);
        Ok(Step::Requests)
    }

    fn inode(&self, cx: &mut Context<'_>, run: Run, at: SlotAddress, bucket: &BucketCopy) -> Result<Inode, Fault> {
        let geometry = *cx.volume.superblock.geometry();
        let before = bucket
            .image()?
            .slot(at.slot, &geometry)
            .and_then(Result::ok)
            .unwrap_or_default();
        let mut uuid = [0; 16];
        cx.engine.random(&mut uuid)?;
        Ok(Inode {
            state: InodeState::Live,
            name: self.subject.key.name.clone(),
            owner_uid: self.subject.key.owner_uid,
            owner_gid: self.options.group.unwrap_or(self.subject.who.gid),
            mode: self.options.mode & 0o777,
            generation: before.next_generation(),
            uuid,
            start_block: run.start,
            blocks: run.blocks,
            reserve_blocks: run.reserve,
            zeroed_to: run.blocks,
            alloc_seq: cx.volume.next_alloc_seq(),
            operation_id: self.options.operation_id,
            ..Inode::default()
        })
    }

    /// A record whose write failed may or may not be on the device: the volume is latched and the run stays taken.
    fn recorded(
        &mut self,
        cx: &mut Context<'_>,
        run: Run,
        inode: Box<Inode>,
        mut update: Update,
        completion: Completion,
    ) -> Result<Step, Fault> {
        match update.completed(cx, completion)? {
            Updated::Writing => {
                self.phase = Phase::Recording(run, inode, update);
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

/// So many zeroes, or as many as there is memory for: whole blocks in either case.
fn some_zeros(cx: &Context<'_>, wanted: u64) -> Result<Frozen, Fault> {
    let block_size = u64::from(cx.volume.block_size());
    let mut len = wanted;
    loop {
        match cx.engine.buffer(len as usize) {
            Some(mut buffer) => {
                buffer.fill(0);
                return Ok(buffer.freeze());
            }
            None if len <= block_size => return Err(Fault::NoMemory { asked: len }),
            None => len = (len / 2).next_multiple_of(block_size),
        }
    }
}
