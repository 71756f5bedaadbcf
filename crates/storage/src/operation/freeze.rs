//! Freezing: the device keeps still, for a copy of the volume's file that is of one moment.
//!
//! ```text
//!   draining        callers' writes, discards and zeros wait, as behind a hold; those that the page cache has end
//!   writing back    what the cache has of segments goes to the device, but for what waits for a log, and segments that are being deleted
//!   token           no operation is between two records
//!   settling        what other operations are told waits, and so do the cache's own writes; what the device is at work on ends
//!   sync            then the answer; the token is free for those who only read
//! ```
//!
//! Other operations go on while the cache writes back: its writes wait for the chunk that a move has in hand.
//!
//! Nothing that was completed before the answer is missing on the device, and nothing changes there until the last of those who
//! froze the volume has thawed it. So a copy that is made meanwhile opens as after a crash, with everything. Reads go on, and
//! changes of pinned pages stay in memory.

use crate::cache::CacheError;
use crate::crossing::{Stillness, ToLane};
use crate::error::Fault;
use crate::operation::waits::{completed, still, token, turned, uncached, with};
use crate::operation::{Answer, Context, Event, Failed, Kind, Operation, Part, Subject, Taking};
use crate::slot_map::SlotKey;

use baio_engine::{Durability, Errno, Op, Request};

/// Who keeps the device still, and what waits for the end of that.
#[derive(Default)]
pub(crate) struct Freeze {
    stillness: Stillness,
    /// Those who were told that it is frozen, and have not thawed it.
    holders: Vec<u64>,
    next: u64,
    /// The operation that brings it about.
    pub(crate) on_its_way: Option<u32>,
    /// What operations are told at the end.
    pub(crate) put_off: Vec<(SlotKey, Event)>,
}

impl Freeze {
    pub(crate) fn stillness(&self) -> Stillness {
        self.stillness
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.stillness != Stillness::None
    }

    /// One more wants the volume frozen: the number by which he thaws it.
    fn hold(&mut self) -> u64 {
        self.next += 1;
        self.holders.push(self.next);
        self.next
    }

    /// One wants it no more; whether it was the last.
    pub(crate) fn let_go(&mut self, freeze: u64) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| *holder != freeze);
        self.holders.len() < before && self.holders.is_empty()
    }

    pub(crate) fn has_holders(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Everybody may write again.
    pub(crate) fn end(&mut self) {
        self.stillness = Stillness::None;
        self.holders.clear();
    }
}

/// The volume is frozen.
pub(crate) fn freeze(subject: Subject) -> Operation {
    Operation::new(subject, Kind::Freezes, Taking::Alone, run())
}

async fn run() -> Result<Answer, Failed> {
    with(|cx| cx.must_see_all())?;
    while with(|cx| cx.freeze.is_wanted()) {
        if with(|cx| cx.freeze.has_holders()) {
            return Ok(with(frozen));
        }
        turned().await?; // Another one is on its way.
    }
    with(|cx| {
        be_still(cx, Stillness::Draining);
        cx.freeze.on_its_way = Some(cx.index);
    });
    still().await?;
    let cached_writes = write_back().await?;
    token().await?;
    with(|cx| be_still(cx, Stillness::Frozen));
    still().await?;
    with(|cx| {
        if cx.lane.cached_writes() < cached_writes {
            // Something that waited for a log has gone on meanwhile, and was not written back.
            return Err(Fault::from(Errno::EAGAIN));
        }
        let policy = cx.volume.device.policy(Durability::Full);
        let request = Request::bare(Op::Sync, Some(&cx.volume.device.file), policy);
        cx.submit_as(Part::Main, request, true)
    })?;
    completed().await?.result.map_err(Fault::Io)?;
    Ok(with(frozen))
}

fn be_still(cx: &mut Context<'_>, stillness: Stillness) {
    cx.freeze.stillness = stillness;
    cx.lane.obey(ToLane::BeStill(stillness));
}

/// Writes back what the cache has; how many callers' writes it had then.
async fn write_back() -> Result<usize, Fault> {
    let (writes, syncs) = with(|cx| {
        let syncs = cx.lane.write_back(cx.tag);
        (cx.lane.cached_writes(), syncs)
    });
    for _ in 0..syncs {
        match uncached().await {
            // Called off, because only the log could let it go on: what waits for that stays in memory. Or its segment is being
            // deleted, and nothing is left to be written.
            Ok(()) | Err(Fault::Cache(CacheError::Cancelled | CacheError::NoObject)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(writes)
}

fn frozen(cx: &mut Context<'_>) -> Answer {
    cx.lane.obey(ToLane::WrittenBack);
    Answer::Frozen {
        freeze: cx.freeze.hold(),
    }
}
