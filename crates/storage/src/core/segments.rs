//! Making, deleting and opening segments: runs the operations' state machines and hands the table token round.

use std::task::{Poll, Waker};

use baio_engine::Wait;

use super::tags::Recipient;
use super::{Core, no_volume};
use crate::error::{Error, Fault, Result};
use crate::holds::HoldId;
use crate::identity::{Access, Identity, Sight};
use crate::operation::create::{Create, CreateOptions};
use crate::operation::delete::Delete;
use crate::operation::open::OpenSegment;
use crate::operation::quota::SetQuota;
use crate::operation::rename::Rename;
use crate::operation::resize::{Resize, ResizeOptions};
use crate::operation::{Answer, Context, Event, Operation, Step, Subject};
use crate::request::Handle;
use crate::segment::name::{Key, SegmentName};
use crate::segment::probe::SlotAddress;
use crate::slot_map::SlotKey;
use crate::volume::accounts::{Account, Limits};
use crate::volume::inspect::{self, SegmentInfo};
use crate::volume::table::{Doubt, Healing};

/// An operation under way, and what it waits for.
pub(super) struct Running {
    operation: Operation,
    draining: Option<SlotAddress>,
    /// The hold that it waits for to be quiet.
    quieting: Option<HoldId>,
    answer: Option<Result<Answer>>,
    /// Whom its end wakes.
    waker: Option<Waker>,
    /// Nobody waits for the answer any more.
    left_alone: bool,
}

/// Names an operation under way, until its answer was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct OperationId(SlotKey);

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
        Ok(self.begin(Operation::Create(Create::new(subject, *options))))
    }

    /// Begins to delete a segment.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_delete(&mut self, who: Identity, owner_uid: u32, name: &str) -> Result<OperationId> {
        let subject = self.subject("delete", who, owner_uid, name)?;
        Ok(self.begin(Operation::Delete(Delete::new(subject, [0; 16]))))
    }

    /// Begins to open a segment.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_open(&mut self, who: Identity, owner_uid: u32, name: &str, access: Access) -> Result<OperationId> {
        let subject = self.subject("open", who, owner_uid, name)?;
        Ok(self.begin(Operation::Open(OpenSegment::new(subject, access))))
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
        Ok(self.begin(Operation::Resize(Resize::new(subject, *options))))
    }

    /// Begins to give a segment another name.
    ///
    /// # Errors
    /// As [`Core::begin_create`], for either name.
    pub fn begin_rename(&mut self, who: Identity, owner_uid: u32, old: &str, new: &str) -> Result<OperationId> {
        let operation = self.rename_of(who, owner_uid, old, new)?;
        Ok(self.begin(operation))
    }

    /// Begins to set what an owner may hold, in blocks and segments.
    ///
    /// # Errors
    /// No volume; everything else is told by the answer.
    pub fn begin_set_quota(&mut self, who: Identity, uid: u32, limits: Limits) -> Result<OperationId> {
        let operation = self.quota_of(who, uid, limits)?;
        Ok(self.begin(operation))
    }

    /// Takes the answer of an operation that has ended; its id is not valid any more then.
    pub fn take_answer(&mut self, id: &OperationId) -> Option<Result<Answer>> {
        let answer = self.running.get_mut(id.0)?.answer.take()?;
        self.running.remove(id.0);
        Some(answer)
    }

    /// Takes the answer of an operation if it has ended; else remembers whom to wake ([`Core::take_fired`]). `None` for an id that
    /// is not valid any more.
    pub fn poll_answer(&mut self, id: &OperationId, waker: Option<Waker>) -> Poll<Option<Result<Answer>>> {
        match self.running.get_mut(id.0) {
            Some(running) if running.answer.is_none() => {
                if waker.is_some() {
                    let old = std::mem::replace(&mut running.waker, waker);
                    self.displaced.extend(old);
                }
                Poll::Pending
            }
            _ => {
                self.displaced.extend(waker);
                Poll::Ready(self.take_answer(id))
            }
        }
    }

    /// Nobody will take the answer. The operation goes on to its end all the same; a handle that it would have given is closed then.
    pub fn abandon_operation(&mut self, id: OperationId) {
        let OperationId(key) = id;
        let Some(running) = self.running.get_mut(key) else {
            return;
        };
        running.left_alone = true;
        self.displaced.extend(running.waker.take());
        if let Some(answer) = running.answer.take() {
            self.running.remove(key);
            self.drop_answer(answer);
        }
    }

    fn drop_answer(&mut self, answer: Result<Answer>) {
        if let Ok(Answer::Opened(handle, _)) = answer {
            self.close_handle(handle);
        }
    }

    /// The wakers of all operations under way.
    pub(super) fn take_operation_wakers(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.running.values_mut().filter_map(|running| running.waker.take()));
    }

    pub(super) fn begin(&mut self, operation: Operation) -> OperationId {
        let key = self.running.insert(Running {
            operation,
            draining: None,
            quieting: None,
            answer: None,
            waker: None,
            left_alone: false,
        });
        self.step(key.index, Event::Begin);
        OperationId(key)
    }

    /// Begins an operation whose answer nobody waits for.
    pub(super) fn begin_alone(&mut self, operation: Operation) {
        let id = self.begin(operation);
        self.abandon_operation(id);
    }
}

