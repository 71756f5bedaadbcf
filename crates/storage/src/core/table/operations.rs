//! Running operations: moves them on, hands the table token round, and keeps their answers.
//!
//! Any of them can be *called off*: by its owner, or because the core winds down. Whatever it is, if it waits for the token or for somebody's
//! claim it ends at once ([`Event::CalledOff`]); what only looks ends at its next step, zeroes with those under way.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use baio_engine::Wait;

use crate::core::Core;
use crate::core::table::Table;
use crate::core::tags::Recipient;
use crate::crossing::{Awaited, LaneDoor, ToLane};
use crate::error::{Error, Fault, Result};
use crate::operation::{Answer, Context, Event, Kind, Operation, Progress, Shown, Step, waits};
use crate::slot_map::SlotKey;
use crate::volume::inspect::SegmentInfo;

/// An operation under way, and what it waits for.
pub(in crate::core) struct Running {
    operation: Operation,
    stilling: Stilling,
    /// Requests of its own that have not ended.
    under_way: u32,
    answer: Option<Result<Answer>>,
    /// Whom its end wakes.
    waker: Option<Waker>,
    /// Nobody waits for the answer any more.
    left_alone: bool,
    /// It is to end early, if it can.
    called_off: bool,
    /// It has had a turn with the table.
    has_begun: bool,
    /// The operation that has begun it, and is told its answer.
    parent: Option<SlotKey>,
    /// Who is told how far it is.
    watch: Option<Watch>,
}

/// Does it wait for the end of all that changes the device, and of whose? Nobody begins anew meanwhile, so what was found still stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stilling {
    No,
    /// Of requests: the lane tells.
    Requests,
    /// These have ended; operations may not have.
    Operations,
}

/// How far an operation is, told at each of its steps; for any thread.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Mutex<Option<Progress>>>);

impl Watch {
    /// How far it was at its last step that took long; `None` before the first.
    #[must_use]
    pub fn get(&self) -> Option<Progress> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, progress: Option<Progress>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *told = progress.or(*told);
    }
}

impl Running {
    fn new(operation: Operation, parent: Option<SlotKey>) -> Running {
        Running {
            operation,
            stilling: Stilling::No,
            under_way: 0,
            answer: None,
            waker: None,
            left_alone: false,
            called_off: false,
            has_begun: false,
            parent,
            watch: None,
        }
    }

    /// Ends it when it waits for the token? A move has its mark to write first, and asks for itself. Who waits for a claim has begun nothing.
    fn may_end_waiting(&self) -> bool {
        self.called_off && !self.is_move()
    }

    /// What is seen of it.
    pub(in crate::core) fn shown(&self) -> &Shown {
        &self.operation.shown
    }

    pub(in crate::core) fn kind(&self) -> Kind {
        self.operation.shown.kind
    }

    fn is_move(&self) -> bool {
        self.kind() == Kind::Moves
    }

    pub(in crate::core) fn waits_for_stillness(&self) -> bool {
        self.stilling != Stilling::No
    }

    pub(in crate::core) fn waits_for_operations(&self) -> bool {
        self.stilling == Stilling::Operations
    }

    /// The lane tells that what it waits for there has come: is that the stillness of requests?
    pub(in crate::core) fn requests_are_still(&mut self) -> bool {
        let is_it = self.stilling == Stilling::Requests;
        if is_it {
            self.stilling = Stilling::Operations;
        }
        is_it
    }

    /// What it waited for has come about.
    pub(in crate::core) fn found_still(&mut self) {
        self.stilling = Stilling::No;
    }

    pub(in crate::core) fn has_ended(&self) -> bool {
        self.answer.is_some()
    }

    pub(in crate::core) fn is_at_device(&self) -> bool {
        self.under_way > 0
    }
}

/// Names an operation under way, until its answer was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct OperationId(SlotKey);

impl Core {
    /// Takes the answer of an operation that has ended; its id is not valid any more then.
    pub fn take_answer(&mut self, id: &OperationId) -> Option<Result<Answer>> {
        let answer = self.table.running.get_mut(id.0)?.answer.take()?;
        self.table.running.remove(id.0);
        Some(answer)
    }

