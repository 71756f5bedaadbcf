//! The client's side of the rings: one lock, taken once per batch where batches are made, and the role of reaping.
//!
//! **Sending.** [`Client::start`] and [`Client::poll`] only queue. [`Client::flush`] sends the whole queue with one store,
//! and rings for the service at most once, and only if it sleeps. It runs when a batch has gathered, when somebody waits,
//! and before the one who reaps goes to sleep.
//!
//! **Reaping** is done by whoever holds the lock and looks ([`State::drain`]). The role is to sleep on the client's bell
//! (`State::sleeper`), for one thread at a time:
//!
//! | who wants to sleep | and nobody sleeps on the bell | and somebody does |
//! |---|---|---|
//! | a thread in `wait`, `turn`, `block_on` | sleeps on the bell | parks, as a follower |
//! | the helper, with futures or a descriptor to reap for | sleeps on the bell | parks |
//! | the helper, with none | parks | parks |
//!
//! Whoever leaves the bell for anything but another look hands the role over first ([`Client::hand_over`]): to a follower,
//! else to the helper if futures need it. So whenever anybody waits, somebody sleeps on the bell or is about to look.
//! Wakers are woken, and dropped, with the lock free and without the role; so a waker may do anything, even wait for a request.
//! It must not wait for somebody who is woken as it is itself: that one may be next in line.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use baio_process::fork::Life;
use baio_ring::exchange::Parcel;
use baio_words::entry::{Op, Place, Submission, Tag};
use baio_words::{Errno, Handle, IoError, Outcome, Payload, RequestError, RequestFault, SegmentRequest, Ticket, Time};

use crate::carrier::{Between, Carrier};
use crate::child::Child;
use crate::fired::Fired;
use crate::inside;
use crate::not_taken::NotTaken;
use crate::parker::Parker;
use crate::reap::{ended_early, name_of};
use crate::state::{Guard, State};
use crate::sync::{self, AtomicBool, AtomicUsize, Mutex, PoisonError};
use crate::table::{Ended, HELPER, Kind, Left, Places, earlier};
use crate::unsynced::Counted;

/// Requests that are queued at most before they are sent without anybody waiting.
pub(crate) const BATCH: usize = 64;

/// The client's half of a connection, for all threads of a process.
pub struct Client<K: Carrier> {
    /// The process that it is a client in. A forked child has a copy without any of its threads.
    life: Life,
    state: Mutex<State<K>>,
    /// What a forked child has in its place.
    childs: Child<K>,
    pub(crate) shared: Arc<Between<K>>,
    pub(crate) carrier: K,
    core: u32,
    pub(crate) name: String,
    /// Threads that wake others at this moment, with the lock free: until they have, somebody waits for what has come.
    pub(crate) telling: AtomicUsize,
    /// Was the helper started? Looked at without the lock by each poll.
    pub(crate) has_helper: AtomicBool,
}

impl<K: Carrier> Client<K> {
    /// A client of the service at the other end of `shared`, which gives handles with the number `core`. `name` is what it
    /// serves, for messages; `kept` is the carrier's.
    #[must_use]
    pub fn new(carrier: K, kept: K::Kept, shared: Arc<Between<K>>, core: u32, name: String) -> Client<K> {
        Client {
            life: Life::now(),
            state: Mutex::new(State::new(&shared, kept)),
            childs: Child::none(),
            shared,
            carrier,
            core,
            name,
            telling: AtomicUsize::new(0),
            has_helper: AtomicBool::new(false),
        }
    }

    /// How it reaches its service.
    pub fn carrier(&self) -> &K {
        &self.carrier
    }

    /// What is served, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// No foreign code runs under the lock, so nobody can have panicked in the middle of a change.
    pub(crate) fn lock(&self) -> Guard<'_, K> {
        let state = match self.is_forked() {
            false => &self.state,
            true => self.childs.state(&self.shared),
        };
        sync::note_lock();
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what its carrier keeps behind the lock, and at why nothing is taken any more, if nothing is.
    pub fn kept<T>(&self, look: impl FnOnce(&mut K::Kept, Option<RequestFault>) -> T) -> T {
        let state = &mut *self.lock();
        look(&mut state.kept, state.table.closed)
    }

