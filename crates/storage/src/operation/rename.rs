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
//! a crash left, only one can name the other, however often the segment went back and forth. The new inode's allocation is later than
//! the old one's too: an open asks for both.

use crate::crossing::ToLane;
use crate::error::Fault;
use crate::identity::OwnershipChange;
use crate::operation::claims::Claim;
use crate::operation::lookup::{Found, Looked, SlotCopy, lookup, lookup_tracing, read_bucket};
use crate::operation::repeat::{OperationName, Traced, unknown};
use crate::operation::update::Update;
use crate::operation::vacate::vacate;
use crate::operation::waits::{token, unclaimed, with};
use crate::operation::{Answer, Context, Failed, Operation, Subject};
use crate::segment::inode::{AllocSeq, Inode, RenameFrom};
use crate::segment::layout::BUCKET_BYTES;
use crate::segment::name::{Key, SegmentName};
use crate::segment::probe::SlotAddress;
use crate::volume::accounts::{EVERYBODY_ELSE, Usage};
use crate::volume::usage_of;

/// A segment gets another name; messages call it `object` then.
pub(crate) fn rename(subject: Subject, name: SegmentName, object: String, operation: OperationName) -> Operation {
    let to = Key::segment(subject.key.owner_uid, name);
    let asked = Rename {
        to,
        change: None,
        operation,
        object,
    };
    Operation::changing(subject, asked.run())
}

/// A segment gets another owner, group or mode.
pub(crate) fn change_ownership(
    subject: Subject,
    change: OwnershipChange,
    object: String,
    operation: OperationName,
) -> Operation {
    let to = Key {
        owner_uid: change.owner_uid.unwrap_or(subject.key.owner_uid),
        ..subject.key.clone()
    };
    let asked = Rename {
        to,
        change: Some(change),
        operation,
        object,
    };
    Operation::changing(subject, asked.run())
}

/// What is asked for.
struct Rename {
    /// The key that the segment gets.
    to: Key,
    /// What else becomes another; `None` of a mere rename.
    change: Option<OwnershipChange>,
    operation: OperationName,
    /// What messages call it by its new key.
    object: String,
}

/// What was done before the end, which a failure undoes.
#[derive(Default)]
struct Done {
    /// What the new owner was charged.
    charged: Option<Usage>,
    /// Where the new inode was to be written.
    new: Option<SlotAddress>,
    /// Both inodes are there: what fails now leaves a choice to the next open.
    is_double: bool,
}

/// An inode and where it lives.
struct Placed {
    at: SlotAddress,
    inode: Box<Inode>,
}

impl Rename {
    async fn run(self) -> Result<Answer, Failed> {
        let mut done = Done::default();
        let renamed = self.go(&mut done).await;
        if renamed.is_err() {
            with(|cx| self.undo(cx, &done));
        }
        Ok(renamed?)
    }

    async fn go(&self, done: &mut Done) -> Result<Answer, Fault> {
        with(|cx| self.may_be(cx))?;
        token().await?; // To the end.
        if self.operation.is_repeat {
            return self.recall().await;
        }
        let Found { at, inode, bucket } = self.find().await?;
        with(|cx| cx.must_be_whole(at, &inode))?;
        if self.change.is_some() && with(|cx| self.to == cx.subject.key) {
            let inode = Box::new(self.changed(&inode));
            with(|cx| Update::begin(cx, bucket, at, &inode))?.ended().await?;
            return with(|cx| answer(cx, &inode));
        }
        drop(bucket);
        done.charged = with(|cx| self.charge(cx, &inode))?;
        let place = match lookup(self.to.clone()).await? {
            Looked::Absent(Some(place)) => place,
            Looked::Absent(None) => return Err(with(|cx| cx.table_full())),
            Looked::Found(_) => return Err(Fault::Exists),
        };
        let old = Placed { at, inode };
        let new = self.give(&old, place, done).await?;
        with(|cx| {
            cx.lane.obey(ToLane::Renamed {
                from: old.at,
                to: new.at,
                owner_uid: self.to.owner_uid,
                name: self.object.clone(),
            });
            if done.charged.is_some() {
                let owner = cx.subject.key.owner_uid;
                cx.volume.accounts.give_back(owner, usage_of(&old.inode));
            }
            answer(cx, &new.inode)
        })
    }

