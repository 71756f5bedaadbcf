//! Making a segment: zero its blocks, flush, one record. Nothing is visible before the record is durable, and nothing that
//! others left in the blocks is visible after it.
//!
//! The look-up that finds the name free, and a slot for it, is under way beside the zeroing. The slot is kept with the
//! bucket as it was read, and still holds when no table update has begun meanwhile; else the name is looked up again. So a
//! lone create waits for: look-up and zeroes together, the flush, the table, mirror and read-back together.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

pub use baio_words::{CreateOptions, NO_GROUP};

use crate::error::Fault;
use crate::identity::Sight;
use crate::operation::fill::Fill;
use crate::operation::lookup::{Looked, SlotCopy, lookup};
use crate::operation::repeat::{OperationName, Traced, unknown};
use crate::operation::update::Update;
use crate::operation::waits::{token, with};
use crate::operation::{Answer, Context, Failed, Operation, Part, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::volume::Volume;
use crate::volume::accounts::{EVERYBODY_ELSE, Usage, kept_back};

/// A run of blocks taken from the free set, in blocks.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    /// Asked for, in whole blocks.
    blocks: u64,
    /// Taken: what may be grown into as well.
    reserve: u64,
}

/// A segment is made.
pub(crate) fn create(subject: Subject, options: CreateOptions, operation: OperationName) -> Operation {
    let asked = Create {
        options,
        operation,
        run: None,
    };
    Operation::changing(subject, asked.run())
}

/// A create under way.
struct Create {
    options: CreateOptions,
    operation: OperationName,
    /// Charged and taken; given back by whatever fails before its record may be on the device.
    run: Option<Run>,
}

impl Create {
    async fn run(mut self) -> Result<Answer, Failed> {
        let created = self.go().await;
        if created.is_err() {
            with(|cx| self.give_back(cx));
        }
        Ok(created?)
    }

    async fn go(&mut self) -> Result<Answer, Fault> {
        with(|cx| self.may_be(cx))?;
        token().await?;
        if self.operation.is_repeat {
            return self.recall().await;
        }
        let place = self.prepare().await?;
        token().await?;
        let is_as_it_was = with(|cx| place.holds(cx)) || crate::seeded_bug("two-updates-from-one-image");
        let place = if is_as_it_was {
            place
        } else {
            drop(place);
            free_place().await?
        };
        self.record(place).await
    }

    fn may_be(&self, cx: &Context<'_>) -> Result<(), Fault> {
        cx.subject.may_change(cx.volume)?;
        let who = cx.subject.who;
        if self.options.size_bytes == 0 {
            return Err(Fault::BadSize("a segment has at least one byte".into()));
        }
        if cx.subject.key.owner_uid == EVERYBODY_ELSE {
            return Err(Fault::Access { uid: who.uid });
        }
        match self.options.group.filter(|gid| !who.may_give_to(*gid)) {
            Some(gid) => Err(Fault::Group { gid }),
            None => Ok(()),
        }
    }

    /// A repeat: was it done before?
    async fn recall(&self) -> Result<Answer, Fault> {
        let key = with(|cx| cx.subject.key.clone());
        let found = lookup(key).await?.found();
        let own = OperationName::again(self.operation.id);
        let done = found
            .filter(|found| own.has_written(&found.inode))
            .ok_or_else(unknown)?;
        with(|cx| {
            cx.release_token();
            cx.segment(&done.inode)
        })
    }

    /// Looks whether the name is free, and fills the blocks with zeroes meanwhile.
    async fn prepare(&mut self) -> Result<SlotCopy, Fault> {
        let look = async {
            let looked = free_place().await;
            with(|cx| cx.release_token());
            looked
        };
        match with(|cx| self.take_run(cx)) {
            Ok(fill) => {
                let prepared = beside(fill, look).await;
                with(|cx| cx.shown.progress = None);
                prepared
            }
            // No run can be had. It is looked only to say the right thing: that it exists says more.
            Err(fault) => match look.await {
                Err(Fault::Exists) => Err(Fault::Exists),
                _ => Err(fault),
            },
        }
    }

    fn take_run(&mut self, cx: &mut Context<'_>) -> Result<Fill, Fault> {
        let run = self.allocate(cx)?;
        self.run = Some(run);
        Fill::new(cx, run.start, run.blocks, self.options.zero)
    }

