//! The client's side of the rings: one lock, taken once per batch where batches are made, and the role of reaping.
//!
//! **Sending.** [`Client::start`] and [`Client::poll`] only queue. [`Client::flush`] sends the whole queue with one store,
//! and rings for the service at most once, and only if it sleeps. It runs when a batch has gathered, when somebody waits,
//! and before the one who reaps goes to sleep.
//!
//! **Reaping** is done by whoever holds the lock and looks ([`Client::drain`]). The role is to sleep on the client's bell
//! (`State::sleeper`), for one thread at a time:
//!
//! | who wants to sleep | and nobody sleeps on the bell | and somebody does |
//! |---|---|---|
//! | a thread in `wait`, `turn`, `block_on` | sleeps on the bell | parks, as a follower |
//! | the helper, with futures to reap for | sleeps on the bell | parks |
//! | the helper, with none | parks | parks |
//!
//! Whoever leaves the bell for anything but another look hands the role over first ([`Client::hand_over`]): to a follower,
//! else to the helper if futures need it. So whenever anybody waits, somebody sleeps on the bell or is about to look.
//! Wakers are woken, and dropped, with the lock free and without the role; so a waker may do anything.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

use baio_broker::Connection;
use baio_broker::control::{Command, Parcel};
use baio_engine::{Arena, Buffer, Doorbell, Memory};
use baio_ring::Shared;
use baio_ring::ring::Cursor;
use baio_storage::{Fault, Handle, Outcome, SegmentRequest, Ticket};
use baio_words::Failure;
use baio_words::entry::{Op, Submission, Tag};

use super::helper::{self, Helper};
use super::parker::Parker;
use super::reap::ended_early;
use super::table::{Ended, HELPER, Kind, Left, Table};
use super::{inside, translate};

/// Requests that are queued at most before they are sent without anybody waiting.
pub(super) const BATCH: usize = 64;

pub(super) struct Client {
    state: Mutex<State>,
    pub(super) shared: Arc<Shared<Parcel>>,
    doorbell: Doorbell,
    pub(super) arena: Arc<Arena>,
    core: u32,
    pub(super) name: String,
    /// Was the helper started? Looked at without the lock by each poll.
    has_helper: AtomicBool,
}

pub(super) struct State {
    pub(super) table: Table,
    submissions: Cursor,
    pub(super) completions: Cursor,
    /// Somebody sleeps on the bell.
    sleeper: bool,
    /// That one was asked to look at the queue, and has not done so yet.
    nudged: bool,
    /// Parked threads that can take the role; with whether any outcome will do for them.
    pub(super) followers: Vec<(Arc<Parker>, bool)>,
    parkers: Vec<Arc<Parker>>,
    pub(super) helper: Helper,
    /// Opened segments, for messages.
    pub(super) names: Vec<(Handle, String)>,
    /// Handles to be closed as soon as there is room in the ring.
    pub(super) closing: Vec<Handle>,
}

pub(super) type Guard<'a> = MutexGuard<'a, State>;

impl Client {
    pub(super) fn new(connection: Connection<Parcel>) -> (Client, std::thread::JoinHandle<()>) {
        let Connection {
            shared,
            doorbell,
            arena,
            core,
            name,
            thread,
        } = connection;
        let state = State {
            table: Table::new(shared.exchange.places()),
            submissions: Cursor::default(),
            completions: Cursor::default(),
            sleeper: false,
            nudged: false,
            followers: Vec::new(),
            parkers: Vec::new(),
            helper: Helper::new(&shared),
            names: Vec::new(),
            closing: Vec::new(),
        };
        let client = Client {
            state: Mutex::new(state),
            shared,
            doorbell,
            arena,
            core,
            name,
            has_helper: AtomicBool::new(false),
        };
        (client, thread)
    }

    /// No foreign code runs under the lock, so nobody can have panicked in the middle of a change.
    pub(super) fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Sending.

