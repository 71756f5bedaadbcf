//! Sets what an owner may hold. Each owner with a limit has one quota record, found under the empty name.
//!
//! A limit below what the owner holds takes nothing away; it refuses new segments and growth.

use crate::operation::lookup::{Found, Looked, lookup};
use crate::operation::update::Update;
use crate::operation::vacate::vacate;
use crate::operation::waits::{token, with};
use crate::operation::{Answer, Failed, Operation, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::volume::accounts::Limits;

/// The subject's owner gets these limits.
pub(crate) fn set_quota(subject: Subject, limits: Limits) -> Operation {
    Operation::changing(subject, run(limits))
}

async fn run(limits: Limits) -> Result<Answer, Failed> {
    with(|cx| {
        cx.must_see_all()?;
        cx.volume.may_change()
    })?;
    token().await?; // To the end.
    let key = with(|cx| cx.subject.key.clone());
    let owner_uid = key.owner_uid;
    let update = match lookup(key).await? {
        Looked::Found(Found { at, inode, bucket }) if limits.is_none() => {
            let tombstone = Box::new(inode.tombstone([0; 16]));
            Some(vacate(bucket, at, &tombstone, None).await?)
        }
        Looked::Found(Found { at, inode, bucket }) => {
            let record = record(owner_uid, limits, inode.generation);
            Some(with(|cx| Update::begin(cx, bucket, at, &record))?)
        }
        Looked::Absent(_) if limits.is_none() => None,
        Looked::Absent(None) => return Err(with(|cx| cx.table_full()).into()),
        Looked::Absent(Some(place)) => Some(with(|cx| {
            let record = record(owner_uid, limits, place.next_generation(cx)?);
            Update::begin(cx, place.bucket, place.at, &record)
        })?),
    };
    if let Some(update) = update {
        update.ended().await?;
    }
    Ok(with(|cx| {
        cx.release_token();
        // The record is durable: from now on it holds.
        cx.volume.accounts.set_limits(owner_uid, limits);
        Answer::Account(cx.volume.accounts.get(owner_uid))
    }))
}

fn record(owner_uid: u32, limits: Limits, generation: u64) -> Inode {
    Inode {
        state: InodeState::Quota,
        owner_uid,
        generation,
        quota_blocks: limits.blocks.unwrap_or(u64::MAX),
        quota_segments: limits.segments.unwrap_or(u64::MAX),
        ..Inode::default()
    }
}
