//! Running operations: moves them on, hands the table token round, and keeps their answers.
//!
//! Any of them can be *called off*: by its owner, or because the core winds down. Whatever it is, if it waits for the token or for somebody's
//! claim it ends at once ([`Event::CalledOff`]); what only looks ends at its next step, zeroes with those under way.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use baio_engine::Wait;

use super::Core;
use super::tags::Recipient;
use crate::error::{Error, Fault, Result};
use crate::holds::HoldId;
use crate::operation::{Answer, Context, Event, Kind, Operation, Progress, Shown, Step, waits};
use crate::request::Handle;
use crate::segment::probe::SlotAddress;
use crate::slot_map::SlotKey;
use crate::volume::inspect::SegmentInfo;

/// An operation under way, and what it waits for.
pub(super) struct Running {
    operation: Operation,
    draining: Option<SlotAddress>,
    /// It waits for the end of all that changes the device.
    stilling: bool,
    /// Requests of its own that have not ended.
    under_way: u32,
    /// The hold that it waits for to be quiet.
    quieting: Option<HoldId>,
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
            draining: None,
            stilling: false,
            under_way: 0,
            quieting: None,
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
    pub(super) fn shown(&self) -> &Shown {
        &self.operation.shown
    }

    pub(super) fn kind(&self) -> Kind {
        self.operation.shown.kind
    }

    fn is_move(&self) -> bool {
        self.kind() == Kind::Moves
    }

    pub(super) fn waits_for_stillness(&self) -> bool {
        self.stilling
    }

    /// What it waited for has come about.
    pub(super) fn found_still(&mut self) {
        self.stilling = false;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.answer.is_some()
    }

    pub(super) fn is_at_device(&self) -> bool {
        self.under_way > 0
    }
}

/// Names an operation under way, until its answer was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct OperationId(SlotKey);

impl Core {
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

    /// How far an operation is. `None` while it does nothing that takes long, and for an id that is not valid any more.
    #[must_use]
    pub fn operation_progress(&self, id: &OperationId) -> Option<Progress> {
        self.running.get(id.0)?.shown().progress()
    }

    /// Tells `watch` how far an operation is, at each of its steps.
    pub fn watch_operation(&mut self, id: &OperationId, watch: Watch) {
        if let Some(running) = self.running.get_mut(id.0) {
            running.watch = Some(watch);
        }
    }

    /// Nobody will take the answer. What changes anything goes on to its end all the same; what only reads is called off. A handle that it
    /// would have given is closed then.
    pub fn abandon_operation(&mut self, id: OperationId) {
        let OperationId(key) = id;
        let Some(running) = self.running.get_mut(key) else {
            return;
        };
        running.left_alone = true;
        self.displaced.extend(running.waker.take());
        if running.kind().only_reads() {
            self.ends_early(key);
        }
        let Some(running) = self.running.get_mut(key) else {
            return;
        };
        if let Some(answer) = running.answer.take() {
            self.running.remove(key);
            self.drop_answer(answer);
        }
    }

    /// The operation is to end early, if it can: one that waits for others at once, one that only reads at its next step, zeroes with those
    /// under way, a defragmentation with the move under way. It is answered as ever.
    pub fn call_off_operation(&mut self, id: &OperationId) {
        self.ends_early(id.0);
    }

    fn ends_early(&mut self, key: SlotKey) {
        let Some(running) = self.running.get_mut(key).filter(|running| !running.has_ended()) else {
            return;
        };
        running.called_off = true;
        if self.stops_waiting(key) {
            return self.step(key.index, Event::CalledOff);
        }
        // Others wait for the end of a freeze and of a check: these look at once whether anybody wants them.
        if self.running.get(key).is_some_and(|running| running.kind().is_turned()) {
            self.next_turn.push(key);
        }
    }

