//! Giving a segment another key, a name or an owner: its new inode, which names the slot of the old one, is durable before the old one
//! goes. A crash between leaves both; of two inodes with one uuid an open keeps the one that names the other's slot and generation.
//! Handles stay valid.
//!
//! Where both keys fall into one bucket, one record does it all. So it does where only the group or the mode becomes another: in the
//! segment's own slot.
//!
//! A new owner is charged before anything is written, and the old one has his due back when all is durable.
//!
//! Generations rise along the renames of a segment, though a slot that was free may begin again at 1: so of two inodes that
//! a crash left, only one can name the other, however often the segment went back and forth.

use baio_engine::{Buffer, Completion};

use crate::error::Fault;
use crate::identity::OwnershipChange;
use crate::operation::claims::Claim;
use crate::operation::lookup::{Looked, Lookup, SlotCopy, bucket_copy, bytes_of, read_pair};
use crate::operation::repeat::{OperationName, Traced, unknown};
use crate::operation::update::{Update, Updated};
use crate::operation::vacate::Vacate;
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::segment::inode::{Inode, RenameFrom};
use crate::segment::layout::{self, BUCKET_BYTES};
use crate::segment::name::{Key, SegmentName};
use crate::segment::probe::SlotAddress;
use crate::volume::accounts::{EVERYBODY_ELSE, Usage};
use crate::volume::inspect::SegmentInfo;
use crate::volume::table::BucketCopy;
use crate::volume::{Volume, usage_of};

/// An inode and where it lives.
struct Placed {
    at: SlotAddress,
    inode: Box<Inode>,
}

/// Where the operation stands.
enum Phase {
    /// Waiting for the token, which it then has to the end.
    Begin,
    /// Looking whether it was done before: under the new name; under the old one, for what it left.
    Recalling(Lookup),
    RecallingOld(Option<Box<Inode>>, Lookup),
    /// Looking for the segment.
    Finding(Lookup),
    /// Writing the inode in its own slot.
    Changing(Box<Inode>, Update),
    /// Looking whether the new key is free, and for a slot.
    Placing(Placed, Lookup),
    /// Writing the new inode.
    Recording(Placed, Placed, Update),
    /// The new inode is durable: reading the old one's bucket again, of which the table is there already or not.
    Returning(Placed, Placed, Option<BucketCopy>),
    /// Giving up the old slot.
    Vacating(Placed, Placed, Vacate),
}

/// A rename under way.
pub(crate) struct Rename {
    pub(super) subject: Subject,
    /// The key that it gets.
    to: Key,
    /// What else becomes another; `None` of a mere rename.
    change: Option<OwnershipChange>,
    operation: OperationName,
    /// What messages call it by its new key.
    object: String,
    phase: Phase,
    /// Both inodes are there: what fails now leaves a choice to the next open.
    is_double: bool,
    /// Memory for the second half, taken before the first is written: for want of it the volume would have to be latched.
    spare: [Option<Buffer>; 2],
    /// What the new owner was charged.
    charged: Option<Usage>,
}

impl Rename {
    /// A segment of another name.
    pub(crate) fn new(subject: Subject, name: SegmentName, object: String, operation: OperationName) -> Rename {
        let to = Key::segment(subject.key.owner_uid, name);
        Rename::to(subject, to, None, object, operation)
    }

    /// A segment of another owner, group or mode.
    pub(crate) fn of_owner(
        subject: Subject,
        change: OwnershipChange,
        object: String,
        operation: OperationName,
    ) -> Rename {
        let to = Key {
            owner_uid: change.owner_uid.unwrap_or(subject.key.owner_uid),
            ..subject.key.clone()
        };
        Rename::to(subject, to, Some(change), object, operation)
    }

    fn to(
        subject: Subject,
        to: Key,
        change: Option<OwnershipChange>,
        object: String,
        operation: OperationName,
    ) -> Rename {
        Rename {
            subject,
            to,
            change,
            operation,
            object,
            phase: Phase::Begin,
            is_double: false,
            spare: [None, None],
            charged: None,
        }
    }

    /// May who asks do this, and can it be at all?
    fn may_be(&self, volume: &Volume) -> Result<(), Fault> {
        let Subject { who, key, .. } = &self.subject;
        self.subject.may_change(volume)?;
        let gives_away = self.to.owner_uid != key.owner_uid;
        if gives_away && (who.uid != 0 || self.to.owner_uid == EVERYBODY_ELSE) {
            return Err(Fault::Access { uid: who.uid });
        }
        let group = self.change.and_then(|change| change.owner_gid);
        match group.filter(|gid| !who.may_give_to(*gid)) {
            Some(gid) => Err(Fault::Group { gid }),
            None => Ok(()),
        }
    }

