//! One turn: hand over what is queued, sleep, read the raw results, decide what becomes of each request.

use std::time::Duration;

use super::Engine;
use crate::error::{Errno, Error};
use crate::file::File;
use crate::judge::{Next, is_orphaned, judge, poison_if_lost};
use crate::policy::{Caching, Time};
use crate::request::{Op, RequestId, Wait};
use crate::slot::{By, State};
use crate::sys;
use crate::trial::{self, Tried};
use baio_process::signals;

/// A request whose iterations end at once each, a transfer out of the page cache, must not keep a turn that has what it was
/// asked for from returning: after so many rounds what goes on is left to the next turn.
const ROUNDS_MAX: u32 = 32;

/// For so long a turn sleeps for many iterations at once, then for each: one that was cut short by the end of its file, or by
/// trouble, goes on at most so much later than it might.
const GATHER: Duration = Duration::from_millis(1);

/// One in so many turns in a row with nothing to do looks at the backend.
const IDLE_TURNS: u64 = 16;

/// One in so many turns with a trial is timed.
const TRIALS_TIMED: u64 = 16;

impl Engine {
    /// Submits what is queued, sleeps as long as `wait` allows, and makes completions ready to be taken. Returns how many
    /// are.
    ///
    /// With nothing in flight it does not sleep, unless `wait` asks for a count of 0: then only the doorbell or the
    /// deadline ends the sleep.
    ///
    /// # Errors
    /// The engine's own backend is broken. A helper that is broken is told by its requests.
    pub fn turn(&mut self, wait: Wait) -> Result<usize, Error> {
        if let Some(error) = self.barred() {
            return Err(error);
        }
        if wait == Wait::No && self.is_idle() {
            self.take_signals();
            self.now_is_old = true;
            self.refill = 0;
            return Ok(self.ready.len());
        }
        let enough_at = match wait {
            Wait::Until { min_wait, .. } if !min_wait.is_zero() => Some(self.backend.now().after(min_wait)),
            _ => None,
        };
        let mut rang = false;
        let mut rounds = 0;
        let mut gather = Gather::Allowed;
        loop {
            rounds += 1;
            let hits_before = self.stats.trial_hits;
            let begun = self.start_queued();
            if self.stats.trial_hits > hits_before && self.needs_no_backend(wait) {
                self.take_signals();
                self.now_is_old = true;
                // No device has run dry.
                self.refill = 0;
                return Ok(self.ready.len());
            }
            // A ring that came beside an iteration that goes on is not forgotten when that has been handed over.
            let sleep = if rang {
                Wait::No
            } else {
                self.sleep_for(wait, enough_at, &mut gather, begun)
            };
            let Engine {
                backend, slots, done, ..
            } = self;
            let turned = match self.files_are_limited {
                false => backend.turn(slots, sleep, done),
                true => signals::outlasting_limits(|| backend.turn(slots, sleep, done)),
            };
            self.now = self.backend.now();
            self.now_is_old = false;
            rang |= std::mem::take(&mut self.done.rang);
            self.settle();
            if self.backend.has_helpers() {
                self.end_lost();
            }
            self.take_signals();
            self.expire();
            turned?;
            let queued = self.can_start();
            let enough = rang || self.is_satisfied(wait, enough_at);
            if queued && (rounds < ROUNDS_MAX || !enough) {
                continue; // Iterations that go on are part of what this turn submits.
            }
            if enough {
                if queued && self.outside {
                    // Nobody has them who could end the sleep that follows.
                    self.backend.doorbell().ring();
                }
                self.refill = self.ready.len();
                return Ok(self.ready.len());
            }
        }
    }

    /// Is there nothing that a backend could look for? Whoever serves requests from a cache of its own turns for nothing all the
    /// time, and would pay more for the clock than for a copy of a kilobyte. Every so often the backend has its turn all the same.
    fn is_idle(&mut self) -> bool {
        let idle = self.queue.is_empty() && self.slots.in_use() == 0 && !self.outside;
        self.idle_turns += u64::from(idle);
        idle && self.idle_turns % IDLE_TURNS != 0
    }