impl Core {
    /// The segments that `who` may see. Runs the core until no record is being written; an operation whose
    /// record comes later does not show.
    ///
    /// # Errors
    /// When the core has no volume, or the table cannot be read.
    pub fn list(&mut self, who: Identity) -> Result<Vec<SegmentInfo>> {
        let listed = self.list_placed(who)?;
        Ok(listed.into_iter().map(|(_, info)| info).collect())
    }

    /// The same with the slots of their inodes.
    pub(super) fn list_placed(&mut self, who: Identity) -> Result<Vec<(SlotAddress, SegmentInfo)>> {
        // What is under way shows when its record is there, and only records are waited for: one that zeroes a large segment
        // keeps nobody from looking.
        self.keep_token()?;
        let listed = self.list_now(who);
        self.give_token();
        listed
    }

    fn list_now(&mut self, who: Identity) -> Result<Vec<(SlotAddress, SegmentInfo)>> {
        let Some(volume) = &self.volume else {
            return Err(no_volume("list"));
        };
        let doubt = match volume.is_read_only() {
            true => Doubt::after(&volume.superblock, Healing::InMemory),
            false => Doubt {
                from_epoch: u64::MAX,
                healing: Healing::InMemory,
            },
        };
        inspect::list(&mut self.engine, volume, doubt, who)
    }

    /// Is an operation under way that is waited for? One that has ended stays until somebody takes its answer, and a move may
    /// take long: in the background it waits for memory that the very caller may hold.
    pub(super) fn operations_under_way(&self) -> bool {
        let counts = |running: &Running| running.answer.is_none() && !running.operation.is_move();
        self.running.iter().any(|(_, running)| counts(running))
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
        self.run_on_segment(Operation::Create(Create::new(subject, *options)))
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
        self.run_on_segment(Operation::Resize(Resize::new(subject, *options)))
    }

    /// Gives a segment another name. Its handles stay valid.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Access`, `TableFull`, a bad name; or what the system said.
    pub fn rename(&mut self, who: Identity, owner_uid: u32, old: &str, new: &str) -> Result<SegmentInfo> {
        let operation = self.rename_of(who, owner_uid, old, new)?;
        self.run_on_segment(operation)
    }

