//! Lists the segments that a user may see.
//!
//! The operation holds the token while it reads the table. So a list is of one moment, and changes of the table wait meanwhile. Reads,
//! writes, zeroes and copies go on. Each step looks at one read of the table and sorts in the segments that it found. The list is then
//! handed over some thousand segments a turn.

use std::collections::BTreeMap;

use crate::identity::Identity;
use crate::operation::waits::{next_turn, token, with};
use crate::operation::walk::Walk;
use crate::operation::{Answer, Failed, Kind, Operation, Subject, Taking};
use crate::segment::inode::Inode;
use crate::segment::probe::SlotAddress;
use crate::volume::Volume;
use crate::volume::inspect::{self, SegmentInfo};

/// Segments that are handed over in a turn.
const TURN_SEGMENTS: usize = 4096;

/// By owner and name; of one name that is there twice, by slot.
type Order = (u32, String, SlotAddress);

/// The segments that somebody may see.
pub(crate) fn list(subject: Subject) -> Operation {
    Operation::new(subject, Kind::Reads, Taking::Walking, run())
}

async fn run() -> Result<Answer, Failed> {
    token().await?;
    let who = with(|cx| cx.subject.who);
    // What was found, without the names, which stand in the keys.
    let mut found: BTreeMap<Order, SegmentInfo> = BTreeMap::new();
    let mut walk = with(Walk::begin)?;
    while walk.goes_on() {
        with(|cx| cx.shown.progress = Some(walk.progress()));
        walk.step(&mut |volume, at, inode| {
            if let Some(mut info) = seen(volume, who, at, inode) {
                let name = std::mem::take(&mut info.name);
                found.insert((info.owner_uid, name, at), info);
            }
        })
        .await?;
    }
    drop(walk);
    with(|cx| {
        cx.shown.progress = None;
        cx.release_token();
    });
    let mut gathered = Vec::with_capacity(found.len());
    let mut found = found.into_iter();
    loop {
        let named = |((_, name, _), info): (Order, SegmentInfo)| SegmentInfo { name, ..info };
        gathered.extend(found.by_ref().take(TURN_SEGMENTS).map(named));
        if found.len() == 0 {
            return Ok(Answer::Segments {
                more: false,
                infos: gathered,
            });
        }
        next_turn().await?;
    }
}

/// A segment as somebody sees it who may: without the old inodes of renames that only the next open ends.
pub(crate) fn seen(volume: &Volume, who: Identity, at: SlotAddress, inode: &Inode) -> Option<SegmentInfo> {
    let quarantined = volume.quarantined.contains(&at);
    let info = inspect::shown(inode, who, volume.block_size(), quarantined);
    info.filter(|_| !volume.superseded.contains(&at))
}
