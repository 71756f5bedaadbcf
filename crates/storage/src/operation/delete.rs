//! Deleting a segment: refuse new requests, let those under way end, record, and only then give the blocks back.
//!
//! A segment that is being moved is deleted where its move stands: the move is asked to end at its mark, then both runs go. If nothing
//! comes of the delete, the move goes on.

use crate::crossing::ToLane;
use crate::error::Fault;
use crate::operation::claims::Claim;
use crate::operation::lookup::{Found, lookup_tracing};
use crate::operation::repeat::{OperationName, unknown};
use crate::operation::vacate::vacate;
use crate::operation::waits::{drained, token, unclaimed, with};
use crate::operation::{Answer, Context, Failed, Operation, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;
use crate::volume::usage_of;

/// A segment goes.
pub(crate) fn delete(subject: Subject, operation: OperationName) -> Operation {
    Operation::changing(subject, run(operation))
}

/// What is as before if nothing comes of it.
#[derive(Default)]
struct Done {
    /// The segment whose handles refuse requests.
    refusing: Option<SlotAddress>,
    /// The segment whose move was asked to end.
    stopped: Option<SlotAddress>,
}

async fn run(operation: OperationName) -> Result<Answer, Failed> {
    let mut done = Done::default();
    let deleted = go(operation, &mut done).await;
    if deleted.is_err() {
        with(|cx| {
            if let Some(at) = done.refusing {
                cx.lane.obey(ToLane::Serve { at });
            }
            cx.goes_on.extend(done.stopped);
        });
    }
    Ok(deleted?)
}

async fn go(operation: OperationName, done: &mut Done) -> Result<Answer, Fault> {
    with(|cx| cx.subject.may_change(cx.volume))?;
    token().await?;
    let Found { at, inode, bucket } = loop {
        let key = with(|cx| cx.subject.key.clone());
        let (looked, left) = lookup_tracing(key, operation).await?;
        if operation.is_repeat {
            // What it left says that it was done, and nothing else says anything.
            let left = left.ok_or_else(unknown)?;
            return with(|cx| {
                cx.release_token();
                cx.segment(&left)
            });
        }
        let found = looked.found().ok_or(Fault::NotFound)?;
        let at = found.at;
        if !with(|cx| claim(cx, at))? {
            done.stopped = Some(at);
            drop(found);
            unclaimed(at).await?;
            continue;
        }
        if done.refusing.replace(at).is_some()
            || with(|cx| cx.drain(at)) == 0
            || crate::seeded_bug("reuse-before-drain")
        {
            break found;
        }
        drop(found);
        // Others may change the table meanwhile, but not this segment.
        with(|cx| cx.release_token());
        drained(at).await?;
        token().await?;
    };
    let tombstone = Box::new(inode.tombstone(operation.id));
    let update = vacate(bucket, at, &tombstone, None).await?;
    let recorded = update.ended().await;
    if recorded.is_err() && with(|cx| cx.volume.is_latched()) {
        // Neither gone nor there: no request may reach its blocks.
        done.refusing = None;
        with(|cx| {
            cx.volume.doubt(at);
            cx.forget_cached(at);
        });
    }
    recorded?;
    with(|cx| {
        finish(cx, at, &inode);
        cx.segment(&inode)
    })
}

/// Claims it; false where somebody else has it, who is asked to end.
fn claim(cx: &mut Context<'_>, at: SlotAddress) -> Result<bool, Fault> {
    let is_ours = cx.claims.claim(at, cx.index, Claim::Closed);
    if cx.has_log(at) {
        return Err(Fault::HasLog);
    }
    if !is_ours {
        cx.claims.ask_to_end(at, cx.index);
    }
    Ok(is_ours)
}

/// The record is durable: only now may the blocks become somebody else's.
fn finish(cx: &mut Context<'_>, at: SlotAddress, inode: &Inode) {
    cx.release_token();
    cx.forget_cached(at);
    cx.lane.obey(ToLane::Gone { at });
    cx.volume.accounts.give_back(inode.owner_uid, usage_of(inode));
    cx.volume.unfinished_moves.retain(|moving| *moving != at);
    // The blocks of a quarantined segment belong to another one; what nobody else claims of them is free after the next open.
    if cx.volume.quarantined.remove(&at) || inode.state == InodeState::Quarantined {
        return;
    }
    let _ = cx.volume.free.release(inode.start_block, inode.reserve_blocks);
    if let Some(to) = inode.move_to {
        let _ = cx.volume.free.release(to.start, to.blocks);
    }
}