    fn allocate(&self, cx: &mut Context<'_>) -> Result<Run, Fault> {
        let segments_max = cx.volume.superblock.geometry().segments_max;
        let kept_back = match cx.volume.device.sight(cx.subject.who) {
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
        let owner = cx.subject.key.owner_uid;
        let more = Usage {
            blocks: reserve,
            segments: 1,
        };
        let Volume { free, accounts, .. } = &mut *cx.volume;
        accounts
            .charge(owner, more)
            .map_err(|over| Fault::over_quota(over, block_size))?;
        match free.allocate(reserve) {
            Some(start) => Ok(Run { start, blocks, reserve }),
            None => {
                accounts.give_back(owner, more);
                Err(cx.no_space(reserve))
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
            cx.volume.accounts.give_back(cx.subject.key.owner_uid, less);
        }
        // It was allocated by this operation, so it can be released.
        let _ = cx.volume.free.release(run.start, run.reserve);
    }

    /// A record whose write failed may or may not be on the device: the volume is latched and the run stays taken. Where it
    /// is not latched, nothing was written, and the run is given back.
    async fn record(&mut self, place: SlotCopy) -> Result<Answer, Fault> {
        let inode = with(|cx| self.inode(cx, &place).map(Box::new))?;
        let update = with(|cx| Update::begin(cx, place.bucket, place.at, &inode))?;
        let recorded = update.ended().await;
        with(|cx| {
            if cx.volume.is_latched() || recorded.is_ok() {
                self.run = None; // It is, or may be, the segment's on the device: nothing gives it back.
            }
            recorded?;
            cx.release_token();
            cx.segment(&inode)
        })
    }

    /// The caller's group is nobody's business in a segment that it makes for another: without a named one it has none.
    fn owner_gid(&self, cx: &Context<'_>) -> u32 {
        let who = cx.subject.who;
        let own = if who.uid == cx.subject.key.owner_uid {
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
        cx.lane.engine_mut().random(&mut uuid)?;
        Ok(Inode {
            state: InodeState::Live,
            name: cx.subject.key.name.clone(),
            owner_uid: cx.subject.key.owner_uid,
            owner_gid: self.owner_gid(cx),
            mode: self.options.mode & 0o777,
            generation: place.next_generation(cx)?,
            uuid,
            start_block: run.start,
            blocks: run.blocks,
            reserve_blocks: run.reserve,
            zeroed_to: run.blocks,
            alloc_seq: cx.volume.next_alloc_seq(),
            created_ns: cx.lane.engine().wall_clock().0,
            operation_id: self.operation.id,
            ..Inode::default()
        })
    }
}

/// A slot for the name, which is free.
async fn free_place() -> Result<SlotCopy, Fault> {
    let key = with(|cx| cx.subject.key.clone());
    match lookup(key).await? {
        Looked::Absent(Some(place)) => Ok(place),
        Looked::Absent(None) => Err(with(|cx| cx.table_full())),
        Looked::Found(_) => Err(Fault::Exists),
    }
}

/// Waits for a look-up, and for zeroes beside it.
async fn beside(mut fill: Fill, look: impl Future<Output = Result<SlotCopy, Fault>> + Send) -> Result<SlotCopy, Fault> {
    let mut look = pin!(look);
    let mut unfilled = None;
    let looked = poll_fn(|task| {
        let zeroed = with(|cx| cx.take_completion_of(Part::Zeroes));
        if zeroed.is_none() {
            if let Poll::Ready(looked) = look.as_mut().poll(task) {
                return Poll::Ready(looked);
            }
        }
        // What there is no room for beside the look-up begins when that has ended.
        let filled = with(|cx| match zeroed {
            Some(completion) => fill.completed(cx, completion, true),
            None => fill.go_on(cx, true),
        });
        if let Err(fault) = filled {
            unfilled = Some(fault);
            fill.stop();
        }
        Poll::Pending
    })
    .await;
    match looked {
        Err(Fault::Unexpected(_)) => return looked, // What is under way is nobody's.
        Err(_) => fill.stop(),
        Ok(_) => {}
    }
    let late = fill.run().await.err();
    match looked {
        // That it exists says more than why it could not be made.
        Err(Fault::Exists) => Err(Fault::Exists),
        Err(fault) => Err(unfilled.unwrap_or(fault)),
        Ok(place) => unfilled.or(late).map_or(Ok(place), Err),
    }
}