    /// Is this a forked child of the process whose client it is? It takes nothing then ([`Client::refusal`]), and touches nothing that is
    /// its parent's.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.life.is_over()
    }

    // Sending.

    /// Queues a request. It is sent when a batch has gathered, when somebody waits, and before whoever reaps goes to sleep.
    ///
    /// # Errors
    /// The request itself, when every place is taken or nothing is taken any more ([`Client::refusal`]).
    pub fn start(&self, request: SegmentRequest<K::Memory>) -> Result<Ticket, SegmentRequest<K::Memory>> {
        self.begin(request, None, false, Places::Usual)
            .map_err(NotTaken::into_request)
    }

    /// The same, unless its memory would have to be copied first: nothing is begun then. `waker` as of [`Client::start_awaited`], if there is one.
    ///
    /// # Errors
    /// Why not, with the request.
    pub fn start_shown(
        self: &Arc<Self>,
        request: SegmentRequest<K::Memory>,
        waker: Option<&Waker>,
    ) -> Result<Ticket, NotTaken<K::Memory>> {
        let awaits = waker.map(|waker| (waker.clone(), inside::reaper_of(self)));
        self.begin(request, awaits, true, Places::Usual)
    }

    /// Would memory like this have to be copied for a request?
    pub fn must_copy(&self, memory: &K::Memory) -> bool {
        self.is_hidden(&self.lock().kept, memory)
    }

    /// Can the service not be shown this memory?
    fn is_hidden(&self, kept: &K::Kept, memory: &K::Memory) -> bool {
        self.carrier.is_far() && matches!(self.carrier.place(kept, memory), Place::Exchange { .. })
    }

    /// The same for a future: `waker` is woken when it has ended, and nobody else takes its outcome. With [`Client::start`]
    /// and [`Client::poll`] one after the other, another thread could reap it in between, and a third one take it out of the
    /// queue.
    ///
    /// # Errors
    /// As [`Client::start`].
    pub fn start_awaited(
        self: &Arc<Self>,
        request: SegmentRequest<K::Memory>,
        waker: &Waker,
    ) -> Result<Ticket, SegmentRequest<K::Memory>> {
        self.start_awaited_in(Places::Usual, request, waker)
    }

    /// The same, with a place of these.
    ///
    /// # Errors
    /// As [`Client::start`].
    pub fn start_awaited_in(
        self: &Arc<Self>,
        places: Places,
        request: SegmentRequest<K::Memory>,
        waker: &Waker,
    ) -> Result<Ticket, SegmentRequest<K::Memory>> {
        let awaits = Some((waker.clone(), inside::reaper_of(self)));
        self.begin(request, awaits, false, places)
            .map_err(NotTaken::into_request)
    }

    fn begin(
        &self,
        mut request: SegmentRequest<K::Memory>,
        awaits: Option<(Waker, u64)>,
        shown: bool,
        places: Places,
    ) -> Result<Ticket, NotTaken<K::Memory>> {
        let mut state = self.lock();
        if state.table.closed.is_some() {
            return Err(NotTaken::Full(request));
        }
        if shown && self.is_hidden(&state.kept, &request.memory) {
            return Err(NotTaken::Hidden(request));
        }
        let Some(tag) = self.reserve(&mut state, places) else {
            self.finish_up(state, false);
            return Err(NotTaken::Full(request));
        };
        let (op, handle) = (request.op, request.handle);
        let len = u32::try_from(request.memory.payload_bytes()).unwrap_or(u32::MAX);
        let kind = Kind::Request { op, handle, len };
        let words = self.carrier.words(&state.kept, handle);
        // Of an earlier service's memory another goes in its place.
        let other = self
            .carrier
            .in_place_of(&state.kept, &request.memory, op)
            .ok()
            .flatten();
        let behind = other.map(|other| std::mem::replace(&mut request.memory, other));
        let submission = Submission {
            handle: words.unwrap_or_default(),
            place: self.carrier.place(&state.kept, &request.memory),
            mode: request.mode,
            durability: request.durability,
            deadline: request.deadline,
            ..Submission::of(op, tag)
        };
        let mut memory = std::mem::take(&mut request.memory);
        let status = request.status.take();
        if let Some(fault) = self.ends_here(&submission, handle, words.err()) {
            if let Some(own) = behind {
                memory = own;
            }
            let ticket = state.table.occupy(tag, kind, request.tag, status);
            state.table.await_new(ticket, awaits);
            let error = RequestError {
                offset: op.offset(),
                ..RequestError::new(op.name(), name_of(&state.names, handle), fault)
            };
            let outcome = ended_early(ticket, request.tag, error, memory);
            if state.table.end(ticket, Ended::Request(outcome)) {
                state.tell_any();
            }
            self.finish_up(state, false);
            return Ok(ticket);
        }
        if submission.place != Place::Nowhere {
            // A place that was reserved is the client's.
            let _ = self.shared.exchange.put(tag.index, Parcel::Memory(memory));
        }
        let ticket = state.table.queue(tag, kind, submission.encode(), request.tag, status);
        let unsynced = || self.carrier.unsynced(&state.kept, handle);
        let counted = Counted::of(op, request.mode, request.durability, unsynced);
        if counted.is_some() || behind.is_some() {
            state.table.attach(ticket, counted, behind);
        }
        let helped = state.table.await_new(ticket, awaits);
        let ring = state.table.queued() >= BATCH && self.flush(&mut state);
        let nudge = helped && self.expect_helper(&mut state);
        self.finish_up(state, ring);
        if nudge {
            self.shared.bell.ring();
        }
        Ok(ticket)
    }

    /// Another service's handle, one that is of no use any more, or memory that cannot be shown to another process: it ends here.
    fn ends_here(&self, submission: &Submission, handle: Handle, lost: Option<RequestFault>) -> Option<RequestFault> {
        let is_hidden = self.carrier.is_far() && matches!(submission.place, Place::Exchange { .. });
        match self.knows(handle) {
            false => Some(RequestFault::Stale),
            true => lost.or(is_hidden.then_some(RequestFault::Io(IoError::System(Errno::ENOBUFS)))),
        }
    }

    /// A place, if need be one that the ring gives back.
    fn reserve(&self, state: &mut State<K>, places: Places) -> Option<Tag> {
        state.table.reserve(places).or_else(|| {
            state.drain(&self.shared, &self.carrier, &self.name);
            state.table.reserve(places)
        })
    }

    /// Queues a command.
    ///
    /// # Errors
    /// The command itself, when every place is taken or nothing is taken any more ([`Client::refusal`]).
    pub fn command(&self, command: Box<K::Command>) -> Result<Ticket, Box<K::Command>> {
        self.command_in(Places::Usual, command)
    }

    /// The same, with a place of these.
    ///
    /// # Errors
    /// As [`Client::command`].
    pub fn command_in(&self, places: Places, command: Box<K::Command>) -> Result<Ticket, Box<K::Command>> {
        let mut state = self.lock();
        if state.table.closed.is_some() {
            return Err(command);
        }
        let Some(tag) = self.reserve(&mut state, places) else {
            self.finish_up(state, false);
            return Err(command);
        };
        let ticket = self.queue_command(&mut state, tag, command);
        self.finish_up(state, false);
        Ok(ticket)
    }

    pub(crate) fn queue_command(&self, state: &mut State<K>, tag: Tag, command: Box<K::Command>) -> Ticket {
        let _ = self.shared.exchange.put(tag.index, Parcel::Command(command));
        let raw = Submission::new(Op::Control, tag).encode();
        state.table.queue(tag, Kind::Command, raw, 0, None)
    }

    /// Sends all that is queued. True: ring for the service, with the lock free.
    #[must_use]
    pub(crate) fn flush(&self, state: &mut State<K>) -> bool {
        if state.is_down {
            return false;
        }
        let line = state.line.clone();
        let ring = line.as_ref().unwrap_or(&self.shared).submissions.ring();
        let mut any = false;
        while let Some((ticket, kind, raw)) = state.table.next_to_send() {
            if matches!(kind, Kind::Command) && self.carrier.is_far() {
                // Not by the ring: its service is not rung for.
                let parcel = self.shared.exchange.take(ticket.parts().0);
                if let Some(Parcel::Command(command)) = &parcel {
                    self.carrier.send(&mut state.kept, ticket.into(), command);
                }
                state.table.sent(ticket);
                match parcel {
                    Some(parcel) if self.carrier.keeps_commands() => {
                        _ = self.shared.exchange.put(ticket.parts().0, parcel)
                    }
                    parcel => state.litter.extend(parcel),
                }
                continue;
            }
            if ring.push(&mut state.submissions, raw).is_err() {
                break; // It cannot be full by its size; if it is, the next flush goes on.
            }
            state.table.sent(ticket);
            any = true;
        }
        while let Some(&handle) = state.closing.last() {
            let close = Submission {
                handle,
                ..Submission::new(Op::CloseHandle, Tag::default())
            };
            if !self.leaves_room(state) || ring.push(&mut state.submissions, &close.encode()).is_err() {
                break;
            }
            state.closing.pop();
            any = true;
        }
        any && ring.publish(&state.submissions)
    }

    /// Requests go first: what has no place of its own may fill half of the ring.
    fn leaves_room(&self, state: &State<K>) -> bool {
        let ring = self.line(state).submissions.ring();
        ring.unread(&state.submissions) < self.shared.exchange.places()
    }

    /// What lies between this client and its service now.
    pub(crate) fn line<'a>(&'a self, state: &'a State<K>) -> &'a Between<K> {
        state.line.as_ref().unwrap_or(&self.shared)
    }

    // The role.

    /// Wakes whoever is to be woken and rings for the service, with the lock free and the role handed over.
    fn outside<'a>(&'a self, mut state: Guard<'a, K>, ring: bool) -> Guard<'a, K> {
        self.hand_over(&mut state);
        let mut fired = Fired::new(state.table.take_fired(), &self.telling);
        let litter = std::mem::take(&mut state.litter);
        drop(state);
        if ring {
            self.carrier.ring();
        }
        fired.wake();
        drop(litter);
        let mut state = self.lock();
        state.table.give_back(std::mem::take(&mut fired.wakers));
        state
    }

    /// The same for whoever does not need the lock any more.
    pub(crate) fn finish_up(&self, mut state: Guard<'_, K>, ring: bool) {
        if state.has_to_leave() {
            drop(self.outside(state, ring));
            return;
        }
        self.hand_over(&mut state);
        drop(state);
        if ring {
            self.carrier.ring();
        }
    }

    /// Whoever waits must not be left without anybody on the bell.
    fn hand_over(&self, state: &mut State<K>) {
        state.tell_event();
        if state.sleeper {
            return;
        }
        if let Some((parker, _)) = state.followers.first() {
            parker.ring();
        } else if state.needs_helper() {
            state.helper.call();
        }
    }

    /// Sleeps until something may have changed: on the bell, or as a follower of whoever is there.
    pub(crate) fn sleep<'a>(
        &'a self,
        mut state: Guard<'a, K>,
        me: &Arc<Parker<K>>,
        any: bool,
        until: Option<Instant>,
    ) -> Guard<'a, K> {
        state.tell_event();
        if state.sleeper {
            state.followers.push((Arc::clone(me), any));
            drop(state);
            me.park(until);
            state = self.lock();
            state.followers.retain(|(parker, _)| !Arc::ptr_eq(parker, me));
        } else if state.is_down || self.line(&state).completions.ring().fall_asleep(&state.completions) {
            state.sleeper = true;
            let room_until = state.table.room_until().and_then(instant_of);
            drop(state);
            me.sleep_on_bell(earlier(until, room_until));
            state = self.lock();
            state.sleeper = false;
            state.nudged = false;
            self.line(&state).completions.ring().wake_up();
        }
        state
    }

    /// Sends, reaps and wakes others, until there is nothing of that to do.
    pub(crate) fn look<'a>(&'a self, mut state: Guard<'a, K>) -> Guard<'a, K> {
        loop {
            let ring = self.flush(&mut state);
            state.drain(&self.shared, &self.carrier, &self.name);
            state.table.wake_late(sync::monotonic);
            if !ring && !state.has_to_leave() {
                return state;
            }
            state = self.outside(state, ring);
        }
    }

    /// Looks until `found` gives something, or `until` is over; sleeps in between. `any`: outcomes of others count.
    pub(crate) fn wait_until<T>(
        &self,
        any: bool,
        until: Option<Instant>,
        mut found: impl FnMut(&mut State<K>, &Arc<Parker<K>>) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        let me = state.take_parker(&self.shared);
        let result = loop {
            state = self.look(state);
            // Whoever rang has changed the state before, and that is looked at now.
            me.take();
            if let Some(result) = found(&mut state, &me) {
                break Some(result);
            }
            if until.is_some_and(|until| sync::now() >= until) {
                break None;
            }
            state = self.sleep(state, &me, any, until);
        };
        state.parkers.push(me);
        self.finish_up(state, false);
        result
    }

    /// Sends and reaps once, without sleeping.
    pub fn look_once(&self) {
        let mut state = self.lock();
        let ring = self.flush(&mut state);
        state.drain(&self.shared, &self.carrier, &self.name);
        self.finish_up(state, ring);
    }

    // Awaiting.

    /// Takes the end of a request or command if it has come; else remembers whom to wake. `None` for a ticket that is not
    /// valid any more. Reaps nothing by itself: [`Client::is_driven`].
    pub fn poll(self: &Arc<Self>, ticket: Ticket, waker: &Waker) -> Poll<Option<Ended<K>>> {
        let reaper = inside::reaper_of(self);
        let mut state = self.lock();
        let mut copy = None;
        let polled = match state.table.poll_again(ticket, waker, reaper) {
            Some(polled) => polled,
            None => {
                // Cloning it may run anybody's code.
                drop(state);
                copy = Some(waker.clone());
                state = self.lock();
                let polled = state.table.poll(ticket, &mut copy, reaper);
                if let Some(displaced) = &copy {
                    state.tell_waiter(displaced);
                }
                polled
            }
        };
        let nudge = polled.is_pending() && reaper == HELPER && self.expect_helper(&mut state);
        self.finish_up(state, false);
        if nudge {
            self.shared.bell.ring();
        }
        drop(copy);
        polled
    }

    /// Somebody will sleep on the bell for a future: if nobody does now, the role is handed over next. True: whoever sleeps
    /// there must be rung for, to send the queue.
    fn expect_helper(&self, state: &mut State<K>) -> bool {
        let nudge = state.sleeper && state.table.queued() > 0 && !state.nudged;
        state.nudged |= nudge;
        nudge
    }

    /// Nobody will take the outcome. What was not sent is forgotten; what was is cancelled, if that can be done.
    pub fn abandon(&self, ticket: Ticket) {
        let mut state = self.lock();
        // Of what was sent its end gives this up; the next one in its place has its own.
        let behind = (!state.table.is_sent(ticket)).then(|| state.table.take_behind(ticket));
        let (left, waker, ended) = state.table.abandon(ticket);
        if let Some(Ended::Command(Ok(reply))) = &ended {
            if let Some(handle) = K::opened(reply) {
                let words = self.carrier.close(&mut state.kept, handle);
                state.closing.extend(words); // Opened for somebody who has left.
            }
        }
        if let Some(waker) = &waker {
            state.tell_waiter(waker);
        }
        if left == Left::Queued && state.table.in_flight() == 0 {
            state.tell_any();
        }
        // Best effort: it ends by itself too.
        let ring = left == Left::Sent && self.push_cancel(&mut state, ticket);
        // The place is that request's only if it was still queued.
        let parcel = (left == Left::Queued).then(|| self.shared.exchange.take(ticket.parts().0));
        self.finish_up(state, ring);
        drop((waker, ended, parcel, behind));
    }

    /// Asks that a request end early, as far as it can be ended; it ends all the same, once. Nothing comes of it while the service
    /// has a ring full of others to look at.
    pub fn cancel(&self, ticket: Ticket) {
        let mut state = self.lock();
        if state.is_down {
            self.call_off_down(&mut state, ticket);
            return self.finish_up(state, false);
        }
        // What is cancelled there was sent before.
        let mut ring = self.flush(&mut state);
        if state.table.is_sent(ticket) {
            ring |= self.push_cancel(&mut state, ticket);
        }
        self.finish_up(state, ring);
    }

    /// Tells the service that something it has is to end early. True: ring for it.
    pub(crate) fn push_cancel(&self, state: &mut State<K>, ticket: Ticket) -> bool {
        if state.is_down {
            return false;
        }
        if self.carrier.is_far() && state.table.is_command(ticket) {
            self.carrier.call_off(ticket.into());
            return false;
        }
        state.table.call_off(ticket);
        let cancel = Submission::new(Op::Cancel, ticket.into());
        let line = state.line.clone();
        let submissions = line.as_ref().unwrap_or(&self.shared).submissions.ring();
        self.leaves_room(state)
            && submissions.push(&mut state.submissions, &cancel.encode()).is_ok()
            && submissions.publish(&state.submissions)
    }

    // Looking.

    /// Why nothing is taken any more; `None` while it is.
    pub fn refusal(&self) -> Option<RequestFault> {
        self.lock().table.closed
    }

    /// Requests that have not ended, or whose end nobody has reaped.
    pub fn in_flight(&self) -> usize {
        self.lock().table.in_flight()
    }

    /// Both at one moment.
    pub fn refusal_and_in_flight(&self) -> (Option<RequestFault>, usize) {
        let state = self.lock();
        (state.table.closed, state.table.in_flight())
    }

    /// The next outcome in the order of completion, of requests that nobody awaits. Reaps nothing by itself.
    pub fn next_outcome(&self) -> Option<Outcome<K::Memory>> {
        let mut state = self.lock();
        let outcome = state.table.next_finished();
        self.finish_up(state, false);
        outcome
    }

    /// Is it a handle of this service?
    pub fn knows(&self, handle: Handle) -> bool {
        handle.parts().0 == self.core
    }
}

/// That moment of the service's clock as the waits of a thread know it; `None` beyond the clock's end.
pub(crate) fn instant_of(at: Time) -> Option<Instant> {
    sync::now().checked_add(at.since(sync::monotonic()))
}
