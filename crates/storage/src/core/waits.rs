//! What waits in the core: when it begins again, how long a turn may sleep for it, and how it is called off.
//!
//! A request has one deadline. The engine looks at it while the request is there, the core while it is anywhere else: in the page
//! cache, waiting for that to make way, behind a hold. One that is overdue before it has begun ends as `Cancelled`; in the
//! cache, where its memory is only ever copied from or to, it comes back at once as `Indeterminate`: a write may have been done in part.
//! Where the device has its memory, of a cold read or a large durable write, it is answered without it, as a direct request.

use std::task::Poll;

use baio_engine::{Time, Wait};

use super::Core;
use super::lane::Lane;
use super::ways::Way;
use crate::crossing::Stillness;
use crate::error::Result;
use crate::request::{Outcome, Owner, SegmentOp, SegmentRequest, State, Ticket};

impl Core {
    /// What can begin does. Has anybody been told of an end since the last sleep, or will be? Then whoever turns the core may not want to
    /// sleep any more.
    pub(super) fn before_sleep(&mut self) -> bool {
        let mut is_told = self.pass_on() | self.table.step_put_off(&mut self.lane);
        is_told |= self.table.step_threads(&mut self.lane) | self.step_freeze();
        is_told |= self.lane.begin_again();
        is_told |= self.lane.cached.is_some() && self.lane.turn_cache();
        is_told |= self.lane.turn_logs();
        // Nor over wakers that were collected since the last turn; once, if nobody takes them.
        is_told |= self.pass_on();
        // Nor over a stillness that this very turn has brought about.
        is_told |= self.lane.has_become_awaited() || self.table.is_still_at_last();
        let fired = self.lane.fired.len() + self.table.fired.len();
        is_told |= fired > self.fired_known;
        self.fired_known = fired;
        is_told | std::mem::take(&mut self.lane.is_told)
    }

    /// A sleep ends when something here is overdue, may begin, or the cleaner has something to write. And what the cleaner writes is awaited by
    /// whoever had nothing under way and would wait for the doorbell alone.
    pub(super) fn sleep_for(&mut self, wait: Wait) -> Wait {
        let Wait::Until {
            mut count,
            min_wait,
            deadline,
        } = wait
        else {
            return wait;
        };
        let due = self.lane.next_due();
        if self.is_engine_idle() {
            // An idle engine that is asked for a count returns at once. Whoever waits, waits here.
            if self.in_flight() > 0 {
                count = 0;
            }
        } else if self.lane.cached.is_some() || self.lane.logs.any() {
            count = count.max(u32::from(self.lane.engine.in_flight() > 0));
        }
        if self.lane.requests.waiting() + self.lane.requests.following() > 0 {
            count = count.min(1); // The next end may be what somebody here waits for.
        }
        Wait::Until {
            count,
            min_wait,
            deadline: deadline.into_iter().chain(due).min(),
        }
    }

    /// Has the engine nothing at all, so that only the doorbell or a time can end a sleep?
    #[must_use]
    pub fn is_engine_idle(&self) -> bool {
        self.lane.engine.in_flight() + self.lane.engine.completed() == 0
    }

    /// Until when a loop of your own may sleep on [`Engine::ready_fd`](baio_engine::Engine::ready_fd), in engine time. Then a request is
    /// overdue, here or in the engine, or the cleaner has something to write; the descriptor does not tell. Turn without waiting, and ask
    /// again before the next sleep: it may take a second turn until all that was due is done. Whoever appends to a log after this was
    /// asked rings the doorbell.
    pub fn next_wake(&mut self) -> Option<Time> {
        let is_still = self.lane.has_become_awaited() || self.table.is_still_at_last();
        if is_still || !self.lane.logs.fall_asleep() {
            return Some(self.lane.engine.now());
        }
        self.lane
            .next_due()
            .into_iter()
            .chain(self.lane.engine.next_deadline())
            .min()
    }

