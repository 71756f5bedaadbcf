//! Making, deleting, opening and listing segments, and what their owners may hold.

use super::{Core, OperationId};
use crate::error::{Error, Fault, Result};
use crate::identity::{Access, Identity, OwnershipChange, Sight};
use crate::object::{ObjectState, Target};
use crate::operation::check::check;
use crate::operation::create::{CreateOptions, create};
use crate::operation::delete::delete;
use crate::operation::list::list;
use crate::operation::open::{open, open_known};
use crate::operation::quota::set_quota;
use crate::operation::rename::{change_ownership, rename};
use crate::operation::repeat::OperationName;
use crate::operation::resize::{ResizeOptions, resize};
use crate::operation::{Answer, Operation, Subject};
use crate::request::Handle;
use crate::segment::name::{Key, SegmentName};
use crate::volume::accounts::{Account, Limits};
use crate::volume::inspect::SegmentInfo;

/// The same operations for whoever turns the core anyway, and must not be kept waiting by one of them.
impl Core {
    /// Begins to make a segment. Turn the core, and look for the answer.
    ///
    /// # Errors
    /// A bad name, or no volume; everything else is told by the answer.
    pub fn begin_create(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        options: &CreateOptions,
    ) -> Result<OperationId> {
        let subject = self.subject("create", who, owner_uid, name)?;
        Ok(self.begin(create(subject, *options, OperationName::NONE)))
    }

    /// Begins to delete a segment.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_delete(&mut self, who: Identity, owner_uid: u32, name: &str) -> Result<OperationId> {
        let subject = self.subject("delete", who, owner_uid, name)?;
        Ok(self.begin(delete(subject, OperationName::NONE)))
    }

    /// Begins to open a segment.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_open(&mut self, who: Identity, owner_uid: u32, name: &str, access: Access) -> Result<OperationId> {
        let subject = self.subject("open", who, owner_uid, name)?;
        Ok(self.begin(open(subject, access)))
    }

    /// Begins to open the segment with this uuid and no other ([`SegmentInfo::uuid`]), whatever its name is now: `name` is the one that it
    /// had, which is looked up first. It fails as `Stale` when that segment is gone, also if another has its name.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_open_known(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        access: Access,
        uuid: [u8; 16],
    ) -> Result<OperationId> {
        let subject = self.subject("open", who, owner_uid, name)?;
        Ok(self.begin(open_known(subject, access, uuid)))
    }

    /// Begins to give a segment another size or reserve.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_resize(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        options: &ResizeOptions,
    ) -> Result<OperationId> {
        let subject = self.subject("resize", who, owner_uid, name)?;
        Ok(self.begin(resize(subject, *options, OperationName::NONE)))
    }

    /// Begins to give a segment another name.
    ///
    /// # Errors
    /// As [`Core::begin_create`], for either name.
    pub fn begin_rename(&mut self, who: Identity, owner_uid: u32, old: &str, new: &str) -> Result<OperationId> {
        let operation = self.rename_of(who, owner_uid, old, new, OperationName::NONE)?;
        Ok(self.begin(operation))
    }

    /// Begins to give a segment another owner, group or mode.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_change_ownership(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        change: OwnershipChange,
    ) -> Result<OperationId> {
        let operation = self.ownership_of(who, owner_uid, name, change, OperationName::NONE)?;
        Ok(self.begin(operation))
    }

    /// Begins to list the segments that `who` may see, as they are at one moment: whoever wants to change the table waits meanwhile. A turn
    /// looks at a part of the table that takes less than a millisecond.
    ///
    /// # Errors
    /// No volume; everything else is told by the answer.
    pub fn begin_list(&mut self, who: Identity) -> Result<OperationId> {
        let operation = self.list_of(who)?;
        Ok(self.begin(operation))
    }

    /// Begins to check the volume while it serves, as [`check`](crate::check()) does without repairing: on a thread of its own, which reads
    /// all metadata. Whoever wants to change the table waits meanwhile; reads and writes go on. What is merely under way is no problem:
    /// moves are counted as unfinished, and the volume is not clean. The thread rings the engine's doorbell when it has ended. A check
    /// that is given up ends at once.
    ///
    /// Uid 0 may, and the user that the volume's file belongs to. A volume on a device that is no file of the system is checked before this
    /// returns, or in the turn that gives it the token.
    ///
    /// # Errors
    /// No volume; everything else is told by the answer: `Access`, `NotVolume` when the name of the volume's file leads to another file
    /// by now; or what the system said.
    pub fn begin_check(&mut self, who: Identity) -> Result<OperationId> {
        let subject = self.whole_subject("check", who)?;
        Ok(self.begin(check(subject)))
    }

    /// Begins to set what an owner may hold, in blocks and segments.
    ///
    /// # Errors
    /// No volume; everything else is told by the answer.
    pub fn begin_set_quota(&mut self, who: Identity, uid: u32, limits: Limits) -> Result<OperationId> {
        let operation = self.quota_of(who, uid, limits)?;
        Ok(self.begin(operation))
    }
}