    /// The inode with what else becomes another.
    fn changed(&self, inode: &Inode) -> Inode {
        let change = self.change.unwrap_or_default();
        Inode {
            name: self.to.name.clone(),
            owner_uid: self.to.owner_uid,
            owner_gid: change.owner_gid.unwrap_or(inode.owner_gid),
            mode: change.mode.map_or(inode.mode, |mode| mode & 0o777),
            rename_from: None,
            operation_id: self.operation.id,
            ..inode.clone()
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let stepped = self.go_on(cx, event);
        if stepped.is_err() {
            if self.is_double {
                cx.volume.latch();
            }
            if let Some(charged) = self.charged.take().filter(|_| !cx.volume.is_latched()) {
                cx.volume.accounts.give_back(self.to.owner_uid, charged);
            }
        }
        stepped
    }

    fn go_on(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let phase = std::mem::replace(&mut self.phase, Phase::Begin);
        match (phase, event) {
            (Phase::Begin, Event::Begin) => {
                self.may_be(cx.volume)?;
                Ok(Step::Token)
            }
            (Phase::Begin, Event::Token) if self.operation.is_repeat => {
                self.phase = Phase::Recalling(Lookup::begin(cx, self.to.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Recalling(lookup), Event::Completed(completion)) => self.recalled(cx, lookup, completion),
            (Phase::RecallingOld(new, lookup), Event::Completed(completion)) => {
                self.recalled_old(cx, new, lookup, completion)
            }
            (Phase::Begin, Event::Token) => {
                self.phase = Phase::Finding(Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Finding(lookup), Event::Completed(completion)) => self.found(cx, lookup, completion),
            (Phase::Changing(inode, update), Event::Completed(completion)) => {
                self.changed_in_place(cx, inode, update, completion)
            }
            (Phase::Placing(old, lookup), Event::Completed(completion)) => self.placed(cx, old, lookup, completion),
            (Phase::Recording(old, new, update), Event::Completed(completion)) => {
                self.recorded(cx, old, new, update, completion)
            }
            (Phase::Returning(old, new, copy), Event::Completed(completion)) => {
                self.returned(cx, old, new, copy, completion)
            }
            (Phase::Vacating(old, new, vacate), Event::Completed(completion)) => {
                self.vacated(cx, old, new, vacate, completion)
            }
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn recalled(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        let new = match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Recalling(lookup);
                return Ok(Step::Requests);
            }
            Looked::Found { inode, .. } if self.operation.has_written(&inode) => {
                return self.done(cx, &inode);
            }
            Looked::Found { inode, .. } => Some(inode),
            Looked::Absent(_) => None,
        };
        let lookup = Lookup::begin(cx, self.subject.key.clone())?.tracing(self.operation);
        self.phase = Phase::RecallingOld(new, lookup);
        Ok(Step::Requests)
    }

    fn recalled_old(
        &mut self,
        cx: &mut Context<'_>,
        new: Option<Box<Inode>>,
        mut lookup: Lookup,
        completion: Completion,
    ) -> Result<Step, Fault> {
        if let Looked::Reading = lookup.completed(cx, completion)? {
            self.phase = Phase::RecallingOld(new, lookup);
            return Ok(Step::Requests);
        }
        // It was done; what others did to the segment since has written over its name there.
        match (lookup.take_trace(), new) {
            (Some(old), Some(new)) if old.uuid == new.uuid => self.done(cx, &new),
            _ => Err(unknown()),
        }
    }

    fn done(&self, cx: &mut Context<'_>, inode: &Inode) -> Result<Step, Fault> {
        cx.release_token();
        let name = self.to.name.as_ref().ok_or(Fault::NotFound)?;
        let info = SegmentInfo::of(inode, name, cx.volume.block_size(), false);
        Ok(Step::Done(Ok(Answer::Segment(info))))
    }

    fn found(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        let (at, inode, bucket) = match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Finding(lookup);
                return Ok(Step::Requests);
            }
            Looked::Absent(_) => return Err(Fault::NotFound),
            Looked::Found { address, inode, bucket } => (address, inode, bucket),
        };
        if !cx.claims.claim(at, cx.index, Claim::Shared) {
            return Ok(cx.wait_for_claim(at));
        }
        cx.must_be_whole(at, &inode)?;
        if self.change.is_some() && self.to == self.subject.key {
            let inode = Box::new(self.changed(&inode));
            let update = Update::begin(cx, bucket, at, &inode)?;
            self.phase = Phase::Changing(inode, update);
            return Ok(Step::Requests);
        }
        drop(bucket);
        if self.to.owner_uid != self.subject.key.owner_uid {
            let usage = usage_of(&inode);
            let charged = cx.volume.accounts.charge(self.to.owner_uid, usage);
            charged.map_err(|over| Fault::over_quota(over, cx.volume.block_size()))?;
            self.charged = Some(usage);
        }
        self.phase = Phase::Placing(Placed { at, inode }, Lookup::begin(cx, self.to.clone())?);
        Ok(Step::Requests)
    }

    fn changed_in_place(
        &mut self,
        cx: &mut Context<'_>,
        inode: Box<Inode>,
        mut update: Update,
        completion: Completion,
    ) -> Result<Step, Fault> {
        match update.completed(cx, completion)? {
            Updated::Writing => {
                self.phase = Phase::Changing(inode, update);
                Ok(Step::Requests)
            }
            Updated::Done => self.done(cx, &inode),
        }
    }

    fn placed(
        &mut self,
        cx: &mut Context<'_>,
        old: Placed,
        mut lookup: Lookup,
        completion: Completion,
    ) -> Result<Step, Fault> {
        match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Placing(old, lookup);
                Ok(Step::Requests)
            }
            Looked::Found { .. } => Err(Fault::Exists),
            Looked::Absent(None) => {
                let segments_max = Some(cx.volume.superblock.geometry().segments_max);
                Err(Fault::TableFull { segments_max })
            }
            Looked::Absent(Some(place)) => self.record(cx, old, place),
        }
    }