    /// Has the page cache answered everything, and is nothing else to be looked at? Then not even the clock is read: it would
    /// be a tenth of such a read. Every so often the backend has its turn all the same.
    fn needs_no_backend(&self, wait: Wait) -> bool {
        let enough = match wait {
            Wait::No => true,
            Wait::Until { count, .. } => count > 0 && self.ready.len() >= count as usize,
        };
        let idle = self.queue.is_empty() && self.slots.running() == 0 && self.deadlines.is_empty() && !self.outside;
        enough && idle && self.trial_turns % TRIALS_TIMED != 0
    }

    /// Returns when the batch was begun, if there was one.
    pub(super) fn start_queued(&mut self) -> Option<Time> {
        if self.gains_by_trial && self.may_try {
            self.try_queued();
        }
        if self.backend.has_lost() {
            self.refuse_for_lost();
        }
        let queue = self.queue.swept(&self.slots);
        if queue.is_empty() {
            return None;
        }
        let now = self.backend.now();
        self.slots.handed_over = now;
        self.stats.batches += 1;
        self.is_starting = true;
        let (backend, slots) = (&mut self.backend, &mut self.slots);
        let taken = match self.files_are_limited {
            false => backend.start(slots, queue),
            true => signals::outlasting_limits(|| backend.start(slots, queue)),
        };
        self.is_starting = false;
        self.stats.iterations += taken as u64;
        if self.backend.has_helpers() {
            self.queue.retain(|id| !self.slots.is_running(id));
            self.queue.note_offer();
        } else {
            self.queue.drop_first(taken);
        }
        Some(now)
    }

    /// How many are queued that a backend may take now.
    pub(super) fn startable(&self) -> usize {
        if self.backend.awaits_room() {
            self.queue.new_ones()
        } else {
            self.queue.len()
        }
    }

    /// Is there anything queued that a backend may take now? Not what a helper had no room for, as long as nothing is heard of it.
    pub(super) fn can_start(&self) -> bool {
        self.startable() > 0
    }

    /// Hands over what was started without waiting for a turn.
    pub(super) fn flush(&mut self, begun: Option<Time>) {
        const SAMPLED: u64 = 8;
        self.backend.flush();
        if let Some(begun) = begun {
            if self.stats.batches % SAMPLED == 0 {
                let took = self.backend.now().since(begun);
                self.measures.submit.record(took);
            }
        }
    }

    /// Runs what the page cache can answer at once, in order; the rest stays queued.
    pub(super) fn try_queued(&mut self) {
        if self.queue.swept(&self.slots).is_empty() {
            return;
        }
        let hits_before = self.stats.trial_hits;
        self.trial_turns += 1;
        let is_timed = self.trial_turns % TRIALS_TIMED == 0;
        let begun = is_timed.then(|| self.backend.now());
        let mut queue = std::mem::take(&mut self.queue);
        queue.retain(|id| !self.ends_at_once(id));
        self.queue = queue;
        self.may_try = !self.queue.is_empty();
        let hits = self.stats.trial_hits - hits_before;
        if let Some(begun) = begun {
            if hits > 0 {
                let took = self.backend.now().since(begun);
                let read = Op::Read { offset: None };
                self.measures
                    .entry(read, Caching::Kernel)
                    .latency
                    .record_many(took, hits);
            }
        }
    }

    pub(super) fn ends_at_once(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.slots.get_mut(id) else {
            return false;
        };
        let Some(Tried { raw, in_memory }) = trial::attempt(slot) else {
            return false;
        };
        slot.iterations += 1;
        self.stats.iterations += 1;
        self.stats.trials += 1;
        if raw < 0 {
            return false;
        }
        match judge(slot, raw) {
            // Only reads are tried, so none goes on as a sync.
            Next::Again | Next::AgainAfter(_) | Next::Sync => false,
            Next::End(result) => {
                self.stats.trial_hits += 1;
                self.stats.memory_reads += u64::from(in_memory);
                self.finish(id, result);
                true
            }
        }
    }

