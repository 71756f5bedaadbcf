//! Opening a segment: finds it, checks who asks, and gives a handle (the paper's capability, seed 004 §4).

use crate::crossing::Opening;
use crate::error::Fault;
use crate::identity::Access;
use crate::object::{Moving, Target};
use crate::operation::lookup::lookup;
use crate::operation::waits::{token, unclaimed, with};
use crate::operation::walk::Walk;
use crate::operation::{Answer, Context, Failed, Kind, Operation, Subject, Taking, quarantined};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;
use crate::volume::inspect::segment_info;

/// A handle on a segment.
pub(crate) fn open(subject: Subject, access: Access) -> Operation {
    Operation::new(subject, Kind::Reads, Taking::Looking, run(access, None))
}

/// On the segment with this uuid and no other, which had that name. It might have to look through the whole table.
pub(crate) fn open_known(subject: Subject, access: Access, uuid: [u8; 16]) -> Operation {
    Operation::new(subject, Kind::Reads, Taking::Walking, run(access, Some(uuid)))
}

async fn run(access: Access, uuid: Option<[u8; 16]>) -> Result<Answer, Failed> {
    token().await?;
    loop {
        let (at, inode) = find(uuid).await?;
        // Who may not open it is told so at once, and nothing by how long that takes; nor what it is called now.
        let may_open = with(|cx| cx.subject.who.may_open(inode.ownership(), access));
        if let (true, Some(_), Some(name)) = (may_open, uuid, &inode.name) {
            with(|cx| cx.subject.rename(name.clone()));
        }
        if may_open && with(|cx| cx.claims.is_closed(at)) {
            unclaimed(at).await?;
            continue;
        }
        return with(|cx| {
            cx.release_token();
            Ok(opened(cx, access, at, &inode)?)
        });
    }
}

async fn find(uuid: Option<[u8; 16]>) -> Result<(SlotAddress, Box<Inode>), Failed> {
    let key = with(|cx| cx.subject.key.clone());
    let found = lookup(key).await?.found().map(|found| (found.at, found.inode));
    match (found, uuid) {
        (Some(found), None) => Ok(found),
        (Some(found), Some(uuid)) if found.1.uuid == uuid => Ok(found),
        (None, None) => Err(with(|cx| absent(cx)).into()),
        // Another has the name, or none.
        (_, Some(uuid)) => search(uuid).await,
    }
}

/// It has another name now, or is gone: only the whole table tells.
async fn search(uuid: [u8; 16]) -> Result<(SlotAddress, Box<Inode>), Failed> {
    let owner_uid = with(|cx| cx.subject.key.owner_uid);
    let mut met = None;
    let mut walk = with(Walk::begin)?;
    while walk.goes_on() {
        walk.step(&mut |volume, at, inode| {
            // Of a rename that is not finished the old inode is the one that goes.
            let is_it = inode.state.is_segment() && inode.uuid == uuid && inode.owner_uid == owner_uid;
            if is_it && !volume.superseded.contains(&at) {
                met = Some((at, Box::new(inode.clone())));
            }
        })
        .await?;
    }
    Ok(met.ok_or(Fault::Stale)?)
}

/// Whoever may not see a segment is not told whether it exists.
fn absent(cx: &Context<'_>) -> Fault {
    let Subject { who, key, .. } = &*cx.subject;
    if who.acts_for(key.owner_uid) {
        Fault::NotFound
    } else {
        Fault::Access { uid: who.uid }
    }
}

fn opened(cx: &mut Context<'_>, access: Access, at: SlotAddress, inode: &Inode) -> Result<Answer, Fault> {
    let who = cx.subject.who;
    if !who.may_open(inode.ownership(), access) {
        return Err(Fault::Access { uid: who.uid });
    }
    if access == Access::Write && cx.volume.is_read_only() {
        return Err(Fault::ReadOnlyVolume);
    }
    let serves = matches!(inode.state, InodeState::Live | InodeState::Moving);
    if !serves || cx.volume.quarantined.contains(&at) {
        return Err(quarantined());
    }
    if cx.volume.is_in_doubt(at) {
        return Err(Fault::Latched); // What it would reach may be gone at the next open.
    }
    let run = cx.volume.layout().run_at(inode.start_block, inode.blocks);
    let (start, size) = run.ok_or_else(|| Fault::Corrupt("its blocks lie outside of the volume".into()))?;
    let name = inode.name.as_ref().ok_or(Fault::NotFound)?;
    let info = segment_info(inode, name, cx.volume.block_size(), false);
    let target = Target::Segment {
        address: at,
        owner_uid: inode.owner_uid,
        start,
        size,
        moving: moving(cx, inode)?,
    };
    let (name, uid) = (cx.subject.object.clone(), who.uid);
    let handle = cx.lane.open(Opening {
        name,
        access,
        target,
        uid,
    });
    Ok(Answer::Opened { handle, access, info })
}

/// A segment that is being moved is served by its mark, which changes with the token only: so this one is the newest.
fn moving(cx: &Context<'_>, inode: &Inode) -> Result<Option<Moving>, Fault> {
    let Some(to) = inode.move_to.filter(|_| inode.state == InodeState::Moving) else {
        return Ok(None);
    };
    if cx.volume.is_latched() {
        return Err(Fault::Latched); // The mark may be the one in doubt.
    }
    let run = cx.volume.layout().run_at(to.start, to.blocks);
    let (target, _) = run.ok_or_else(|| Fault::Corrupt("it is being moved out of the volume".into()))?;
    Ok(Some(Moving {
        target,
        mark: to.done.saturating_mul(u64::from(cx.volume.block_size())),
        doubt: 0,
    }))
}
