//! Making, deleting and opening segments: runs the operations' state machines and hands the table token round.

use baio_engine::Wait;

use super::holds::HoldId;
use super::{Core, Owner, no_volume};
use crate::error::{Error, Fault, Result};
use crate::identity::{Access, Identity};
use crate::operation::create::{Create, CreateOptions};
use crate::operation::delete::Delete;
use crate::operation::open::OpenSegment;
use crate::operation::{Answer, Context, Event, Operation, Step, Subject};
use crate::request::Handle;
use crate::segment::name::{Key, SegmentName};
use crate::segment::probe::SlotAddress;
use crate::volume::inspect::{self, SegmentInfo};
use crate::volume::table::{Doubt, Healing};

/// An operation under way, and what it waits for.
pub(super) struct Running {
    operation: Operation,
    draining: Option<SlotAddress>,
    /// The hold that it waits for to be quiet.
    quieting: Option<HoldId>,
    answer: Option<Result<Answer>>,
    /// Nobody waits for the answer any more.
    left_alone: bool,
}

/// Names an operation under way, until its answer was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct OperationId(u32);

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

    /// Takes the answer of an operation that has ended; its id is not valid any more then.
    pub fn take_answer(&mut self, id: &OperationId) -> Option<Result<Answer>> {
        let place = self.running.get_mut(id.0 as usize)?;
        let answer = place.as_mut()?.answer.take()?;
        *place = None;
        Some(answer)
    }

    fn begin(&mut self, operation: Operation) -> OperationId {
        let free = self.running.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        });
        self.running[index] = Some(Running {
            operation,
            draining: None,
            quieting: None,
            answer: None,
            left_alone: false,
        });
        self.step(index as u32, Event::Begin);
        OperationId(index as u32)
    }
}

impl Core {
    /// The segments that `who` may see. Runs the core until no operation is under way.
    ///
    /// # Errors
    /// When the core has no volume, or the table cannot be read.
    pub fn list(&mut self, who: Identity) -> Result<Vec<SegmentInfo>> {
        // One that has ended stays until somebody takes its answer, which cannot happen in here.
        let under_way = |place: &Option<Running>| place.as_ref().is_some_and(|running| running.answer.is_none());
        while self.running.iter().any(under_way) {
            self.turn(Wait::one())?;
        }
        let Some(volume) = &self.volume else {
            return Err(no_volume("list"));
        };
        let doubt = Doubt {
            from_epoch: u64::MAX,
            healing: Healing::InMemory,
        };
        let quarantined = |at| volume.quarantined.contains(&at);
        inspect::list(
            &mut self.engine,
            &volume.device,
            &volume.superblock,
            doubt,
            who,
            quarantined,
        )
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
        let operation = Operation::Create(Create::new(subject, *options));
        self.run_operation(operation).map(Answer::into_info)
    }

    /// Deletes a segment: new requests are refused, those under way end, then it is gone for good.
    ///
    /// # Errors
    /// `NotFound`, `Access`; or what the system said.
    pub fn delete(&mut self, who: Identity, owner_uid: u32, name: &str) -> Result<SegmentInfo> {
        let subject = self.subject("delete", who, owner_uid, name)?;
        self.run_operation(Operation::Delete(Delete::new(subject, [0; 16])))
            .map(Answer::into_info)
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
            Answer::Segment(_) => Err(Error::new("open", object, Fault::NotFound)),
        }
    }

    fn subject(&self, operation: &'static str, who: Identity, owner_uid: u32, name: &str) -> Result<Subject> {
        let object = format!("{}#{owner_uid}/{name}", self.volume_name());
        let name = SegmentName::new(name).map_err(|error| Error::new(operation, &object, error))?;
        self.volume_or(operation)?;
        Ok(Subject {
            operation,
            key: Key::segment(owner_uid, name),
            who,
            object,
        })
    }

    /// Runs an operation to its end, turning the core meanwhile.
    fn run_operation(&mut self, operation: Operation) -> Result<Answer> {
        let id = self.begin(operation);
        loop {
            if let Some(answer) = self.take_answer(&id) {
                return answer;
            }
            if let Err(error) = self.turn(Wait::one()) {
                // What it has begun still ends, and with that its place and the token come back.
                if let Some(running) = &mut self.running[id.0 as usize] {
                    running.left_alone = true;
                }
                return Err(error);
            }
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
        let (Some(Some(running)), Some(volume)) = (self.running.get_mut(index as usize), &mut self.volume) else {
            return None;
        };
        let mut has_token = self.token == Some(index);
        let mut context = Context {
            engine: &mut self.engine,
            volume,
            objects: &mut self.objects,
            requests: &self.requests,
            holds: &mut self.holds,
            index,
            tag: Owner::Operation(index).tag(),
            has_token: &mut has_token,
            claims: &mut self.claims,
            wall_ns: self.wall_ns,
        };
        let step = running.operation.step(&mut context, event);
        if self.token == Some(index) && !has_token {
            self.token = None;
        }
        if matches!(step, Step::Done(_)) {
            self.holds.release_of(index, &mut self.engine, &self.objects);
        }
        match step {
            Step::Requests => {}
            Step::Token => self.waiting_for_token.push_back(index),
            Step::Unclaimed => self.waiting_for_claim.push(index),
            Step::Drain(address) => running.draining = Some(address),
            Step::Quiet(hold) if self.holds.is_quiet(hold) => return Some(Event::Drained),
            Step::Quiet(hold) => running.quieting = Some(hold),
            Step::Done(answer) => {
                if running.left_alone {
                    self.running[index as usize] = None;
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

    fn grant_token(&mut self) -> Option<u32> {
        if self.token.is_some() {
            return None;
        }
        self.token = self.waiting_for_token.pop_front();
        self.token
    }

    /// One request less on a handle: whoever waits for the last one may go on.
    pub(super) fn handle_idle(&mut self, handle: Handle) {
        self.objects.end(handle);
        for index in 0..self.running.len() {
            let Some(running) = &mut self.running[index] else {
                continue;
            };
            let drained = running.draining.is_some_and(|at| self.objects.in_flight_on(at) == 0);
            let quiet = running.quieting.is_some_and(|hold| self.holds.is_quiet(hold));
            if drained || quiet {
                running.draining = None;
                running.quieting = None;
                self.step(index as u32, Event::Drained);
            }
        }
    }
}