    pub(super) fn start(&self, mut request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        let mut state = self.lock();
        if state.table.closed.is_some() {
            return Err(request);
        }
        let Some(tag) = self.reserve(&mut state) else {
            self.finish_up(state, false);
            return Err(request);
        };
        let (op, handle) = (request.op, request.handle);
        let len = u32::try_from(request.memory.len()).unwrap_or(u32::MAX);
        let kind = Kind::Request { op, handle, len };
        let submission = translate::submission(&request, &self.arena, tag);
        let memory = std::mem::take(&mut request.memory);
        let status = request.status.take();
        if handle.parts().0 != self.core {
            // Another volume's. It ends here, as it would there.
            let ticket = state.table.occupy(tag, kind, request.tag, status);
            let error = translate::error(op, "a closed handle", len, Failure::Stale);
            let outcome = ended_early(ticket, request.tag, error, memory);
            self.end(&mut state, ticket, Ended::Request(outcome));
            self.finish_up(state, false);
            return Ok(ticket);
        }
        if !matches!(memory, Memory::None) {
            // A place that was reserved is the client's.
            let _ = self.shared.exchange.put(tag.index, Parcel::Memory(memory));
        }
        let ticket = state.table.queue(tag, kind, submission.encode(), request.tag, status);
        let ring = state.table.queued() >= BATCH && self.flush(&mut state);
        self.finish_up(state, ring);
        Ok(ticket)
    }

    /// A place, if need be one that the ring gives back.
    fn reserve(&self, state: &mut State) -> Option<Tag> {
        state.table.reserve(false).or_else(|| {
            self.drain(state);
            state.table.reserve(false)
        })
    }

    /// Queues a command; it is handed back when every place is taken.
    pub(super) fn command(&self, command: Box<Command>) -> std::result::Result<Ticket, Box<Command>> {
        let mut state = self.lock();
        if state.table.closed.is_some() {
            return Err(command);
        }
        let Some(tag) = self.reserve(&mut state) else {
            self.finish_up(state, false);
            return Err(command);
        };
        let ticket = self.queue_command(&mut state, tag, command);
        self.finish_up(state, false);
        Ok(ticket)
    }

    fn queue_command(&self, state: &mut State, tag: Tag, command: Box<Command>) -> Ticket {
        let _ = self.shared.exchange.put(tag.index, Parcel::Command(command));
        let raw = Submission::new(Op::Control, tag).encode();
        state.table.queue(tag, Kind::Command, raw, 0, None)
    }

    /// Nothing is taken from now on but the command that closes the service, which is queued in the same moment: a waker
    /// that is told may wait for the end. `None` when it was closed before.
    pub(super) fn begin_close(&self) -> Option<Ticket> {
        let mut state = self.lock();
        if state.table.closed.is_some() {
            return None;
        }
        // One place is kept for this.
        let tag = state.table.reserve(true)?;
        state.table.closed = Some(Fault::Stale);
        let ticket = self.queue_command(&mut state, tag, Box::new(Command::Close));
        state.table.wake_room();
        self.finish_up(state, false);
        Some(ticket)
    }

