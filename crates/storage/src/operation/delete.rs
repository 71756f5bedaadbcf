//! Deleting a segment: refuse new requests, let those under way end, record, and only then give the blocks back.
//!
//! A segment that is being moved is deleted where its move stands: the move is asked to end at its mark, then both runs go.

use baio_engine::Completion;

use crate::error::Fault;
use crate::object::ObjectState;
use crate::operation::claims::Claim;
use crate::operation::lookup::{Looked, Lookup};
use crate::operation::repeat::{OperationName, unknown};
use crate::operation::update::Updated;
use crate::operation::vacate::Vacate;
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
}

/// Where the operation stands.
enum Phase {
    /// Waiting to look.
    Begin,
    /// Looking.
    Looking(Lookup),
    /// Waiting for the requests on its handles to end, without the token.
    Draining,
    /// They have ended; waiting to look again.
    Drained,
    /// Writing the record.
    Recording(Doomed, Vacate),
}

/// A delete under way.
pub(crate) struct Delete {
    pub(super) subject: Subject,
    operation: OperationName,
    phase: Phase,
    /// The segment whose handles refuse requests: they serve again if nothing comes of it.
    refusing: Option<SlotAddress>,
}

impl Delete {
    pub(crate) fn new(subject: Subject, operation: OperationName) -> Delete {
        Delete {
            subject,
            operation,
            phase: Phase::Begin,
            refusing: None,
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let stepped = self.go_on(cx, event);
        if stepped.is_err() {
            if let Some(address) = self.refusing.take() {
                cx.objects.move_segment(address, ObjectState::Open);
            }
        }
        stepped
    }

    fn go_on(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let phase = std::mem::replace(&mut self.phase, Phase::Begin);
        match (phase, event) {
            (Phase::Begin, Event::Begin) => {
                self.subject.may_change(cx.volume)?;
                Ok(Step::Token)
            }
            (Phase::Begin | Phase::Drained, Event::Token) => {
                self.phase = Phase::Looking(Lookup::begin(cx, self.subject.key.clone())?.tracing(self.operation));
                Ok(Step::Requests)
            }
            (Phase::Looking(lookup), Event::Completed(completion)) => self.looked(cx, lookup, completion),
            (Phase::Draining, Event::Drained) => {
                self.phase = Phase::Drained;
                Ok(Step::Token)
            }
            (Phase::Recording(doomed, vacate), Event::Completed(completion)) => {
                self.recorded(cx, doomed, vacate, completion)
            }
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn looked(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        let (address, inode, bucket) = match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Looking(lookup);
                return Ok(Step::Requests);
            }
            _ if self.operation.is_repeat => return self.recalled(cx, lookup),
            Looked::Absent(_) => return Err(Fault::NotFound),
            Looked::Found { address, inode, bucket } => (address, inode, bucket),
        };
        if cx.objects.segment_has_log(address) {
            return Err(Fault::HasLog);
        }
        if !cx.claims.claim(address, cx.index, Claim::Closed) {
            cx.claims.ask_to_end(address);
            return Ok(cx.wait_for_claim(address));
        }
        if self.refusing.is_none() {
            self.refusing = Some(address);
            if cx.drain(address) > 0 && !crate::seeded_bug("reuse-before-drain") {
                // Others may change the table meanwhile, but not this segment.
                cx.release_token();
                self.phase = Phase::Draining;
                return Ok(Step::Drain(address));
            }
        }
        self.record(cx, Doomed { address, inode }, bucket)
    }

    /// A repeat: what it left says that it was done, and nothing else says anything.
    fn recalled(&self, cx: &mut Context<'_>, mut lookup: Lookup) -> Result<Step, Fault> {
        let left = lookup.take_trace().ok_or_else(unknown)?;
        cx.release_token();
        let name = left.name.clone().ok_or(Fault::NotFound)?;
        let info = SegmentInfo::of(&left, &name, cx.volume.block_size(), false);
        Ok(Step::Done(Ok(Answer::Segment(info))))
    }

    fn record(&mut self, cx: &mut Context<'_>, doomed: Doomed, bucket: BucketCopy) -> Result<Step, Fault> {
        let tombstone = doomed.inode.tombstone(self.operation.id);
        let vacate = Vacate::begin(cx, bucket, doomed.address, &tombstone, None)?;
        self.phase = Phase::Recording(doomed, vacate);
        Ok(Step::Requests)
    }

    fn recorded(
        &mut self,
        cx: &mut Context<'_>,
        doomed: Doomed,
        mut vacate: Vacate,
        completion: Completion,
    ) -> Result<Step, Fault> {
        let had_begun = vacate.has_begun();
        let recorded = vacate.completed(cx, completion);
        if recorded.is_err() && had_begun && cx.volume.is_latched() {
            // Neither gone nor there: no request may reach its blocks.
            self.refusing = None;
            cx.volume.doubt(doomed.address);
            cx.forget_cached(doomed.address);
        }
        match recorded? {
            Updated::Writing => {
                self.phase = Phase::Recording(doomed, vacate);
                Ok(Step::Requests)
            }
            Updated::Done => {
                finish(cx, &doomed);
                let name = doomed.inode.name.clone().ok_or(Fault::NotFound)?;
                let info = SegmentInfo::of(&doomed.inode, &name, cx.volume.block_size(), false);
                Ok(Step::Done(Ok(Answer::Segment(info))))
            }
        }
    }
}

/// The record is durable: only now may the blocks become somebody else's.
fn finish(cx: &mut Context<'_>, doomed: &Doomed) {
    let Doomed { address, inode } = doomed;
    cx.release_token();
    cx.forget_cached(*address);
    cx.objects.move_segment(*address, ObjectState::Gone);
    cx.volume.accounts.give_back(inode.owner_uid, usage_of(inode));
    cx.volume.unfinished_moves.retain(|moving| moving != address);
    // The blocks of a quarantined segment belong to another one; what nobody else claims of them is free after the next open.
    if cx.volume.quarantined.remove(address) || inode.state == InodeState::Quarantined {
        return;
    }
    let _ = cx.volume.free.release(inode.start_block, inode.reserve_blocks);
    if let Some(to) = inode.move_to {
        let _ = cx.volume.free.release(to.start, to.blocks);
    }
}
