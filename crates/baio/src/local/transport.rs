//! A local link as both links are used ([`Transport`]): requests, questions, waiting and closing, each in one borrow of the core.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use baio_broker::control::{self, Call, Reply};
use baio_client::NotTaken;
use baio_engine::{Arena, Errno, Memory, Time, Wait};
use baio_storage::cache::{Borrower, LentPages};
use baio_storage::{Core, Error, Fault, Handle, Outcome, Result, SegmentRequest, Ticket};

use super::watched::{Early, Watched};
use super::{Local, Question, Shut, inside};
use crate::alarm::Alarm;
use crate::fired::Fired;
use crate::trace;
use crate::transport::{Begun, Facts, InLine, Lack, NotAsked, Notice, State, Transport};

impl Transport for Local {
    type Question = Question;

    fn submit(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        let Ok(mut core) = self.enter() else {
            return Err(request);
        };
        let started = core.start(request);
        self.leave_waking(core);
        if started.is_ok() {
            self.call_driver();
        }
        started
    }

    fn submit_awaited(&self, request: SegmentRequest, waker: &Waker) -> std::result::Result<Begun, NotTaken<Memory>> {
        let copy = waker.clone(); // As in `poll_request`.
        let Ok(mut core) = self.enter() else {
            return Err(NotTaken::Full(request));
        };
        let begun = match core.start(request) {
            Ok(ticket) => Ok((ticket, core.poll(ticket, Some(copy)))),
            Err(request) => Err(NotTaken::Full(request)),
        };
        // Nobody but a future's poller takes that outcome.
        let awaited = begun.as_ref().ok().map(|(ticket, _)| Notice::Abandon(*ticket));
        let mut unheld = Unheld(self, awaited);
        self.leave_waking(core);
        if begun.is_ok() {
            self.call_driver();
        }
        unheld.1 = None;
        begun
    }

    fn ask(&self, call: Box<Call>) -> std::result::Result<Question, NotAsked> {
        if call.needs_a_slot() && self.is_full() {
            return Err(NotAsked::Full(call));
        }
        let begun = self.with_waking(|core| Ok(control::begin(core, self.0.facts.identity, *call)));
        self.call_driver();
        match begun {
            Ok(control::Begun::Doing(doing)) => Ok(Question::Doing(doing)),
            Ok(control::Begun::Answered(answer)) => Ok(Question::Answered(Cell::new(Some(answer)))),
            Ok(control::Begun::Close) => Err(NotAsked::Refused(Fault::Stale)),
            Err(error) => Err(NotAsked::Refused(error.fault.clone())),
        }
    }

    fn tell_link(&self, notice: Notice<Question>) {
        match notice {
            Notice::LeftLine { line, has_it: true } => self.0.room.served(line.place),
            Notice::LeftLine { line, has_it: false } => self.0.room.leave(line.place),
            Notice::Logged { calls_back: false } => self.call_driver(),
            Notice::Named(..) | Notice::MemoryCame => {} // The core knows names, and nobody waits for memory here.
            Notice::Leave(Question::Answered(answer)) => {
                if let Some(handle) = answer.take().and_then(|answer| answer.ok()?.handle()) {
                    self.tell_link(Notice::Close(handle));
                }
            }
            notice if self.is_inside() => self.0.told.borrow_mut().push(notice),
            notice => self.tell_core(notice),
        }
    }

    fn poll_request(&self, ticket: Ticket, waker: &Waker) -> Poll<Option<Outcome>> {
        let copy = waker.clone(); // Not under the borrow: a clone may run anybody's code.
        let mut core = match self.enter() {
            Ok(core) => core,
            Err(Shut::Inside) => return look_later(waker),
            Err(Shut::Closed | Shut::Forked) => return Poll::Ready(None),
        };
        let polled = core.poll(ticket, Some(copy));
        self.leave_waking(core);
        polled
    }

    fn poll_answer(&self, question: &Question, waker: &Waker) -> Poll<Result<Reply>> {
        let doing = match question {
            Question::Answered(answer) => {
                let gone = || Err(Error::new("ask", self.0.facts.name.clone(), Fault::Stale));
                return Poll::Ready(answer.take().unwrap_or_else(gone));
            }
            Question::Doing(doing) => doing,
        };
        let copy = waker.clone(); // As in `poll_request`.
        let mut core = match self.enter() {
            Ok(core) => core,
            Err(Shut::Inside) => return look_later(waker),
            Err(shut) => return Poll::Ready(Err(shut.into())),
        };
        let polled = doing.poll(&mut core, Some(copy));
        self.leave_waking(core);
        polled
    }

    fn next_ended(&self) -> Option<Outcome> {
        match self.enter() {
            Ok(mut core) => {
                let outcome = core.next_outcome(); // Large: it is moved once.
                self.leave_core(core);
                if outcome.is_some() {
                    return outcome;
                }
            }
            // What has ended is still there, or is the parent's.
            Err(Shut::Inside | Shut::Forked) => return None,
            Err(Shut::Closed) => {}
        }
        if let Some(watched) = self.0.watched.get() {
            watched.has_been_emptied();
        }
        None
    }