    /// Sends all that is queued. True: ring for the service, with the lock free.
    #[must_use]
    fn flush(&self, state: &mut State) -> bool {
        let ring = self.shared.submissions.ring();
        let mut any = false;
        while let Some((ticket, raw)) = state.table.next_to_send() {
            if ring.push(&mut state.submissions, raw).is_err() {
                break; // It cannot be full by its size; if it is, the next flush goes on.
            }
            state.table.sent(ticket);
            any = true;
        }
        while let Some(&handle) = state.closing.last() {
            let close = Submission {
                handle: handle.into(),
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
    fn leaves_room(&self, state: &State) -> bool {
        let ring = self.shared.submissions.ring();
        ring.unread(&state.submissions) < self.shared.exchange.places()
    }

    // The role.

    /// Wakes whoever is to be woken and rings for the service, with the lock free and the role handed over.
    fn outside<'a>(&'a self, mut state: Guard<'a>, ring: bool) -> Guard<'a> {
        self.hand_over(&mut state);
        let mut fired = Fired(state.table.take_fired());
        drop(state);
        if ring {
            self.doorbell.ring();
        }
        fired.wake();
        let mut state = self.lock();
        state.table.give_back(std::mem::take(&mut fired.0));
        state
    }

    /// The same for whoever does not need the lock any more.
    pub(super) fn finish_up(&self, mut state: Guard<'_>, ring: bool) {
        if state.table.has_fired() {
            drop(self.outside(state, ring));
            return;
        }
        self.hand_over(&mut state);
        drop(state);
        if ring {
            self.doorbell.ring();
        }
    }

    /// Whoever waits must not be left without anybody on the bell.
    fn hand_over(&self, state: &mut State) {
        if state.sleeper {
            return;
        }
        if let Some((parker, _)) = state.followers.first() {
            parker.ring();
        } else if state.table.needs_helper() {
            state.helper.call();
        }
    }

    /// Sleeps until something may have changed: on the bell, or as a follower of whoever is there.
    pub(super) fn sleep<'a>(
        &'a self,
        mut state: Guard<'a>,
        me: &Arc<Parker>,
        any: bool,
        until: Option<Instant>,
    ) -> Guard<'a> {
        if state.sleeper {
            state.followers.push((Arc::clone(me), any));
            drop(state);
            me.park(until);
            state = self.lock();
            state.followers.retain(|(parker, _)| !Arc::ptr_eq(parker, me));
        } else if self.shared.completions.ring().fall_asleep(&state.completions) {
            state.sleeper = true;
            drop(state);
            me.sleep_on_bell(until);
            state = self.lock();
            state.sleeper = false;
            state.nudged = false;
            self.shared.completions.ring().wake_up();
        }
        state
    }

    /// Sends, reaps and wakes others, until there is nothing of that to do.
    pub(super) fn look<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        loop {
            let ring = self.flush(&mut state);
            self.drain(&mut state);
            if !ring && !state.table.has_fired() {
                return state;
            }
            state = self.outside(state, ring);
        }
    }