    /// How many completions a turn waits for; from `enough_at` on, one will do.
    pub(super) fn needed(&self, count: u32, enough_at: Option<Time>) -> usize {
        let patient = enough_at.is_none_or(|at| self.now < at);
        if patient { count as usize } else { count.min(1) as usize }
    }

    /// What the backend is told. It counts iterations, the caller requests: so it may sleep for several only when each of
    /// them is likely to be a request's last, and no request waits for one of them.
    fn sleep_for(&self, wait: Wait, enough_at: Option<Time>, gather: &mut Gather, begun: Option<Time>) -> Wait {
        let Wait::Until {
            count,
            min_wait,
            deadline,
        } = wait
        else {
            return Wait::No;
        };
        let missing = self.needed(count, enough_at).saturating_sub(self.ready.len());
        if self.can_start() || (count > 0 && (missing == 0 || self.slots.in_use() == 0)) {
            return Wait::No;
        }
        let deadline = earliest(
            earliest(deadline, self.next_deadline()),
            enough_at.filter(|&at| self.now < at),
        );
        let many = missing.min(self.slots.running());
        let each_is_an_end = self.held.is_empty() && self.awaiting_sync.is_empty() && self.slots.going_on() == 0;
        if many > 1 && each_is_an_end && self.backend.gains_by_gathering() {
            if let Some(until) = gather.until(|| begun.unwrap_or_else(|| self.backend.now()), self.now) {
                let deadline = earliest(deadline, Some(until));
                let count = many as u32;
                return Wait::Until {
                    count,
                    min_wait,
                    deadline,
                };
            }
        }
        Wait::Until {
            count: count.min(1),
            min_wait,
            deadline,
        }
    }

    pub(super) fn is_satisfied(&self, wait: Wait, enough_at: Option<Time>) -> bool {
        match wait {
            Wait::No => true,
            Wait::Until { count, deadline, .. } => {
                let enough = self.ready.len() >= self.needed(count, enough_at) || self.slots.in_use() == 0;
                (count > 0 && enough) || deadline.is_some_and(|at| self.now >= at)
            }
        }
    }

    /// Reads the raw results of a turn.
    pub(super) fn settle(&mut self) {
        let mut raw = std::mem::take(&mut self.done.raw);
        for &(id, result) in raw.iter().filter(|(_, result)| *result < 0) {
            // First of all: no sync of the same turn may prove what this one disproves.
            if let Some(slot) = self.slots.get(id).filter(|slot| slot.state.is_running()) {
                poison_if_lost(slot, Errno::from_raw(-result));
            }
        }
        for (id, result) in raw.drain(..) {
            self.settle_one(id, result);
        }
        self.done.raw = raw;
    }

    pub(super) fn settle_one(&mut self, id: RequestId, mut raw: i32) {
        let Some(slot) = self.slots.get_mut(id).filter(|slot| slot.state.is_running()) else {
            // A backend owes one report for each iteration that it has taken, and for no other.
            return;
        };
        slot.iterations = slot.iterations.saturating_add(u16::from(slot.rests_until.is_none()));
        let is_orphan = raw < 0 && self.loses_orphans && slot.route == By::PRIMARY && is_orphaned(slot, raw);
        if matches!(slot.op, Op::Accept) && raw >= 0 && slot.is_at_work() {
            raw = if self.adopts && slot.route == By::PRIMARY {
                // Owned first of all: whatever becomes of the request, the descriptor is closed or handed over.
                let socket = sys::adopt(raw).ok();
                slot.accepted = socket.and_then(|socket| File::from_fd(socket, "a connection").ok());
                0
            } else {
                -Errno::EOPNOTSUPP.raw()
            };
        }
        if slot.state == State::Abandoned {
            self.release(id);
            return;
        }
        // Nothing of it has happened, so its patience is not asked.
        let next = if is_orphan { Next::Again } else { judge(slot, raw) };
        if let Next::End(result) = next {
            self.finish(id, result);
        } else if slot.cancelled {
            // The backend could not end the iteration that ran, or there was none just then.
            self.finish(id, Err(Error::Cancelled));
        } else if let Next::Sync = next {
            self.go_on_as_sync(id);
        } else {
            if let Next::AgainAfter(pause) = next {
                slot.rests_until = Some(self.now.after(pause));
            }
            self.slots.transition(id, State::Queued);
            self.queue.push(&self.slots, id);
        }
    }