    /// The volume is about to be closed: whoever waits for a first turn ends, and so does whatever only reads. What has begun to change the
    /// volume goes on.
    pub(super) fn call_off_all(&mut self) {
        let keys = self.running.indices().filter_map(|index| self.running.key_at(index));
        let keys: Vec<SlotKey> = keys.collect();
        for running in self.running.values_mut() {
            running.called_off |= !running.has_begun || running.kind().only_reads();
        }
        // All of them leave the line first: nobody gets a turn by another's end.
        let waiting: Vec<SlotKey> = keys.into_iter().filter(|key| self.stops_waiting(*key)).collect();
        for key in waiting {
            self.step(key.index, Event::CalledOff);
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

    fn drop_answer(&mut self, answer: Result<Answer>) {
        match answer {
            Ok(Answer::Frozen { freeze }) => self.thaw(freeze),
            Ok(answer) => {
                if let Some(handle) = answer.handle() {
                    self.close_handle(handle);
                }
            }
            Err(_) => {}
        }
    }

    /// The wakers of all operations under way.
    pub(super) fn take_operation_wakers(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.running.values_mut().filter_map(|running| running.waker.take()));
    }

    pub(super) fn begin(&mut self, operation: Operation) -> OperationId {
        let mut running = Running::new(operation, None);
        running.called_off = self.claims.is_closing();
        let key = self.running.insert(running);
        self.step(key.index, Event::Begin);
        OperationId(key)
    }

    /// Begins an operation whose answer nobody waits for.
    pub(super) fn begin_alone(&mut self, operation: Operation) {
        let id = self.begin(operation);
        self.abandon_operation(id);
    }

    /// Is an operation under way that is waited for? One that has ended stays until somebody takes its answer, and a move may
    /// take long: in the background it waits for memory that the very caller may hold.
    pub(super) fn operations_under_way(&self) -> bool {
        let counts = |running: &Running| running.answer.is_none() && !running.is_move();
        self.running.iter().any(|(_, running)| counts(running))
    }

    /// The same for an operation that answers with its segment.
    pub(super) fn run_on_segment(&mut self, operation: Operation) -> Result<SegmentInfo> {
        match self.run_operation(operation)? {
            Answer::Segment { info } | Answer::Opened { info, .. } => Ok(info),
            _ => Err(Error::new("run an operation on", self.volume_name(), Fault::NotFound)),
        }
    }

    /// Runs an operation to its end, turning the core meanwhile.
    pub(super) fn run_operation(&mut self, operation: Operation) -> Result<Answer> {
        self.run_telling(operation, &mut |_| {})
    }

    /// The same for somebody who is told how far it is, after each turn and at the end.
    pub(super) fn run_telling(&mut self, operation: Operation, tell: &mut dyn FnMut(Progress)) -> Result<Answer> {
        let id = self.begin(operation);
        loop {
            if let Some(progress) = self.operation_progress(&id) {
                tell(progress);
            }
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
        let Some(key) = key.filter(|key| Recipient::operation(*key) == operation) else {
            return;
        };
        if let (Event::Completed(_), Some(running)) = (&event, self.running.get_mut(key)) {
            running.under_way = running.under_way.saturating_sub(1);
        }
        self.step(index, event);
    }

    /// Moves an operation on, and whoever gets the token by that.
    pub(super) fn step(&mut self, index: u32, event: Event) {
        if let Some(key) = self.running.key_at(index).filter(|key| self.is_put_off(*key, &event)) {
            return self.freeze.put_off.push((key, event));
        }
        let mut next = Some((index, event));
        while let Some((index, event)) = next {
            next = self.step_one(index, event);
            if next.is_some() {
                continue;
            }
            next = self.grant_token().map(|index| (index, Event::Token));
        }
    }

    /// Gives the next event if there is one at once, and whose it is.
    fn step_one(&mut self, index: u32, event: Event) -> Option<(u32, Event)> {
        let key = self.running.key_at(index)?;
        let (running, volume) = (self.running.get_mut(key)?, self.volume.as_mut()?);
        if running.answer.is_some() {
            return None; // It has ended.
        }
        let mut has_token = self.token.is_with(index);
        let (mut event, mut waits_for) = (Some(event), None);
        let Operation { subject, shown, story } = &mut running.operation;
        let context = Context {
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
            self.holds.release_of(index, &self.objects, &mut self.requests);
            if let Some(cached) = &mut self.cached {
                cached.release_cuts(index);
            }
        }
        match step {
            Step::Requests | Step::Uncached => {}
            Step::Turn => self.next_turn.push(key),
            Step::Still => running.stilling = true,
            Step::Thread => self.with_threads.push(key),
            Step::Token if running.may_end_waiting() => return Some((index, Event::CalledOff)),
            Step::Unclaimed if running.called_off => return Some((index, Event::CalledOff)),
            Step::Token => self.wait_for_token(index),
            Step::Unclaimed => self.waiting_for_claim.push(index),
            Step::Drain(address) => running.draining = Some(address),
            Step::Quiet(hold) if self.holds.is_quiet(hold) => return Some((index, Event::Drained)),
            Step::Quiet(hold) => running.quieting = Some(hold),
            Step::Begin(operation) => {
                let child = self.running.insert(Running::new(*operation, Some(key)));
                return Some((child.index, Event::Begin));
            }
            Step::Done(answer) => return self.operation_ended(key, answer),
        }
        None
    }

    fn operation_ended(&mut self, key: SlotKey, answer: Result<Answer>) -> Option<(u32, Event)> {
        self.unclaim(key.index);
        let running = self.running.get_mut(key)?;
        running.stilling = false;
        if let Some(parent) = running.parent {
            self.running.remove(key);
            self.running.get(parent)?; // It had an accident.
            return Some((parent.index, Event::Answered(answer)));
        }
        self.fired.extend(running.waker.take());
        let is_freeze = running.kind() == Kind::Freezes;
        if running.left_alone {
            self.running.remove(key);
            self.drop_answer(answer);
        } else {
            running.answer = Some(answer);
        }
        if is_freeze {
            self.freeze_ended(key.index);
        }
        None
    }

    /// Moves on those whose threads have ended. Says whether there were any.
    pub(super) fn step_threads(&mut self) -> bool {
        let mut any = false;
        for key in std::mem::take(&mut self.with_threads) {
            match self.running.get(key).filter(|running| !running.has_ended()) {
                Some(running) if running.shown().thread_is_over() => {
                    any = true;
                    self.step(key.index, Event::Thread);
                }
                Some(_) => self.with_threads.push(key),
                None => {}
            }
        }
        any
    }

    /// Moves on those that have put something off until the next turn. Says whether there were any.
    pub(super) fn step_put_off(&mut self) -> bool {
        if self.next_turn.is_empty() {
            return false;
        }
        for key in std::mem::take(&mut self.next_turn) {
            if self.running.get(key).is_some() {
                self.step(key.index, Event::Turn);
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

    pub(super) fn grant_token(&mut self) -> Option<u32> {
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
#[cfg(test)]
mod turns;