    /// Looks until `found` gives something, or `until` is over; sleeps in between. `any`: outcomes of others count.
    pub(super) fn wait_until<T>(
        &self,
        any: bool,
        until: Option<Instant>,
        mut found: impl FnMut(&mut State, &Arc<Parker>) -> Option<T>,
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
            if until.is_some_and(|until| Instant::now() >= until) {
                break None;
            }
            state = self.sleep(state, &me, any, until);
        };
        state.parkers.push(me);
        self.finish_up(state, false);
        result
    }

    /// Sends and reaps once.
    pub(super) fn look_once(&self) {
        let mut state = self.lock();
        let ring = self.flush(&mut state);
        self.drain(&mut state);
        self.finish_up(state, ring);
    }

    // Awaiting.

    pub(super) fn poll(self: &Arc<Self>, ticket: Ticket, waker: &Waker) -> Poll<Option<Ended>> {
        let mut waker = Some(waker.clone());
        let reaper = inside::reaper_of(self);
        let mut state = self.lock();
        let polled = state.table.poll(ticket, &mut waker, reaper);
        let nudge = polled.is_pending() && reaper == HELPER && self.expect_helper(&mut state);
        self.finish_up(state, false);
        if nudge {
            self.shared.bell.ring();
        }
        drop(waker);
        polled
    }

    /// Somebody will sleep on the bell for a future. True: whoever sleeps there must be rung for, to send the queue.
    fn expect_helper(&self, state: &mut State) -> bool {
        if !state.sleeper {
            state.helper.call();
            return false;
        }
        let nudge = state.table.queued() > 0 && !state.nudged;
        state.nudged |= nudge;
        nudge
    }

    pub(super) fn wake_when_room(self: &Arc<Self>, waker: &Waker) {
        let waker = waker.clone();
        let mut state = self.lock();
        let left = state.table.wait_for_room(waker);
        // Room may have come, or the end, since the caller was refused.
        let ring = self.flush(&mut state);
        self.drain(&mut state);
        state.table.wake_if_room();
        self.finish_up(state, ring);
        drop(left);
    }

    /// Does anybody reap for a future that this thread polls? Starts the helper if nobody else would.
    pub(super) fn is_driven(self: &Arc<Self>) -> bool {
        inside::reaper_of(self) != HELPER || self.has_helper.load(Ordering::Acquire) || self.start_helper()
    }

    pub(super) fn start_helper(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        if !self.has_helper.load(Ordering::Acquire) && helper::start(self) {
            state.helper.started = true;
            // Other side: `is_driven`, on any thread.
            self.has_helper.store(true, Ordering::Release);
        }
        self.has_helper.load(Ordering::Acquire)
    }

    /// A thread that reaped for itself stops doing so: the helper takes over what is left.
    pub(super) fn leave(self: &Arc<Self>, reaper: u64) {
        let mut state = self.lock();
        state.table.leave_to_helper(reaper);
        let needed = state.table.needs_helper();
        self.finish_up(state, false);
        if !needed {
            return;
        }
        if self.start_helper() {
            self.finish_up(self.lock(), false);
        } else {
            // Without a thread for it, whoever awaits must look again to be told.
            self.lock().table.wake_awaited();
            self.look_once();
        }
    }

    pub(super) fn helper_is_gone(&self) {
        self.lock().helper.started = false;
        self.has_helper.store(false, Ordering::Release);
    }

    pub(super) fn abandon(&self, ticket: Ticket) {
        let mut state = self.lock();
        let (left, waker, ended) = state.table.abandon(ticket);
        let mut ring = false;
        if left == Left::Sent && self.leaves_room(&state) {
            let cancel = Submission::new(Op::Cancel, ticket.into());
            let submissions = self.shared.submissions.ring();
            // Best effort: it ends by itself too.
            if submissions.push(&mut state.submissions, &cancel.encode()).is_ok() {
                ring = submissions.publish(&state.submissions);
            }
        }
        // The place is that request's only if it was still queued.
        let parcel = (left == Left::Queued).then(|| self.shared.exchange.take(ticket.parts().0));
        self.finish_up(state, ring);
        drop((waker, ended, parcel));
    }

    // Looking.

    pub(super) fn next_outcome(&self) -> Option<Outcome> {
        let mut state = self.lock();
        let outcome = state.table.next_finished();
        self.finish_up(state, false);
        outcome
    }

    pub(super) fn buffer(&self, len: usize) -> Option<Buffer> {
        self.arena.buffer(len).or_else(|| {
            // Memory of abandoned requests may lie in the ring.
            self.look_once();
            self.arena.buffer(len)
        })
    }

    pub(super) fn remember(&self, handle: Handle, name: String) {
        self.lock().names.push((handle, name));
    }

    pub(super) fn knows(&self, handle: Handle) -> bool {
        handle.parts().0 == self.core
    }

    pub(super) fn close_handle(&self, handle: Handle) {
        let mut state = self.lock();
        let known = state.names.iter().position(|(known, _)| *known == handle);
        let name = known.map(|at| state.names.swap_remove(at));
        let mut ring = false;
        if state.table.closed.is_none() {
            state.closing.push(handle);
            ring = self.flush(&mut state);
        }
        self.finish_up(state, ring);
        drop(name);
    }

    /// Nothing is taken from now on.
    pub(super) fn refuse(&self) {
        let mut state = self.lock();
        state.table.closed.get_or_insert(Fault::Stale);
        state.table.wake_room();
        self.finish_up(state, false);
    }

    /// Tells the service to end, without waiting for it.
    pub(super) fn stop(&self) {
        self.shared.stop();
        self.doorbell.ring();
    }

    /// The helper ends when it has woken whoever waits.
    pub(super) fn dismiss_helper(&self) {
        let mut state = self.lock();
        state.helper.dismissed = true;
        state.helper.call();
    }
}

/// Wakers that are being woken. If one panics, the others are woken all the same.
struct Fired(Vec<Waker>);

impl Fired {
    fn wake(&mut self) {
        self.0.reverse(); // In the order in which their requests ended.
        while let Some(waker) = self.0.pop() {
            waker.wake();
        }
    }
}

impl Drop for Fired {
    fn drop(&mut self) {
        self.wake();
    }
}

impl State {
    pub(super) fn take_parker(&mut self, shared: &Arc<Shared<Parcel>>) -> Arc<Parker> {
        self.parkers.pop().unwrap_or_else(|| Parker::new(shared))
    }

    pub(super) fn give_parker(&mut self, parker: Arc<Parker>) {
        self.parkers.push(parker);
    }

    pub(super) fn has_sleeper(&self) -> bool {
        self.sleeper
    }
}

/// A number for a thread that reaps for itself.
pub(super) fn next_reaper() -> u64 {
    static REAPERS: AtomicU64 = AtomicU64::new(HELPER + 1);
    REAPERS.fetch_add(1, Ordering::Relaxed)
}