    fn wait_for_ticket(&self, ticket: Ticket) -> Result<Option<Outcome>> {
        let _role = self.take_role();
        self.with_waking(|core| core.wait(ticket))
    }

    fn turn_link(&self, wait: Wait) -> Result<usize> {
        let wait = match wait {
            Wait::Until { .. } if self.call_the_next() => Wait::No,
            wait => wait,
        };
        // A loop of the program's own is about to sleep on the link's descriptor.
        let watched = self.0.watched.get().filter(|_| matches!(wait, Wait::No));
        let _early = Early(self, watched);
        let mut is_armed = true;
        let ended = self.with_waking(|core| {
            if watched.is_some() {
                is_armed = Watched::arm(core);
            }
            core.turn(wait)
        });
        self.wake_late();
        if let Some(watched) = watched {
            watched.tell(self, is_armed)?;
        }
        ended
    }

    fn run_on_link<F: Future>(&self, future: F) -> Result<F::Output> {
        let _role = self.take_role();
        let mut future = std::pin::pin!(future);
        let alarm = Arc::new(Alarm::new(self.0.doorbell.clone()));
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        loop {
            if alarm.take() {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return Ok(output);
                }
            }
            self.sleep_till_rung(&alarm)?;
        }
    }

    fn is_driven(&self) -> bool {
        self.0.reapers.get() > 0
    }

    fn while_others_drive<T>(&self, _: impl FnOnce() -> T) -> Option<T> {
        None
    }

    fn link_event(&self) -> Result<OwnedFd> {
        self.watched_fd()
    }

    fn link_arena(&self) -> (Option<Arc<Arena>>, Option<Fault>) {
        match self.with(|core| Ok(Arc::clone(core.engine().arena()))) {
            Ok(arena) => (Some(arena), None),
            Err(error) => (None, Some(error.into_fault())),
        }
    }

    /// Nobody waits for memory here: whoever finds none gets an error at once.
    fn stand_in_line(&self, line: &mut Option<InLine>, lack: Lack, waker: &Waker, until: Option<Time>) -> bool {
        if matches!(lack, Lack::Bytes(_)) {
            return false;
        }
        // First: both may run anybody's code, and if that panics it stands where it stood.
        let waker = waker.clone();
        let freed = self.with(|core| Ok(core.places_freed().0));
        let mut place = line.take().map(|line| line.place);
        self.0.room.wait(&mut place, waker, until, freed.unwrap_or_default());
        *line = InLine::at(place, lack);
        if until.is_some() {
            self.call_driver(); // It may have to wake up sooner.
        }
        true
    }

    fn lend_here(&self, borrower: &Borrower, handle: Handle, pages: Range<u64>) -> Option<LentPages> {
        self.with(|core| Ok(core.lend(borrower, handle, pages))).ok().flatten()
    }

    fn link_facts(&self) -> &Facts {
        &self.0.facts
    }

    fn link_state(&self) -> State {
        let core = self.0.core.try_borrow();
        let refusal = match core.as_deref() {
            _ if self.0.life.is_over() => Fault::from(baio_engine::Error::Forked),
            Ok(Some(core)) => {
                return State {
                    refusal: None,
                    in_flight: core.in_flight(),
                };
            }
            Ok(None) => Fault::Stale,
            Err(_) => Errno::EDEADLK.into(),
        };
        State {
            refusal: Some(refusal),
            in_flight: 0,
        }
    }

    fn link_clock(&self) -> Time {
        self.with(|core| Ok(core.engine().clock())).unwrap_or_default()
    }

    fn end_link(self) -> Result<()> {
        self.check_life()?;
        if self.is_inside() {
            return Err(inside());
        }
        // Refused when another clone has closed it: then nothing is under way.
        let ours = self.0.ours.close();
        let _ = self.with(|core| {
            ours.into_iter().for_each(|id| core.engine_mut().cancel(id));
            core.wind_down();
            Ok(())
        });
        while self.link_state().in_flight > 0 {
            self.turn_link(Wait::one())?;
        }
        let core = self.0.core.borrow_mut().take();
        // Before anybody is woken: a waker that panics would take what the cache has still to write with it.
        let closed = core.map(Core::close);
        if let Some(closed) = &closed {
            trace::link_closed(|| self.0.facts.name.clone(), closed.as_ref().map(drop));
        }
        let mut waiting = self.take_who_wait();
        waiting.append(&mut self.0.drivers.take());
        Fired::all(waiting).fire();
        closed.unwrap_or(Ok(()))
    }
}

/// What nobody has yet who would give it up: said if somebody's waker panics before.
struct Unheld<'a>(&'a Local, Option<Notice<Question>>);

impl Drop for Unheld<'_> {
    fn drop(&mut self) {
        if let Some(notice) = self.1.take() {
            self.0.tell_link(notice);
        }
    }
}

/// Somebody's code runs on the core: it is looked at when that has ended.
fn look_later<T>(waker: &Waker) -> Poll<T> {
    waker.wake_by_ref();
    Poll::Pending
}
