//! Opening a segment: finds it, checks who asks, and gives a handle (the paper's capability, seed 004 §4).

use baio_engine::Completion;

use crate::error::{Fault, Result as CoreResult};
use crate::identity::Access;
use crate::object::{Moving, Target};
use crate::operation::lookup::{Looked, Lookup};
use crate::operation::walk::{Walk, Walked};
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;
use crate::volume::inspect::SegmentInfo;

/// An open under way.
pub(crate) struct OpenSegment {
    pub(super) subject: Subject,
    access: Access,
    /// This one and no other.
    uuid: Option<[u8; 16]>,
    lookup: Option<Lookup>,
    /// While the table is searched for it: its name is another now.
    walk: Option<Box<Walk>>,
    met: Option<(SlotAddress, Box<Inode>)>,
}

impl OpenSegment {
    pub(crate) fn new(subject: Subject, access: Access) -> OpenSegment {
        OpenSegment {
            subject,
            access,
            uuid: None,
            lookup: None,
            walk: None,
            met: None,
        }
    }

    /// Of the segment with this uuid, which had that name.
    pub(crate) fn known(subject: Subject, access: Access, uuid: [u8; 16]) -> OpenSegment {
        OpenSegment {
            uuid: Some(uuid),
            ..OpenSegment::new(subject, access)
        }
    }

    /// Might it have to look through the whole table?
    pub(super) fn may_walk(&self) -> bool {
        self.uuid.is_some()
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        match (event, self.lookup.take()) {
            (Event::Begin, _) => Ok(Step::Token),
            (Event::Token, _) => {
                self.lookup = Some(Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Event::Completed(completion), Some(lookup)) => self.looked(cx, lookup, completion),
            (Event::Completed(completion), None) => self.walks_on(cx, completion),
            (event, _) => Err(cx.unexpected(&event)),
        }
    }

    fn looked(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.lookup = Some(lookup);
                Ok(Step::Requests)
            }
            Looked::Absent(_) if self.uuid.is_some() => self.searches(cx),
            Looked::Absent(_) => Err(self.absent()),
            // Another has the name.
            Looked::Found { inode, .. } if self.uuid.is_some_and(|uuid| uuid != inode.uuid) => self.searches(cx),
            // Who may not open it is told at once that there is none, and nothing by how long that takes.
            Looked::Found { address, inode, .. }
                if cx.claims.is_closed(address) && self.subject.who.may_open(inode.ownership(), self.access) =>
            {
                Ok(cx.wait_for_claim(address))
            }
            Looked::Found { address, inode, .. } => {
                cx.release_token();
                self.found(cx, address, &inode)
            }
        }
    }

    /// It has another name now, or is gone: only the whole table tells.
    fn searches(&mut self, cx: &mut Context<'_>) -> Result<Step, Fault> {
        let walked = Walk::begin(cx);
        self.walked(cx, walked)
    }

    fn walks_on(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<Step, Fault> {
        let Some(walk) = self.walk.take() else {
            return Err(cx.unexpected(&Event::Completed(completion)));
        };
        let (uuid, owner_uid, met) = (self.uuid, self.subject.key.owner_uid, &mut self.met);
        let walked = walk.advance(cx, completion, &mut |volume, at, inode| {
            // Of a rename that is not finished the old inode is the one that goes.
            let is_it = inode.state.is_segment() && Some(inode.uuid) == uuid && inode.owner_uid == owner_uid;
            if is_it && !volume.superseded.contains(&at) {
                *met = Some((at, Box::new(inode.clone())));
            }
        });
        self.walked(cx, walked)
    }

    fn walked(&mut self, cx: &mut Context<'_>, walked: CoreResult<Walked>) -> Result<Step, Fault> {
        match walked {
            Ok(Walked::Reading(walk)) => {
                self.walk = Some(walk);
                Ok(Step::Requests)
            }
            Ok(Walked::Ended) => match self.met.take() {
                None => Err(Fault::Stale),
                Some((address, inode)) => {
                    if let Some(name) = inode.name.clone() {
                        self.subject.rename(name);
                    }
                    if cx.claims.is_closed(address) && self.subject.who.may_open(inode.ownership(), self.access) {
                        return Ok(cx.wait_for_claim(address));
                    }
                    cx.release_token();
                    self.found(cx, address, &inode)
                }
            },
            Err(error) => Ok(Step::Done(Err(error))),
        }
    }

    /// Whoever may not see a segment is not told whether it exists.
    fn absent(&self) -> Fault {
        let who = self.subject.who;
        if who.acts_for(self.subject.key.owner_uid) {
            Fault::NotFound
        } else {
            Fault::Access { uid: who.uid }
        }
    }

    fn found(&self, cx: &mut Context<'_>, address: SlotAddress, inode: &Inode) -> Result<Step, Fault> {
        if !self.subject.who.may_open(inode.ownership(), self.access) {
            return Err(Fault::Access {
                uid: self.subject.who.uid,
            });
        }
        if self.access == Access::Write && cx.volume.is_read_only() {
            return Err(Fault::ReadOnlyVolume);
        }
        let quarantined = cx.volume.quarantined.contains(&address);
        let serves = matches!(inode.state, InodeState::Live | InodeState::Moving);
        if !serves || quarantined {
            return Err(Fault::Corrupt(
                "its blocks belong to a segment allocated later; it is quarantined, and readable by `check` only"
                    .into(),
            ));
        }
        if cx.volume.is_in_doubt(address) {
            return Err(Fault::Latched); // What it would reach may be gone at the next open.
        }
        let (start, size) = cx
            .volume
            .layout()
            .run_at(inode.start_block, inode.blocks)
            .ok_or_else(|| Fault::Corrupt("its blocks lie outside of the volume".into()))?;
        let name = inode.name.clone().ok_or(Fault::NotFound)?;
        let info = SegmentInfo::of(inode, &name, cx.volume.block_size(), false);
        let target = Target::Segment {
            address,
            owner_uid: inode.owner_uid,
            start,
            size,
            moving: moving(cx, inode)?,
        };
        let handle = cx.objects.add(self.subject.object.clone(), self.access, target);
        cx.objects.opened_by(handle, self.subject.who.uid);
        Ok(Step::Done(Ok(Answer::Opened(handle, info))))
    }
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