    /// Completes what is overdue. The kernel keeps the memory of a running request, so that comes back later.
    pub(super) fn expire(&mut self) {
        while let Some(id) = self.deadlines.fire(self.now) {
            match self.slots.get(id).map_or(State::Free, |slot| slot.state) {
                State::Running => {
                    self.complete_early(id);
                    self.leave_to_kernel(id);
                    self.call_back(id);
                }
                State::Queued | State::Held => {
                    let begun = self.slots.get(id).is_some_and(|slot| slot.iterations > 0);
                    if begun {
                        // Between two iterations. The caller cannot know that, so it is told as if one were running.
                        self.complete_early(id);
                        self.unqueue(id);
                        self.release(id);
                    } else {
                        self.drop_before_start(id, Err(Error::Cancelled));
                    }
                }
                State::Free | State::Abandoned => {}
            }
        }
    }
}

/// May a turn still sleep for many iterations at once?
enum Gather {
    Allowed,
    /// It has begun to.
    Until(Time),
}

impl Gather {
    fn until(&mut self, begin: impl FnOnce() -> Time, now: Time) -> Option<Time> {
        match *self {
            Gather::Allowed => {
                let until = begin().after(GATHER);
                *self = Gather::Until(until);
                Some(until)
            }
            Gather::Until(until) => (now < until).then_some(until),
        }
    }
}

fn earliest(one: Option<Time>, two: Option<Time>) -> Option<Time> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::request::Request;
    use crate::sim::Sim;
    use crate::{Choice, EngineOptions, Notice};

    /// Such a turn does not read the clock; whoever asks for the time gets it all the same.
    #[test]
    fn time_goes_on_through_turns_with_nothing_to_do() {
        let config = EngineOptions {
            backend: Choice::Sync,
            ..EngineOptions::default()
        };
        let mut engine = Engine::new(&config).unwrap();
        for turn in 0..2 * IDLE_TURNS {
            let before = sys::monotonic();
            engine.turn(Wait::No).unwrap();
            assert!(engine.now() >= before, "turn {turn} tells the time of an earlier one");
        }
    }

    /// What a deadline costs does not grow with the slots.
    #[test]
    fn a_deadline_makes_no_turn_look_at_every_slot() {
        let config = EngineOptions {
            slots: 4096,
            ..EngineOptions::default()
        };
        let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config).unwrap();
        let far = engine.now().after(Duration::from_secs(1000));
        let timer = |deadline: Time| {
            let request = Request::bare(Op::Timer { at: far }, None, Policy::kernel());
            let policy = Policy {
                deadline: Some(deadline),
                ..request.policy
            };
            Request { policy, ..request }
        };
        for after in 1..=100 {
            let deadline = engine.now().after(Duration::from_millis(after));
            engine.submit(timer(deadline)).unwrap();
        }
        let before = engine.slots.scanned.get();
        for after in 1..=100 {
            assert_eq!(engine.turn(Wait::one()), Ok(1), "the soonest is overdue");
            let done = engine.next_completion().unwrap();
            assert_eq!(
                (done.notice, done.result),
                (Notice::Completed, Err(Error::Indeterminate))
            );
            assert_eq!(engine.now(), Time(after * 1_000_000), "in its order");
            assert_eq!(engine.turn(Wait::one()), Ok(1));
            assert_eq!(engine.next_completion().unwrap().notice, Notice::Released);
        }
        assert_eq!(engine.slots.scanned.get() - before, 0);
    }
}