impl Core {
    /// The segments that `who` may see, by owner and name, as the table is at one moment; an operation whose record comes later does
    /// not show. Other requests go on meanwhile.
    ///
    /// # Errors
    /// When the core has no volume, or the table cannot be read.
    pub fn list(&mut self, who: Identity) -> Result<Vec<SegmentInfo>> {
        let operation = self.list_of(who)?;
        match self.run_operation(operation)? {
            Answer::Segments { infos, .. } => Ok(infos),
            _ => Err(Error::new("list", self.volume_name(), Fault::NotFound)),
        }
    }

    pub(super) fn list_of(&self, who: Identity) -> Result<Operation> {
        Ok(list(self.whole_subject("list", who)?))
    }

    /// The subject of what is about the whole volume.
    pub(super) fn whole_subject(&self, operation: &'static str, who: Identity) -> Result<Subject> {
        self.volume_or(operation)?;
        let key = Key {
            owner_uid: 0,
            name: None,
        };
        Ok(Subject {
            operation,
            key,
            who,
            object: self.volume_name(),
        })
    }

    /// Makes a segment. Returns when it is durable; other requests go on meanwhile.
    ///
    /// # Errors
    /// `Exists`, `NoSpace`, `TableFull`, `Access`, a bad name or size; or what the system said.
    pub fn create(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        options: &CreateOptions,
    ) -> Result<SegmentInfo> {
        let subject = self.subject("create", who, owner_uid, name)?;
        self.run_on_segment(create(subject, *options, OperationName::NONE))
    }

    /// Gives a segment another size or reserve; open handles see the new size at once. What is cut off is gone: when it grows
    /// again it reads as zero there. Requests behind the new end that come meanwhile wait, and are refused then.
    ///
    /// # Errors
    /// `NotFound`, `Access`, `NoSpace`, `OverQuota`, a bad size; or what the system said. Unless that was a failed record
    /// (then the volume is latched) all is as before.
    pub fn resize(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        options: &ResizeOptions,
    ) -> Result<SegmentInfo> {
        let subject = self.subject("resize", who, owner_uid, name)?;
        self.run_on_segment(resize(subject, *options, OperationName::NONE))
    }

    /// Gives a segment another name. Its handles stay valid.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Access`, `TableFull`, a bad name; or what the system said.
    pub fn rename(&mut self, who: Identity, owner_uid: u32, old: &str, new: &str) -> Result<SegmentInfo> {
        let operation = self.rename_of(who, owner_uid, old, new, OperationName::NONE)?;
        self.run_on_segment(operation)
    }

    pub(super) fn rename_of(
        &self,
        who: Identity,
        owner_uid: u32,
        old: &str,
        new: &str,
        operation: OperationName,
    ) -> Result<Operation> {
        let subject = self.subject("rename", who, owner_uid, old)?;
        let object = self.object_name(owner_uid, new);
        let name = SegmentName::new(new).map_err(|error| Error::new("rename", &object, error))?;
        Ok(rename(subject, name, object, operation))
    }

    /// Gives a segment another owner, group or mode. Its handles stay valid, and may do what they could: rights are looked at when
    /// something is opened. A segment of a new owner is charged to that one, and its name is the new owner's.
    ///
    /// The mode is the owner's to change, and the group to one that he is in; uid 0 may all, and only uid 0 gives a segment away.
    ///
    /// # Errors
    /// `NotFound`, `Access`, `Group`, `Exists` where the new owner has a segment of that name, `OverQuota`, `TableFull`; or what the
    /// system said.
    pub fn change_ownership(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        change: OwnershipChange,
    ) -> Result<SegmentInfo> {
        let operation = self.ownership_of(who, owner_uid, name, change, OperationName::NONE)?;
        self.run_on_segment(operation)
    }

    pub(super) fn ownership_of(
        &self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        change: OwnershipChange,
        operation: OperationName,
    ) -> Result<Operation> {
        let subject = self.subject("change the ownership of", who, owner_uid, name)?;
        let object = self.object_name(change.owner_uid.unwrap_or(owner_uid), name);
        Ok(change_ownership(subject, change, object, operation))
    }