    /// Takes the answer of an operation if it has ended; else remembers whom to wake ([`Core::take_fired`]). `None` for an id that
    /// is not valid any more.
    pub fn poll_answer(&mut self, id: &OperationId, waker: Option<Waker>) -> Poll<Option<Result<Answer>>> {
        match self.table.running.get_mut(id.0) {
            Some(running) if running.answer.is_none() => {
                if waker.is_some() {
                    let old = std::mem::replace(&mut running.waker, waker);
                    self.lane.displaced.extend(old);
                }
                Poll::Pending
            }
            _ => {
                self.lane.displaced.extend(waker);
                Poll::Ready(self.take_answer(id))
            }
        }
    }

    /// How far an operation is. `None` while it does nothing that takes long, and for an id that is not valid any more.
    #[must_use]
    pub fn operation_progress(&self, id: &OperationId) -> Option<Progress> {
        self.table.running.get(id.0)?.shown().progress()
    }

    /// Tells `watch` how far an operation is, at each of its steps.
    pub fn watch_operation(&mut self, id: &OperationId, watch: Watch) {
        if let Some(running) = self.table.running.get_mut(id.0) {
            running.watch = Some(watch);
        }
    }

    /// Nobody will take the answer. What changes anything goes on to its end all the same; what only reads is called off. A handle that it
    /// would have given is closed then.
    pub fn abandon_operation(&mut self, id: OperationId) {
        let OperationId(key) = id;
        let Some(running) = self.table.running.get_mut(key) else {
            return;
        };
        running.left_alone = true;
        self.lane.displaced.extend(running.waker.take());
        if running.kind().only_reads() {
            self.table.ends_early(&mut self.lane, key);
        }
        let Some(running) = self.table.running.get_mut(key) else {
            return;
        };
        if let Some(answer) = running.answer.take() {
            self.table.running.remove(key);
            self.table.drop_answer(&mut self.lane, answer);
        }
    }

    /// The operation is to end early, if it can: one that waits for others at once, one that only reads at its next step, zeroes with those
    /// under way, a defragmentation with the move under way. It is answered as ever.
    pub fn call_off_operation(&mut self, id: &OperationId) {
        self.table.ends_early(&mut self.lane, id.0);
    }

    pub(in crate::core) fn begin(&mut self, operation: Operation) -> OperationId {
        self.table.begin(&mut self.lane, operation)
    }

    /// The same for an operation that answers with its segment.
    pub(in crate::core) fn run_on_segment(&mut self, operation: Operation) -> Result<SegmentInfo> {
        match self.run_operation(operation)? {
            Answer::Segment { info } | Answer::Opened { info, .. } => Ok(info),
            _ => Err(Error::new("run an operation on", self.volume_name(), Fault::NotFound)),
        }
    }

    /// Runs an operation to its end, turning the core meanwhile.
    pub(in crate::core) fn run_operation(&mut self, operation: Operation) -> Result<Answer> {
        self.run_telling(operation, &mut |_| {})
    }

    /// The same for somebody who is told how far it is, after each turn and at the end.
    pub(in crate::core) fn run_telling(
        &mut self,
        operation: Operation,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Answer> {
        let id = self.begin(operation);
        loop {
            if let Some(progress) = self.operation_progress(&id) {
                tell(progress);
            }
            if let Some(answer) = self.take_answer(&id) {
                self.lane.note_what_waits();
                return answer;
            }
            if let Err(error) = self.turn(Wait::one()) {
                // What it has begun still ends, and with that its place and the token come back.
                self.abandon_operation(id);
                return Err(error);
            }
        }
    }
}

impl Table {
    fn ends_early(&mut self, lane: &mut dyn LaneDoor, key: SlotKey) {
        let Some(running) = self.running.get_mut(key).filter(|running| !running.has_ended()) else {
            return;
        };
        running.called_off = true;
        if self.stops_waiting(key) {
            return self.step(lane, key.index, Event::CalledOff);
        }
        // Others wait for the end of a freeze and of a check: these look at once whether anybody wants them.
        if self.running.get(key).is_some_and(|running| running.kind().is_turned()) {
            self.next_turn.push(key);
        }
    }

    /// The volume is about to be closed: whoever waits for a first turn ends, and so does whatever only reads. What has begun to change the
    /// volume goes on.
    pub(in crate::core) fn call_off_all(&mut self, lane: &mut dyn LaneDoor) {
        let keys = self.running.indices().filter_map(|index| self.running.key_at(index));
        let keys: Vec<SlotKey> = keys.collect();
        for running in self.running.values_mut() {
            running.called_off |= !running.has_begun || running.kind().only_reads();
        }
        // All of them leave the line first: nobody gets a turn by another's end.
        let waiting: Vec<SlotKey> = keys.into_iter().filter(|key| self.stops_waiting(*key)).collect();
        for key in waiting {
            self.step(lane, key.index, Event::CalledOff);
        }
    }

