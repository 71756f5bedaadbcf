//! Listing the segments that somebody may see.
//!
//! The token is held while the table is read: a list is of one moment, and whoever wants to change the table waits meanwhile. Reads,
//! writes, zeroes and copies go on. Each step looks at one read of the table and sorts in what it found; what was gathered is
//! handed over some thousand segments a turn.

use std::collections::{BTreeMap, btree_map};

use crate::error::{Fault, Result as CoreResult};
use crate::identity::Identity;
use crate::operation::walk::{Walk, Walked};
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::segment::inode::Inode;
use crate::segment::probe::SlotAddress;
use crate::volume::Volume;
use crate::volume::inspect::{self, SegmentInfo};

/// Segments that are handed over in a turn.
const TURN_SEGMENTS: usize = 4096;

/// By owner and name; of one name that is there twice, by slot.
type Order = (u32, String, SlotAddress);

/// Where the operation stands.
enum Phase {
    Begin,
    Walking(Box<Walk>),
    Gathering(btree_map::IntoIter<Order, SegmentInfo>, Vec<SegmentInfo>),
}

/// A list under way.
pub(crate) struct List {
    pub(super) subject: Subject,
    phase: Phase,
    /// What was found, without the names, which stand in the keys.
    found: BTreeMap<Order, SegmentInfo>,
}

impl List {
    pub(crate) fn new(subject: Subject) -> List {
        List {
            subject,
            phase: Phase::Begin,
            found: BTreeMap::new(),
        }
    }

    /// Bytes of the table that were looked at, and bytes that it has.
    pub(super) fn progress(&self) -> Option<(u64, u64)> {
        match &self.phase {
            Phase::Walking(walk) => Some(walk.progress()),
            Phase::Begin | Phase::Gathering(..) => None,
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        match (std::mem::replace(&mut self.phase, Phase::Begin), event) {
            (Phase::Begin, Event::Begin) => Ok(Step::Token),
            (Phase::Begin, Event::Token) => {
                let walked = Walk::begin(cx);
                Ok(self.walked(cx, walked))
            }
            (Phase::Walking(walk), Event::Completed(completion)) => {
                let (who, found) = (self.subject.who, &mut self.found);
                let walked = walk.advance(cx, completion, &mut |volume, at, inode| {
                    if let Some(mut info) = seen(volume, who, at, inode) {
                        let name = std::mem::take(&mut info.name);
                        found.insert((info.owner_uid, name, at), info);
                    }
                });
                Ok(self.walked(cx, walked))
            }
            (Phase::Gathering(found, gathered), Event::Turn) => Ok(self.gather(found, gathered)),
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn walked(&mut self, cx: &mut Context<'_>, walked: CoreResult<Walked>) -> Step {
        match walked {
            Ok(Walked::Reading(walk)) => {
                self.phase = Phase::Walking(walk);
                Step::Requests
            }
            Ok(Walked::Ended) => {
                cx.release_token();
                let found = std::mem::take(&mut self.found);
                let gathered = Vec::with_capacity(found.len());
                self.gather(found.into_iter(), gathered)
            }
            Err(error) => Step::Done(Err(error)),
        }
    }

    fn gather(&mut self, mut found: btree_map::IntoIter<Order, SegmentInfo>, mut gathered: Vec<SegmentInfo>) -> Step {
        let named = |((_, name, _), info): (Order, SegmentInfo)| SegmentInfo { name, ..info };
        gathered.extend(found.by_ref().take(TURN_SEGMENTS).map(named));
        if found.len() == 0 {
            return Step::Done(Ok(Answer::Segments(gathered)));
        }
        self.phase = Phase::Gathering(found, gathered);
        Step::Turn
    }
}

/// A segment as somebody sees it who may: without the old inodes of renames that only the next open ends.
pub(crate) fn seen(volume: &Volume, who: Identity, at: SlotAddress, inode: &Inode) -> Option<SegmentInfo> {
    let quarantined = volume.quarantined.contains(&at);
    let info = inspect::shown(inode, who, volume.block_size(), quarantined);
    info.filter(|_| !volume.superseded.contains(&at))
}