    /// May who asks do this, and can it be at all?
    fn may_be(&self, cx: &Context<'_>) -> Result<(), Fault> {
        let Subject { who, key, .. } = &*cx.subject;
        cx.subject.may_change(cx.volume)?;
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

    /// A repeat: was it done before? That is looked for under the new name; and under the old one, for what it left there.
    async fn recall(&self) -> Result<Answer, Fault> {
        let new = lookup(self.to.clone()).await?.found();
        let new = new.map(|found| found.inode);
        if let Some(new) = new.as_ref().filter(|new| self.operation.has_written(new)) {
            return with(|cx| answer(cx, new));
        }
        let key = with(|cx| cx.subject.key.clone());
        let (_, left) = lookup_tracing(key, self.operation).await?;
        match (left, new) {
            // What others did to the segment since has written over its name there.
            (Some(old), Some(new)) if old.uuid == new.uuid => with(|cx| answer(cx, &new)),
            _ => Err(unknown()),
        }
    }

    /// The segment, claimed.
    async fn find(&self) -> Result<Found, Fault> {
        loop {
            let key = with(|cx| cx.subject.key.clone());
            let found = lookup(key).await?.found().ok_or(Fault::NotFound)?;
            if with(|cx| cx.claims.claim(found.at, cx.index, Claim::Shared)) {
                return Ok(found);
            }
            let at = found.at;
            drop(found);
            unclaimed(at).await?;
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

    /// Charges a new owner; how much.
    fn charge(&self, cx: &mut Context<'_>, inode: &Inode) -> Result<Option<Usage>, Fault> {
        if self.to.owner_uid == cx.subject.key.owner_uid {
            return Ok(None);
        }
        let usage = usage_of(inode);
        let charged = cx.volume.accounts.charge(self.to.owner_uid, usage);
        charged.map_err(|over| Fault::over_quota(over, cx.volume.block_size()))?;
        Ok(Some(usage))
    }

    /// Writes the new inode, then gives the old one's slot up.
    async fn give(&self, old: &Placed, place: SlotCopy, done: &mut Done) -> Result<Placed, Fault> {
        let new = with(|cx| self.placed(cx, old, &place))?;
        done.new = Some(new.at);
        let tombstone = Box::new(old.inode.tombstone(self.operation.id));
        if new.at.bucket == old.at.bucket {
            let also = Some((new.at.slot, &*new.inode));
            vacate(place.bucket, old.at, &tombstone, also).await?.ended().await?;
            return Ok(new);
        }
        // Memory for the second half, taken before the first is written: for want of it the volume would have to be latched.
        let spare = with(|cx| Ok::<_, Fault>([cx.buffer(BUCKET_BYTES as usize)?, cx.buffer(BUCKET_BYTES as usize)?]))?;
        let update = with(|cx| Update::begin(cx, place.bucket, new.at, &new.inode))?;
        update.ended().await?;
        done.is_double = true;
        let copy = read_bucket(old.at.bucket, spare).await?;
        let found = with(|cx| Ok::<_, Fault>(copy.image()?.slot(old.at.slot, cx.volume.superblock.geometry())))?;
        if found.and_then(Result::ok).as_ref() != Some(&*old.inode) {
            // The token was here all the time.
            let why = "the inode under the old name is not where it was a moment ago";
            return Err(Fault::Corrupt(why.into()));
        }
        vacate(copy, old.at, &tombstone, None).await?.ended().await?;
        Ok(new)
    }

    /// The new inode.
    fn placed(&self, cx: &mut Context<'_>, old: &Placed, place: &SlotCopy) -> Result<Placed, Fault> {
        let from = RenameFrom {
            bucket: old.at.bucket,
            slot: old.at.slot as u32,
            generation: old.inode.generation,
        };
        let mut generation = place.next_generation(cx)?;
        if !crate::seeded_bug("rename-starts-its-generation-anew") {
            generation = generation.max(old.inode.next_generation());
        }
        // A repair from an older superblock takes the volume's epoch back, and leaves the inodes theirs.
        let later = AllocSeq {
            counter: old.inode.alloc_seq.counter.saturating_add(1),
            ..old.inode.alloc_seq
        };
        let inode = Box::new(Inode {
            generation,
            alloc_seq: cx.volume.next_alloc_seq().max(later),
            rename_from: (place.at.bucket != old.at.bucket).then_some(from),
            ..self.changed(&old.inode)
        });
        Ok(Placed { at: place.at, inode })
    }

    fn undo(&self, cx: &mut Context<'_>, done: &Done) {
        if done.is_double {
            cx.volume.latch();
        }
        if let Some(new) = done.new.filter(|_| cx.volume.is_latched()) {
            // The handles that there are know the segment by its old slot: by this one it would be another to the cache and to fences.
            cx.volume.doubt(new);
        }
        if let Some(charged) = done.charged.filter(|_| !cx.volume.is_latched()) {
            cx.volume.accounts.give_back(self.to.owner_uid, charged);
        }
    }
}

fn answer(cx: &mut Context<'_>, inode: &Inode) -> Result<Answer, Fault> {
    cx.release_token();
    cx.segment(inode)
}