    /// Takes one that was called off out of the line that it stands in; false if it stands in none, or has to stay there.
    fn stops_waiting(&mut self, key: SlotKey) -> bool {
        let Some(running) = self.running.get(key).filter(|running| running.called_off) else {
            return false;
        };
        let may_leave_the_token = running.may_end_waiting();
        let before = self.waiting_for_claim.len();
        self.waiting_for_claim.retain(|index| *index != key.index);
        self.waiting_for_claim.len() < before || may_leave_the_token && self.token.forget(key.index)
    }

    fn drop_answer(&mut self, lane: &mut dyn LaneDoor, answer: Result<Answer>) {
        match answer {
            Ok(Answer::Frozen { freeze }) => self.thaw(lane, freeze),
            Ok(answer) => {
                if let Some(handle) = answer.handle() {
                    lane.obey(ToLane::Close { handle });
                }
            }
            Err(_) => {}
        }
    }

    /// The wakers of all operations under way.
    pub(in crate::core) fn take_operation_wakers(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.running.values_mut().filter_map(|running| running.waker.take()));
    }

    pub(in crate::core) fn begin(&mut self, lane: &mut dyn LaneDoor, operation: Operation) -> OperationId {
        self.begin_for(lane, operation, false)
    }

    /// Begins an operation whose answer nobody waits for.
    pub(in crate::core) fn begin_alone(&mut self, lane: &mut dyn LaneDoor, operation: Operation) {
        self.begin_for(lane, operation, true);
    }

    fn begin_for(&mut self, lane: &mut dyn LaneDoor, operation: Operation, left_alone: bool) -> OperationId {
        let mut running = Running::new(operation, None);
        running.called_off = self.claims.is_closing();
        running.left_alone = left_alone;
        let key = self.running.insert(running);
        self.step(lane, key.index, Event::Begin);
        OperationId(key)
    }

    /// Has an operation the table, or does it wait for that, or is it at the device? What waits for others' requests or a log does so
    /// for as long as these want, and the very caller may have them; so does a move, for memory.
    pub(in crate::core) fn is_at_work(&self) -> bool {
        let mut running = self.running.iter().filter(|(_, running)| !running.is_move());
        running.any(|(index, running)| running.is_at_device() || self.token.concerns(index))
    }

    /// Moves an operation on by what has ended for it, unless it has gone itself.
    pub(in crate::core) fn tell_operation(&mut self, lane: &mut dyn LaneDoor, operation: Recipient, event: Event) {
        let Recipient::Operation { index, .. } = operation else {
            return;
        };
        let key = self.running.key_at(index);
        let Some(key) = key.filter(|key| Recipient::operation(*key) == operation) else {
            return;
        };
        if let (Event::Completed(_), Some(running)) = (&event, self.running.get_mut(key)) {
            running.under_way = running.under_way.saturating_sub(1);
        }
        self.step(lane, index, event);
    }

    /// Moves an operation on, and whoever gets the token by that.
    pub(in crate::core) fn step(&mut self, lane: &mut dyn LaneDoor, index: u32, event: Event) {
        if let Some(key) = self.running.key_at(index).filter(|key| self.is_put_off(*key, &event)) {
            return self.freeze.put_off.push((key, event));
        }
        let mut next = Some((index, event));
        while let Some((index, event)) = next {
            next = self.step_one(lane, index, event);
            if next.is_some() {
                continue;
            }
            next = self.grant_token().map(|index| (index, Event::Token));
        }
        while let Some(at) = self.goes_on.pop() {
            self.resume_move(lane, at);
        }
    }

