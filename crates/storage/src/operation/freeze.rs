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

use crate::cache;
use crate::error::Fault;
use crate::identity::Sight;
use crate::operation::{Answer, CALLED_OFF, Context, Event, Part, Step, Subject};
use crate::slot_map::SlotKey;

use baio_engine::{Durability, Errno, Op, Request};

/// Names one who wants the volume frozen, until he thaws it.
#[derive(Debug, PartialEq, Eq)]
pub struct FreezeId(u64);

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

/// Who keeps the device still, and what waits for the end of that.
#[derive(Default)]
pub(crate) struct Freeze {
    stillness: Stillness,
    /// Those who were told that it is frozen, and have not thawed it.
    holders: Vec<u64>,
    next: u64,
    /// The operation that brings it about.
    pub(crate) on_its_way: Option<u32>,
    /// Syncs of the cache that the freeze under way waits for.
    pub(crate) syncs: Vec<cache::RequestId>,
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

    fn hold(&mut self) -> FreezeId {
        self.next += 1;
        self.holders.push(self.next);
        FreezeId(self.next)
    }

    /// One wants it no more; whether it was the last.
    pub(crate) fn let_go(&mut self, id: &FreezeId) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| *holder != id.0);
        self.holders.len() < before && self.holders.is_empty()
    }

    pub(crate) fn has_holders(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Everybody may write again.
    pub(crate) fn end(&mut self) {
        self.stillness = Stillness::None;
        self.holders.clear();
        self.syncs.clear();
    }
}

/// Where the operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Draining,
    /// So many syncs of the cache have not ended.
    WritingBack(usize),
    /// Waiting for the token.
    Taking,
    Settling,
    Syncing,
}

/// A freeze on its way.
pub(crate) struct FreezeVolume {
    pub(super) subject: Subject,
    phase: Phase,
    /// Callers' writes that the cache had when it began to write back.
    cached_writes: usize,
}

impl FreezeVolume {
    pub(crate) fn new(subject: Subject) -> FreezeVolume {
        FreezeVolume {
            subject,
            phase: Phase::Begin,
            cached_writes: 0,
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let is_called_off = cx.is_abandoned || cx.claims.is_asked_to_end(cx.index);
        match (self.phase, event) {
            _ if is_called_off => Err(CALLED_OFF),
            (Phase::Begin, Event::Begin) => match cx.volume.device.sight(self.subject.who) {
                Sight::Whole => Ok(self.begin(cx)),
                Sight::Own => Err(Fault::Access {
                    uid: self.subject.who.uid,
                }),
            },
            (Phase::Begin, Event::Turn) => Ok(self.begin(cx)),
            // Another one has ended.
            (_, Event::Turn) => Ok(Step::Requests),
            (Phase::Draining, Event::Still) => {
                self.cached_writes = cx.requests.cached_writes();
                let tag = cx.tag;
                if let Some(cached) = &mut cx.cached {
                    cx.freeze.syncs = cached.write_back(cx.objects, tag);
                }
                let count = cx.freeze.syncs.len();
                Ok(self.write_back(count))
            }
            (Phase::WritingBack(count), Event::Uncached(ended)) => {
                // Called off, because only the log could let it go on: what waits for that stays in memory. Or its segment is being
                // deleted, and nothing is left to be written.
                ended.or_else(|fault| match fault {
                    Fault::Cache(cache::CacheError::Cancelled | cache::CacheError::NoObject) => Ok(()),
                    fault => Err(fault),
                })?;
                Ok(self.write_back(count - 1))
            }
            (Phase::Taking, Event::Token) => {
                cx.freeze.stillness = Stillness::Frozen;
                self.phase = Phase::Settling;
                Ok(Step::Still)
            }
            // Something that waited for a log has gone on meanwhile, and was not written back.
            (Phase::Settling, Event::Still) if cx.requests.cached_writes() < self.cached_writes => {
                Err(Fault::from(Errno::EAGAIN))
            }
            (Phase::Settling, Event::Still) => {
                let policy = cx.volume.device.policy(Durability::Full);
                let request = Request::bare(Op::Sync, Some(&cx.volume.device.file), policy);
                cx.submit_as(Part::Main, request, true)?;
                self.phase = Phase::Syncing;
                Ok(Step::Requests)
            }
            (Phase::Syncing, Event::Completed(completion)) => {
                completion.result?;
                Ok(frozen(cx))
            }
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    /// Waits for the end of another one's way; else begins its own.
    fn begin(&mut self, cx: &mut Context<'_>) -> Step {
        match cx.freeze.is_wanted() {
            true if cx.freeze.has_holders() => frozen(cx),
            true => Step::Requests,
            false => {
                cx.freeze.stillness = Stillness::Draining;
                cx.freeze.on_its_way = Some(cx.index);
                self.phase = Phase::Draining;
                Step::Still
            }
        }
    }

    fn write_back(&mut self, left: usize) -> Step {
        if left > 0 {
            self.phase = Phase::WritingBack(left);
            return Step::Uncached;
        }
        self.phase = Phase::Taking;
        Step::Token
    }
}

fn frozen(cx: &mut Context<'_>) -> Step {
    cx.freeze.syncs.clear();
    Step::Done(Ok(Answer::Frozen(cx.freeze.hold())))
}