    fn rename_of(&self, who: Identity, owner_uid: u32, old: &str, new: &str) -> Result<Operation> {
        let subject = self.subject("rename", who, owner_uid, old)?;
        let object = self.object_name(owner_uid, new);
        let name = SegmentName::new(new).map_err(|error| Error::new("rename", &object, error))?;
        Ok(Operation::Rename(Rename::new(subject, name, object)))
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
            Answer::Segment(_) | Answer::Opened(..) => self.quota(who, uid),
        }
    }

    fn quota_of(&self, who: Identity, uid: u32, limits: Limits) -> Result<Operation> {
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
        Ok(Operation::Quota(SetQuota::new(subject, limits)))
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
        self.run_on_segment(Operation::Delete(Delete::new(subject, [0; 16])))
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
        match self.run_operation(Operation::Open(OpenSegment::new(subject, access)))? {
            Answer::Opened(handle, info) => Ok((handle, info)),
            Answer::Segment(_) | Answer::Account(_) => Err(Error::new("open", object, Fault::NotFound)),
        }
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

    /// The same for an operation that answers with its segment.
    pub(super) fn run_on_segment(&mut self, operation: Operation) -> Result<SegmentInfo> {
        match self.run_operation(operation)? {
            Answer::Segment(info) | Answer::Opened(_, info) => Ok(info),
            Answer::Account(_) => Err(Error::new("run an operation on", self.volume_name(), Fault::NotFound)),
        }
    }

    /// Runs an operation to its end, turning the core meanwhile.
    fn run_operation(&mut self, operation: Operation) -> Result<Answer> {
        let id = self.begin(operation);
        loop {
            if let Some(answer) = self.take_answer(&id) {
                self.note_what_waits();
                return answer;
            }
            if let Err(error) = self.turn(Wait::one()) {
                // What it has begun still ends, and with that its place and the token come back.
                self.abandon_operation(id);
                return Err(error);
            }
        }
    }

    /// Moves an operation on by what has ended for it, unless it has gone itself.
    pub(super) fn tell_operation(&mut self, operation: Recipient, event: Event) {
        let Recipient::Operation { index, .. } = operation else {
            return;
        };
        let key = self.running.key_at(index);
        if key.is_some_and(|key| Recipient::operation(key) == operation) {
            self.step(index, event);
        }
    }

    /// Moves an operation on, and whoever gets the token by that.
    pub(super) fn step(&mut self, index: u32, event: Event) {
        let mut next = Some((index, event));
        while let Some((index, event)) = next {
            if let Some(event) = self.step_one(index, event) {
                next = Some((index, event));
                continue;
            }
            next = self.grant_token().map(|index| (index, Event::Token));
        }
    }

    /// Gives the next event if there is one at once.
    fn step_one(&mut self, index: u32, event: Event) -> Option<Event> {
        let key = self.running.key_at(index)?;
        let (running, volume) = (self.running.get_mut(key)?, self.volume.as_mut()?);
        if running.answer.is_some() {
            return None; // It has ended.
        }
        let mut has_token = self.token == Some(index);
        let mut context = Context {
            engine: &mut self.engine,
            volume,
            objects: &mut self.objects,
            requests: &mut self.requests,
            holds: &mut self.holds,
            index,
            tag: Recipient::operation(key).tag(),
            has_token: &mut has_token,
            claims: &mut self.claims,
            cached: self.cached.as_deref_mut().map(|cached| cached as _),
            wall_ns: self.wall_ns,
        };
        let step = running.operation.step(&mut context, event);
        let done = matches!(step, Step::Done(_));
        if self.token == Some(index) && (done || !has_token) {
            self.token = None;
        }
        if done {
            self.holds.release_of(index, &self.objects, &mut self.requests);
            if let Some(cached) = &mut self.cached {
                cached.release_cuts(index);
            }
        }
        match step {
            Step::Requests | Step::Uncached => {}
            Step::Token => self.waiting_for_token.push_back(index),
            Step::Unclaimed => self.waiting_for_claim.push(index),
            Step::Drain(address) => running.draining = Some(address),
            Step::Quiet(hold) if self.holds.is_quiet(hold) => return Some(Event::Drained),
            Step::Quiet(hold) => running.quieting = Some(hold),
            Step::Done(answer) => {
                self.fired.extend(running.waker.take());
                if running.left_alone {
                    self.running.remove(key);
                    self.drop_answer(answer);
                } else {
                    running.answer = Some(answer);
                }
                self.unclaim(index);
            }
        }
        None
    }

    /// An operation has ended: who waited for what it had claimed looks again, in the order of coming.
    fn unclaim(&mut self, index: u32) {
        if self.claims.release(index) {
            self.waiting_for_token.extend(self.waiting_for_claim.drain(..));
        }
    }

    /// Waits until no operation has the token, and lets none have it: for straight-line code that reads the table.
    pub(super) fn keep_token(&mut self) -> Result<()> {
        self.token_kept = true;
        while self.token.is_some() {
            if let Err(error) = self.turn(Wait::one()) {
                self.give_token();
                return Err(error);
            }
        }
        self.note_what_waits();
        Ok(())
    }

    pub(super) fn give_token(&mut self) {
        self.token_kept = false;
        if let Some(index) = self.grant_token() {
            self.step(index, Event::Token);
        }
    }

    fn grant_token(&mut self) -> Option<u32> {
        if self.token.is_some() || self.token_kept {
            return None;
        }
        self.token = self.waiting_for_token.pop_front();
        self.token
    }

    /// One request less on a handle: whoever waits for the last one may go on.
    pub(super) fn handle_idle(&mut self, handle: Handle) {
        // Only who waits for this segment has reason to look through all its handles.
        let address = self.objects.address(handle);
        self.objects.end(handle);
        for index in self.running.indices() {
            let Some(running) = self.running.at_mut(index) else {
                continue;
            };
            let draining = running.draining.filter(|at| address == Some(*at));
            let drained = draining.is_some_and(|at| self.objects.in_flight_on(at) == 0);
            let quiet = running.quieting.is_some_and(|hold| self.holds.is_quiet(hold));
            if drained || quiet {
                running.draining = None;
                running.quieting = None;
                self.step(index, Event::Drained);
            }
        }
    }
}

#[cfg(test)]
mod answers;
#[cfg(test)]
mod tests;