    /// Gives the next event if there is one at once, and whose it is.
    fn step_one(&mut self, lane: &mut dyn LaneDoor, index: u32, event: Event) -> Option<(u32, Event)> {
        let key = self.running.key_at(index)?;
        let (running, volume) = (self.running.get_mut(key)?, self.volume.as_mut()?);
        if running.answer.is_some() {
            return None; // It has ended.
        }
        let mut has_token = self.token.is_with(index);
        let (mut event, mut waits_for) = (Some(event), None);
        let Operation { subject, shown, story } = &mut running.operation;
        let context = Context {
            volume,
            lane: &mut *lane,
            key,
            index,
            holds_made: &mut self.holds_made,
            tag: Recipient::operation(key).tag(),
            has_token: &mut has_token,
            claims: &mut self.claims,
            goes_on: &mut self.goes_on,
            is_abandoned: running.left_alone || running.called_off,
            is_called_off: running.called_off,
            freeze: &mut self.freeze,
            under_way: &mut running.under_way,
            subject,
            shown,
            event: &mut event,
            waits_for: &mut waits_for,
        };
        let step = waits::step(story, context);
        if let Some(watch) = &running.watch {
            watch.set(running.shown().progress());
        }
        let done = matches!(step, Step::Done(_));
        if done || !has_token {
            self.token.release(index);
        }
        if done {
            lane.obey(ToLane::Ended { operation: key });
        }
        match step {
            Step::Requests | Step::Uncached => {}
            Step::Turn => self.next_turn.push(key),
            Step::Still => {
                running.stilling = Stilling::Requests;
                lane.will_tell(key, Awaited::Still(self.freeze.stillness()));
            }
            Step::Thread => self.with_threads.push(key),
            Step::Token if running.may_end_waiting() => return Some((index, Event::CalledOff)),
            Step::Unclaimed if running.called_off => return Some((index, Event::CalledOff)),
            Step::Token => self.wait_for_token(index),
            Step::Unclaimed => self.waiting_for_claim.push(index),
            Step::Lane(what) if !lane.will_tell(key, what) => {
                return Some((index, Event::Drained));
            }
            Step::Lane(_) => {}
            Step::Begin(operation) => {
                let child = self.running.insert(Running::new(*operation, Some(key)));
                return Some((child.index, Event::Begin));
            }
            Step::Done(answer) => return self.operation_ended(lane, key, answer),
        }
        None
    }

    fn operation_ended(
        &mut self,
        lane: &mut dyn LaneDoor,
        key: SlotKey,
        answer: Result<Answer>,
    ) -> Option<(u32, Event)> {
        self.unclaim(key.index);
        let running = self.running.get_mut(key)?;
        running.stilling = Stilling::No;
        if let Some(parent) = running.parent {
            self.running.remove(key);
            self.running.get(parent)?; // It had an accident.
            return Some((parent.index, Event::Answered(answer)));
        }
        self.fired.extend(running.waker.take());
        let is_freeze = running.kind() == Kind::Freezes;
        if running.left_alone {
            self.running.remove(key);
            self.drop_answer(lane, answer);
        } else {
            running.answer = Some(answer);
        }
        if is_freeze {
            self.freeze_ended(lane, key.index);
        }
        None
    }

    /// Moves on those whose threads have ended. Says whether there were any.
    pub(in crate::core) fn step_threads(&mut self, lane: &mut dyn LaneDoor) -> bool {
        let mut any = false;
        for key in std::mem::take(&mut self.with_threads) {
            match self.running.get(key).filter(|running| !running.has_ended()) {
                Some(running) if running.shown().thread_is_over() => {
                    any = true;
                    self.step(lane, key.index, Event::Thread);
                }
                Some(_) => self.with_threads.push(key),
                None => {}
            }
        }
        any
    }

    /// Moves on those that have put something off until the next turn. Says whether there were any.
    pub(in crate::core) fn step_put_off(&mut self, lane: &mut dyn LaneDoor) -> bool {
        if self.next_turn.is_empty() {
            return false;
        }
        for key in std::mem::take(&mut self.next_turn) {
            if self.running.get(key).is_some() {
                self.step(lane, key.index, Event::Turn);
            }
        }
        true
    }

    /// An operation has ended: who waited for what it had claimed looks again, in the order of coming.
    fn unclaim(&mut self, index: u32) {
        if self.claims.release(index) {
            for index in std::mem::take(&mut self.waiting_for_claim) {
                self.wait_for_token(index);
            }
        }
    }

    fn wait_for_token(&mut self, index: u32) {
        if let Some(running) = self.running.at_mut(index) {
            let uid = running.operation.subject.who.uid;
            self.token.wait(uid, index, running.shown().taking);
        }
    }

    pub(in crate::core) fn grant_token(&mut self) -> Option<u32> {
        let is_frozen = self.is_frozen();
        let running = &self.running;
        let may_go = |index: u32| {
            let running = running.key_at(index).and_then(|key| running.get(key));
            !is_frozen || running.is_some_and(|running| running.kind().only_reads())
        };
        let index = self.token.grant(may_go)?;
        if let Some(running) = self.running.at_mut(index) {
            running.has_begun = true;
        }
        Some(index)
    }
}

#[cfg(test)]
mod answers;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;
