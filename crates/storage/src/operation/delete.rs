//! Deleting a segment: refuse new requests, let those under way end, record, and only then give the blocks back.

use baio_engine::Completion;

use crate::error::Fault;
use crate::object::State;
use crate::operation::lookup::{Looked, Lookup};
use crate::operation::update::{Update, Updated};
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;
use crate::volume::inspect::SegmentInfo;
use crate::volume::table::BucketCopy;
use crate::volume::usage_of;

/// The segment to go, as it was found.
struct Doomed {
    address: SlotAddress,
    inode: Box<Inode>,
    bucket: Option<BucketCopy>,
}

/// Where the operation stands.
enum Phase {
    /// Waiting to look.
    Begin,
    /// Looking.
    Looking(Lookup),
    /// Waiting for the requests on its handles to end.
    Draining(Doomed),
    /// Writing the tombstone.
    Recording(Doomed, Update),
}

/// A delete under way.
pub(crate) struct Delete {
    pub(super) subject: Subject,
    operation_id: [u8; 16],
    phase: Phase,
}

impl Delete {
    pub(crate) fn new(subject: Subject, operation_id: [u8; 16]) -> Delete {
        Delete {
            subject,
            operation_id,
            phase: Phase::Begin,
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let phase = std::mem::replace(&mut self.phase, Phase::Begin);
        match (phase, event) {
            (Phase::Begin, Event::Begin) => {
                self.subject.may_change(cx.volume)?;
                Ok(Step::Token)
            }
            (Phase::Begin, Event::Token) => {
                self.phase = Phase::Looking(Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Looking(lookup), Event::Completed(completion)) => self.looked(cx, lookup, completion),
            (Phase::Draining(doomed), Event::Drained) => self.record(cx, doomed),
            (Phase::Recording(doomed, update), Event::Completed(completion)) => {
                self.recorded(cx, doomed, update, completion)
            }
            (phase, _) => {
                // Nothing else can happen in any phase; going on where it stood loses nothing.
                self.phase = phase;
                Ok(Step::Requests)
            }
        }
    }

    fn looked(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Looking(lookup);
                Ok(Step::Requests)
            }
            Looked::Absent(_) => Err(Fault::NotFound),
            Looked::Found { inode, .. } if !matches!(inode.state, InodeState::Live | InodeState::Quarantined) => {
                // No operation of this build leaves one in such a state.
                let why = "the segment is being moved or deleted by a newer program, which this build cannot finish";
                Err(Fault::Version(why.into()))
            }
            Looked::Found { address, inode, bucket } => {
                let doomed = Doomed {
                    address,
                    inode,
                    bucket: Some(bucket),
                };
                if cx.drain(address) > 0 {
                    self.phase = Phase::Draining(doomed);
                    return Ok(Step::Drain(address));
                }
                self.record(cx, doomed)
            }
        }
    }

    fn record(&mut self, cx: &mut Context<'_>, mut doomed: Doomed) -> Result<Step, Fault> {
        let tombstone = doomed.inode.tombstone(self.operation_id);
        match Update::begin(
            cx,
            doomed.bucket.take().ok_or(Fault::NotFound)?,
            doomed.address,
            &tombstone,
        ) {
            Ok(update) => {
                self.phase = Phase::Recording(doomed, update);
                Ok(Step::Requests)
            }
            Err(fault) => {
                cx.objects.move_segment(doomed.address, State::Open);
                Err(fault)
            }
        }
    }

    fn recorded(
        &mut self,
        cx: &mut Context<'_>,
        doomed: Doomed,
        mut update: Update,
        completion: Completion,
    ) -> Result<Step, Fault> {
        match update.completed(cx, completion)? {
            Updated::Writing => {
                self.phase = Phase::Recording(doomed, update);
                Ok(Step::Requests)
            }
            Updated::Done => {
                self.finish(cx, &doomed);
                let name = doomed.inode.name.clone().ok_or(Fault::NotFound)?;
                let info = SegmentInfo::of(&doomed.inode, &name, cx.volume.block_size(), false);
                Ok(Step::Done(Ok(Answer::Segment(info))))
            }
        }
    }

    /// The tombstone is durable: only now may the blocks become somebody else's.
    fn finish(&self, cx: &mut Context<'_>, doomed: &Doomed) {
        cx.release_token();
        cx.objects.move_segment(doomed.address, State::Gone);
        cx.volume
            .accounts
            .give_back(doomed.inode.owner_uid, usage_of(&doomed.inode));
        // The blocks of a quarantined segment belong to another one.
        if !cx.volume.quarantined.remove(&doomed.address) {
            let inode = &doomed.inode;
            cx.volume.release(inode.start_block, inode.reserve_blocks);
        }
    }
}