    /// Turns the core until the request has ended. `None` for a ticket that is not valid any more.
    ///
    /// # Errors
    /// The backend itself is broken.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Option<Outcome>> {
        loop {
            if let Poll::Ready(outcome) = self.lane.requests.poll(ticket, None) {
                self.lane.note_what_waits();
                return Ok(outcome);
            }
            self.turn(Wait::one())?;
        }
    }

    /// Asks that a request end early.
    pub fn cancel(&mut self, ticket: Ticket) {
        // First what the cache has done for it.
        self.lane.take_done();
        self.lane.call_off(ticket);
        self.pass_on();
        self.lane.is_told |= self.lane.requests.state(ticket) == State::Done;
    }

    /// Nobody will take the outcome. What has not begun does not, a cached write may have been done in part. The request's memory
    /// returns to the arena when the kernel has let go of it.
    pub fn abandon(&mut self, ticket: Ticket) {
        self.lane.take_done();
        self.lane.requests.forget_waker(ticket);
        match self.lane.requests.state(ticket) {
            State::AtDevice(id) => {
                self.lane.requests.transition(ticket, State::Left(id));
                self.lane.engine.abandon(id);
            }
            // It would wait on there, with its memory and its slot, for what may never come.
            State::InCache(_) if crate::seeded_bug("who-was-abandoned-is-on-the-device") => {
                self.lane.requests.transition(ticket, State::Left(Default::default()));
            }
            _ => self.lane.call_off(ticket),
        }
        if let Some(pin) = self.lane.requests.take(ticket).and_then(|outcome| outcome.pin) {
            self.lane.unpin(pin);
        }
        self.pass_on();
    }
}

impl Lane {
    /// Where a checked request goes while the volume is being frozen.
    pub(super) fn way_while_frozen(&mut self, owner: Owner, request: &SegmentRequest, way: Way) -> Way {
        let stillness = self.stillness;
        let is_free = stillness == Stillness::None || matches!(way, Way::Nothing | Way::Hold);
        if is_free || self.objects.address(request.handle).is_none() {
            return way;
        }
        let waits = match (owner, request.op) {
            (Owner::Cache(_) | Owner::Log(_), op) => op.changes_bytes() && stillness == Stillness::Frozen,
            // What was changed through pins would have to be written.
            (Owner::Caller, SegmentOp::Sync | SegmentOp::Fence) => self.object_known(request.handle).is_some(),
            (Owner::Caller, op) => op.changes_bytes(),
        };
        if waits { Way::Hold } else { way }
    }

    /// When something here has to be looked at that the engine does not know of: a request is overdue, or the cleaner has something to
    /// write.
    fn next_due(&mut self) -> Option<Time> {
        let overdue = self.requests.next_deadline().map(|(at, _)| at);
        let cached = self.cached.as_ref().filter(|_| !self.is_frozen());
        let tick = cached.and_then(|cached| cached.cache.next_tick());
        overdue.into_iter().chain(tick).chain(self.logs.next_tick()).min()
    }

    /// What waited for something that is over begins as if it had just come. Says whether any did.
    pub(super) fn begin_again(&mut self) -> bool {
        let mut has_begun = false;
        while let Some(ticket) = self.requests.next_woken() {
            let memory = self.requests.take_in_hand(ticket);
            self.start_again(ticket, memory);
            if self.requests.state(ticket) == State::Woken {
                break; // The engine has no slot.
            }
            has_begun = true;
        }
        has_begun
    }

    /// Ends what is overdue here. Says how many.
    pub(super) fn end_overdue(&mut self) -> usize {
        let mut count = 0;
        while let Some((at, ticket)) = self.requests.next_deadline() {
            if at > self.engine.now() {
                break;
            }
            if let State::InCache(id) = self.requests.state(ticket) {
                self.requests.transition(ticket, State::Overdue(id));
            }
            self.call_off(ticket);
            count += 1;
        }
        count
    }

    /// What others may take has been gathered by turns that their driver did not make: he does not sleep over it.
    pub(super) fn note_what_waits(&mut self) {
        self.is_told |= !self.foreign.is_empty() || self.requests.has_finished();
    }

    /// Ends a request early, wherever it is. The device may end what it has begun.
    fn call_off(&mut self, ticket: Ticket) {
        match self.requests.state(ticket) {
            State::Held | State::BehindWrites | State::Woken => {
                self.holds.forget(ticket);
                let memory = self.requests.take_in_hand(ticket);
                self.end_waiting(ticket, memory, |core, asked| {
                    Err(core.explain(asked, baio_engine::Error::Cancelled))
                });
            }
            State::InCache(id) | State::Overdue(id) | State::MakingWay(_, id) => self.cancel_in_cache(id),
            State::AtDevice(id) => self.engine.cancel(id),
            State::Free | State::InHand | State::Answered(_) | State::Done | State::Left(_) => {}
        }
    }
}