    fn record(&mut self, cx: &mut Context<'_>, old: Placed, place: SlotCopy) -> Result<Step, Fault> {
        let together = place.at.bucket == old.at.bucket;
        let from = RenameFrom {
            bucket: old.at.bucket,
            slot: old.at.slot as u32,
            generation: old.inode.generation,
        };
        let mut generation = place.next_generation(cx)?;
        if !crate::seeded_bug("rename-starts-its-generation-anew") {
            generation = generation.max(old.inode.next_generation());
        }
        let inode = Box::new(Inode {
            generation,
            alloc_seq: cx.volume.next_alloc_seq(),
            rename_from: (!together).then_some(from),
            ..self.changed(&old.inode)
        });
        let new = Placed { at: place.at, inode };
        if together {
            let tombstone = old.inode.tombstone(self.operation.id);
            let also = Some((new.at.slot, &*new.inode));
            let vacate = Vacate::begin(cx, place.bucket, old.at, &tombstone, also)?;
            self.phase = Phase::Vacating(old, new, vacate);
        } else {
            for spare in &mut self.spare {
                *spare = Some(cx.buffer(BUCKET_BYTES as usize)?);
            }
            let update = Update::begin(cx, place.bucket, new.at, &new.inode)?;
            self.phase = Phase::Recording(old, new, update);
        }
        Ok(Step::Requests)
    }

    fn recorded(
        &mut self,
        cx: &mut Context<'_>,
        old: Placed,
        new: Placed,
        mut update: Update,
        completion: Completion,
    ) -> Result<Step, Fault> {
        match update.completed(cx, completion)? {
            Updated::Writing => self.phase = Phase::Recording(old, new, update),
            Updated::Done => {
                self.is_double = true;
                self.spare[0] = None;
                read_pair(cx, old.at.bucket, layout::Place::Table)?;
                self.phase = Phase::Returning(old, new, None);
            }
        }
        Ok(Step::Requests)
    }

    fn returned(
        &mut self,
        cx: &mut Context<'_>,
        old: Placed,
        new: Placed,
        copy: Option<BucketCopy>,
        completion: Completion,
    ) -> Result<Step, Fault> {
        let copy = match copy {
            Some(mut copy) => {
                copy.add_mirror(bytes_of(completion)?);
                copy
            }
            None => bucket_copy(cx, old.at.bucket, completion)?,
        };
        self.spare[1] = None;
        if copy.needs_mirror() {
            read_pair(cx, old.at.bucket, layout::Place::Mirror)?;
            self.phase = Phase::Returning(old, new, Some(copy));
            return Ok(Step::Requests);
        }
        let found = copy.image()?.slot(old.at.slot, cx.volume.superblock.geometry());
        if found.and_then(Result::ok).as_ref() != Some(&*old.inode) {
            // The token was here all the time.
            let why = "the inode under the old name is not where it was a moment ago";
            return Err(Fault::Corrupt(why.into()));
        }
        let tombstone = old.inode.tombstone(self.operation.id);
        let vacate = Vacate::begin(cx, copy, old.at, &tombstone, None)?;
        self.phase = Phase::Vacating(old, new, vacate);
        Ok(Step::Requests)
    }

    fn vacated(
        &mut self,
        cx: &mut Context<'_>,
        old: Placed,
        new: Placed,
        mut vacate: Vacate,
        completion: Completion,
    ) -> Result<Step, Fault> {
        match vacate.completed(cx, completion)? {
            Updated::Writing => {
                self.phase = Phase::Vacating(old, new, vacate);
                Ok(Step::Requests)
            }
            Updated::Done => {
                cx.objects.rename(old.at, new.at, self.to.owner_uid, &self.object);
                if self.charged.take().is_some() {
                    cx.volume
                        .accounts
                        .give_back(self.subject.key.owner_uid, usage_of(&old.inode));
                }
                self.done(cx, &new.inode)
            }
        }
    }
}