    /// Sets what an owner may hold, in blocks and segments; uid 0 may, and the user that the volume's file belongs to. The limits of
    /// [`EVERYBODY_ELSE`](crate::EVERYBODY_ELSE) bind each owner without limits of its own, uid 0 excepted. A limit below what is held takes nothing away.
    ///
    /// # Errors
    /// `Access`, `TableFull`; or what the system said.
    pub fn set_quota(&mut self, who: Identity, uid: u32, limits: Limits) -> Result<Account> {
        let operation = self.quota_of(who, uid, limits)?;
        match self.run_operation(operation)? {
            Answer::Account(account) => Ok(account),
            _ => self.quota(who, uid),
        }
    }

    pub(super) fn quota_of(&self, who: Identity, uid: u32, limits: Limits) -> Result<Operation> {
        let operation = "set the quota";
        self.volume_or(operation)?;
        // The device says so of no limit: what is in memory must not say otherwise.
        let limit = |limit: Option<u64>| limit.filter(|limit| *limit != u64::MAX);
        let limits = Limits {
            blocks: limit(limits.blocks),
            segments: limit(limits.segments),
        };
        let subject = Subject {
            operation,
            key: Key::quota(uid),
            who,
            object: self.account_name(uid),
        };
        Ok(set_quota(subject, limits))
    }

    /// What an owner holds and may hold, in blocks and segments; what is promised to operations under way counts. Owners see
    /// their own, uid 0 and the user that the volume's file belongs to all.
    ///
    /// # Errors
    /// `Access`; or when the core has no volume.
    pub fn quota(&self, who: Identity, uid: u32) -> Result<Account> {
        let operation = "show the quota";
        let volume = self.volume_or(operation)?;
        if !who.acts_for(uid) && volume.device.sight(who) != Sight::Whole {
            let fault = Fault::Access { uid: who.uid };
            return Err(Error::new(operation, self.account_name(uid), fault));
        }
        Ok(volume.accounts.get(uid))
    }

    fn account_name(&self, uid: u32) -> String {
        format!("uid {uid} on {}", self.volume_name())
    }

    /// Deletes a segment: new requests are refused, those under way end, then it is gone for good.
    ///
    /// # Errors
    /// `NotFound`, `Access`; or what the system said.
    pub fn delete(&mut self, who: Identity, owner_uid: u32, name: &str) -> Result<SegmentInfo> {
        let subject = self.subject("delete", who, owner_uid, name)?;
        self.run_on_segment(delete(subject, OperationName::NONE))
    }

    /// Opens a segment.
    ///
    /// # Errors
    /// `NotFound`, `Access`; or what the system said.
    pub fn open_segment(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        access: Access,
    ) -> Result<(Handle, SegmentInfo)> {
        let subject = self.subject("open", who, owner_uid, name)?;
        let object = subject.object.clone();
        match self.run_operation(open(subject, access))? {
            Answer::Opened { handle, info, .. } => Ok((handle, info)),
            _ => Err(Error::new("open", object, Fault::NotFound)),
        }
    }

    /// Another handle on the segment or file that a handle names, which may do no more than that one. Closing either leaves
    /// the other.
    ///
    /// # Errors
    /// `Stale`; `ReadOnly` for write access by a handle for reading.
    pub fn open_again(&mut self, handle: Handle, access: Access) -> Result<Handle> {
        let known = self
            .lane
            .objects
            .get(handle)
            .filter(|object| object.state == ObjectState::Open);
        let Some(object) = known else {
            return Err(Error::new("open", "a closed handle", Fault::Stale));
        };
        if object.access == Access::Read && access == Access::Write {
            return Err(Error::new("open", &object.name, Fault::ReadOnly));
        }
        let (name, target, opened_by) = (object.name.clone(), object.target.clone(), object.opened_by);
        if let Target::Plain(file) = &target {
            self.lane.engine.attach(file);
        }
        let handle = self.lane.objects.add(name, access, target);
        self.lane.objects.opened_by(handle, opened_by);
        Ok(handle)
    }

    /// Is anything under way on a handle, closed or not? What was answered at its deadline is, until the kernel has let go of it.
    #[must_use]
    pub fn is_under_way_on(&self, handle: Handle) -> bool {
        self.lane.objects.get(handle).is_some_and(|object| object.in_flight > 0)
    }

    pub(super) fn subject(
        &self,
        operation: &'static str,
        who: Identity,
        owner_uid: u32,
        name: &str,
    ) -> Result<Subject> {
        let object = self.object_name(owner_uid, name);
        let name = SegmentName::new(name).map_err(|error| Error::new(operation, &object, error))?;
        self.volume_or(operation)?;
        Ok(Subject {
            operation,
            key: Key::segment(owner_uid, name),
            who,
            object,
        })
    }

    pub(super) fn object_name(&self, owner_uid: u32, name: &str) -> String {
        format!("{}#{owner_uid}/{name}", self.volume_name())
    }
}
