//! A context that has gone over: requests in flight on a ring of the engine's, and the live ring of their events.
//!
//! Results travel from the engine's ring into the live ring by whoever is there. That is the thread in `io_getevents`, which sleeps in
//! the kernel until something arrives: no other thread stands between it and the device. `io_submit` moves what has ended at once.
//! Only when nobody calls does the helper (`helper.rs`).
//!
//! | lock | guards | held over |
//! |---|---|---|
//! | `state` | the requests in flight, moving results into the live ring, taking events from it, who waits | nothing that sleeps; the call that cancels a poll |
//! | of the ring | its submission | `io_uring_enter`, which the kernel does one by one as well |
//!
//! They are taken in this order. Nobody waits for events under one. A request that is submitted takes the first twice, and the other once.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use baio_engine::shared::SharedRing;
use baio_engine::{Errno, SetupError};

use crate::abi::{IoEvent, Iocb};
use crate::check::Kinds;
use crate::counted;
use crate::event_fd::{EventFds, Signals};
use crate::helper::{Helped, Helper, KEPT};
use crate::live::{KernelRing, LiveRing};
use crate::patience::pause;
use crate::requests::{Ended, Request, Requests};
use crate::wait::Limit;
use state::{After, MOMENT, State};

mod in_kernel;
mod state;
mod submitting;

pub(crate) struct OnRing {
    /// By which the kernel knows the context of its own that lies under this one.
    address: usize,
    ring: SharedRing,
    live: LiveRing,
    /// Requests in flight and events not taken, at most.
    capacity: u32,
    /// Let in, and not yet an event: the low half. The high half moves whenever one is counted out, so that who lets one in by an old
    /// count of events is found out.
    counts: AtomicU64,
    /// Of these, requests that name an event fd.
    signalling: AtomicU32,
    state: Mutex<State>,
    event_fds: Mutex<EventFds>,
    /// Rows of requests that were handed to the kernel.
    rows: AtomicU64,
    kinds: Kinds,
    /// Pages with lists and requests, by their number.
    known_pages: [AtomicUsize; 8],
    dead: AtomicBool,
    /// The program has closed the ring's descriptor: the kernel does everything in the call from here on.
    broken: AtomicBool,
    helper: Helper,
    me: Weak<OnRing>,
}

#[cfg(test)]
thread_local! {
    /// How often this thread has taken the lock of a context.
    pub(crate) static LOCKS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// A ring has room for the results of so many requests; larger contexts stay the kernel's.
const RING_REQUESTS_MAX: u32 = 16_384;

pub(crate) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OnRing {
    /// Takes a context of the kernel's over, which was made for so many requests.
    ///
    /// # Errors
    /// Why there is no io_uring or no memory for it, and the cure.
    ///
    /// # Safety
    /// As for [`LiveRing::over`].
    pub(crate) unsafe fn over(address: usize, requests: u32) -> Result<Arc<OnRing>, SetupError> {
        let refused = |errno| SetupError::new("make room for events", format!("{requests} requests"), errno);
        // SAFETY: the caller's promise.
        let nr = unsafe { KernelRing::at(address) }.map_or(0, |ring| ring.nr());
        // SAFETY: no memory is involved.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let processors = u32::try_from(processors).unwrap_or(1).max(1);
        if requests > RING_REQUESTS_MAX || nr < 2 {
            return Err(refused(Errno::EAGAIN).need("at most 16384 requests"));
        }
        let capacity = capacity_of(nr, processors);
        let (ring, reaper) = SharedRing::new(capacity)?;
        let state = State {
            requests: Requests::default(),
            carried: Vec::new(),
            reaper,
            waiters: 0,
            gathering: 0,
        };
        // SAFETY: the caller's promise.
        let live = unsafe { LiveRing::over(address) }.map_err(refused)?;
        // Those that nobody has taken are in ours; in the kernel's own memory they must not come again.
        in_kernel::drop_events(address);
        Ok(Arc::new_cyclic(|me| OnRing {
            address,
            ring,
            live,
            capacity,
            counts: AtomicU64::new(0),
            signalling: AtomicU32::new(0),
            state: Mutex::new(state),
            event_fds: Mutex::default(),
            rows: AtomicU64::new(0),
            kinds: Kinds::default(),
            known_pages: Default::default(),
            dead: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            helper: Helper::default(),
            me: me.clone(),
        }))
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.counts.load(Ordering::SeqCst) as u32
    }

    /// Of these, how many have an event fd to signal.
    fn signalling(&self) -> u32 {
        self.signalling.load(Ordering::SeqCst)
    }

    /// Is no event there, of those that have arrived?
    pub(crate) fn is_empty(&self) -> bool {
        self.look(None);
        self.live.len() == 0
    }

    /// Moves results while nobody waits, and says how many; none when somebody waits, who will. Those in `io_getevents` sleep until so and
    /// so many results have arrived that nobody has moved.
    pub(crate) fn look(&self, submitted: Option<u64>) -> Option<u32> {
        let mut state = self.state();
        let looked = self.look_at(&mut state, submitted);
        drop(state);
        self.settle(looked)
    }

    /// The first half, under the lock: what was moved, or for how many results somebody waits.
    fn look_at(&self, state: &mut State, submitted: Option<u64>) -> Result<After, u32> {
        match state.waiters {
            0 => Ok(self.gather(state, submitted)),
            _ => Err(state.gathering),
        }
    }

    /// The second half, without the lock.
    fn settle(&self, looked: Result<After, u32>) -> Option<u32> {
        match looked {
            Ok(after) => {
                let moved = after.moved;
                self.finish(after);
                Some(moved)
            }
            Err(gathering) => {
                if gathering > 1 && self.signalling() > 0 {
                    // They may sleep until more have arrived than will before an event fd is due. They see to it.
                    let _ = self.ring.wake(gathering);
                }
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        #[cfg(test)]
        LOCKS.set(LOCKS.get() + 1);
        locked(&self.state)
    }

    /// Moves results into the live ring. Requests that were `submitted` then or later have ended at once, if the caller has just submitted.
    fn gather(&self, state: &mut State, submitted: Option<u64>) -> After {
        let mut after = After::default();
        let State { requests, reaper, .. } = state;
        self.ring.reap(reaper, |name, raw| {
            after.moved += 1;
            match requests.ended(name, raw) {
                Ended::Event(event, request) => self.publish(event, request, submitted, &mut after.signals),
                Ended::Again(call) => after.again.push(call),
                Ended::Nobody => {}
            }
        });
        // A context that is gone has no events any more: its address may be the next one's by now.
        if !self.live.is_closed() && state.any_stray() {
            self.move_events(state, submitted, &mut after);
        }
        after
    }

    /// Puts an event into the live ring; the lock is the caller's.
    fn publish(&self, event: IoEvent, request: Request, submitted: Option<u64>, signals: &mut Signals) {
        let operation = counted::operation(&request.call.what);
        counted::tell(operation, request.started, &event, submitted);
        if let Some(kept) = request.call.kept {
            self.ring.give_back(kept);
        }
        self.live.publish(event);
        self.count_out(request.event_fd.is_some());
        if let Some(event_fd) = request.event_fd {
            signals.add(event_fd);
        }
    }

    /// Makes calls again whose thread has ended, and signals event fds, whose events are there by now.
    fn finish(&self, after: After) {
        if !after.again.is_empty() {
            // SAFETY: the promise of who submitted them lasts until their events are there.
            if let Err((taken, _)) = unsafe { self.ring.submit(&after.again) } {
                // They can be neither made again nor lost.
                let mut state = self.state();
                let mut signals = Signals::default();
                for request in state.requests.forget(&after.again[taken..]) {
                    let event = request.event(-Errno::ECANCELED.raw());
                    self.publish(event, request, None, &mut signals);
                }
                drop(state);
                signals.send();
            }
            self.cancel_what_was_cancelled(&after.again);
        }
        after.signals.send();
    }

    /// `io_getevents`: at least so many events, at most so many, moved to the caller's array.
    ///
    /// # Safety
    /// The array has room for `most`.
    pub(crate) unsafe fn get_events(
        &self,
        least: usize,
        most: usize,
        events: *mut IoEvent,
        limit: Limit,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let mut taken = 0;
        let mut deadline = None;
        let mut waiting = false;
        let mut ended = None;
        let mut looked = false;
        self.helper.called();
        loop {
            let mut state = self.state();
            let after = self.gather(&mut state, None);
            // SAFETY: the caller's promise.
            taken += unsafe { self.live.take(events.wrapping_add(taken), most - taken) };
            let enough = taken >= least || matches!(limit, Limit::Never) || ended.is_some() || self.is_dead();
            if enough && taken == 0 && !looked && self.in_flight() > 0 {
                // Once more, before it says that there is nothing: what has ended may be told only to who enters the kernel.
                looked = true;
                drop(state);
                self.finish(after);
                let _ = self.ring.wait(0, Some(Duration::ZERO), None);
                continue;
            }
            if enough {
                let others = self.leave(&mut state, waiting);
                drop(state);
                self.finish(after);
                if others > 0 {
                    let _ = self.ring.wake(others);
                }
                if waiting && self.signalling() > 0 {
                    self.helper.be_there(&self.me, true);
                }
                break;
            }
            if !waiting {
                state.waiters += 1;
                waiting = true;
            }
            // Alone, and with nothing to see to at once: as many as it wants at one go, if there can be so many.
            let want = match state.waiters {
                1 if self.signalling() == 0 => (least - taken).min(self.capacity as usize) as u32,
                _ => 1,
            };
            state.gathering = match state.waiters {
                1 => want,
                _ => state.gathering.max(want),
            };
            let look_again = state.look_again();
            drop(state);
            self.finish(after);
            ended = self.sleep(want, limit, &mut deadline, look_again, mask).err();
        }
        match ended {
            _ if self.is_dead() => Err(Errno::EINVAL),
            Some(errno) if taken == 0 && errno != Errno::ETIME => Err(errno),
            _ => Ok(taken),
        }
    }

    /// Counts a waiter out; says by how many arrivals the others are to be woken, since events are left that they may not know of.
    fn leave(&self, state: &mut State, waiting: bool) -> u32 {
        let want = state.gathering.max(1);
        if waiting {
            state.waiters -= 1;
        }
        if state.waiters == 0 {
            state.gathering = 0;
            return 0;
        }
        if self.live.len() > 0 { want } else { 0 }
    }

    fn sleep(
        &self,
        want: u32,
        limit: Limit,
        deadline: &mut Option<Instant>,
        look_again: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<(), Errno> {
        let left = match limit {
            Limit::Never => Some(Duration::ZERO),
            Limit::Ever => None,
            Limit::For(time) => {
                let now = Instant::now();
                match *deadline {
                    Some(at) => Some(at.saturating_duration_since(now)),
                    // Longer than the clock goes is for ever.
                    None => now.checked_add(time).map(|at| {
                        *deadline = Some(at);
                        time
                    }),
                }
            }
        };
        let sleep = left.into_iter().chain(look_again).min();
        match self.sleep_in_ring(want, sleep, mask) {
            Ok(()) | Err(Errno::EAGAIN | Errno::EBUSY) => Ok(()),
            Err(Errno::ETIME) if sleep != left => Ok(()),
            Err(errno @ (Errno::ETIME | Errno::EINTR)) => Err(errno),
            Err(_) if left == Some(Duration::ZERO) => Err(Errno::ETIME),
            Err(_) => Ok(()),
        }
    }

    /// Where the program has closed the ring's descriptor, which may be another ring's by now, it sleeps a moment. Results still arrive in
    /// memory, which needs no descriptor.
    fn sleep_in_ring(&self, want: u32, time: Option<Duration>, mask: Option<u64>) -> Result<(), Errno> {
        if !self.broken.load(Ordering::Relaxed) {
            match self.ring.wait(want, time, mask) {
                Err(errno) if !is_passing(errno) => self.broken.store(true, Ordering::Relaxed),
                told => return told,
            }
        }
        pause(MOMENT);
        Err(Errno::EBADF)
    }

    /// `io_cancel`: only polls can be, and end as an event.
    pub(crate) fn cancel(&self, object: *mut Iocb) -> Result<(), Errno> {
        let mut state = self.state();
        let found = state.requests.cancel_polls(|request| request.object == object);
        let Some(&name) = found.first() else {
            // Perhaps the kernel has it. It has not written the event since Linux 4.18.
            // SAFETY: it looks itself at what it is given.
            let told = unsafe { crate::calls::cancel(self.address, object, std::ptr::null_mut()) };
            return Err(Errno::from_raw(-told));
        };
        // Under the lock: the name is another request's as soon as its result has been moved.
        self.ring.cancel(name)?;
        drop(state);
        self.look(None);
        Err(Errno::EINPROGRESS)
    }

    /// Waits until the writes and syncs have ended that are under way now, at most until then: the program exits. Its other threads may
    /// go on submitting.
    pub(crate) fn drain(&self, until: Instant) {
        let submitted = self.state().requests.submitted();
        loop {
            let mut state = self.state();
            let after = self.gather(&mut state, None);
            drop(state);
            self.finish(after);
            let waits = self.state().requests.any_change(submitted) && Instant::now() < until;
            if !waits {
                return;
            }
            let _ = self.sleep_in_ring(1, Some(MOMENT), None);
        }
    }

    /// `io_destroy`: ends what can be ended and waits for the rest, and until `is_alone` says that nobody else is in here.
    pub(crate) fn end(&self, is_alone: impl Fn() -> bool) {
        self.dead.store(true, Ordering::SeqCst);
        let mut gone_since = None;
        loop {
            // Each time: who was in `io_submit` already may let one more in.
            let mut state = self.state();
            for poll in state.requests.cancel_polls(|_| true) {
                let _ = self.ring.cancel(poll);
            }
            let after = self.gather(&mut state, None);
            let (waiters, gathering) = (state.waiters, state.gathering);
            drop(state);
            self.finish(after);
            if waiters > 0 {
                let _ = self.ring.wake(gathering.max(1));
            }
            // What the kernel carries it ends itself.
            let in_ring = self.in_flight() as usize > self.state().carried.len();
            if !in_ring && is_alone() {
                break;
            }
            let told = self.sleep_in_ring(1, Some(MOMENT), None);
            // Without the ring's descriptor polls cannot be ended. What the kernel reads and writes ends all the same.
            if told.is_ok() || told.is_err_and(is_passing) {
                continue;
            }
            let patient = gone_since.get_or_insert_with(Instant::now).elapsed() < PATIENCE;
            if !(patient && self.state().requests.any_transfer()) && is_alone() {
                break;
            }
        }
        // The helper may look once more.
        let state = self.state();
        self.live.close();
        drop(state);
        self.helper.go();
        let _ = self.ring.wake(1);
    }
}

/// The helper moves results when nobody calls.
impl Helped for OnRing {
    fn helper(&self) -> &Helper {
        &self.helper
    }

    fn is_over(&self) -> bool {
        self.is_dead()
    }

    fn requests(&self) -> u32 {
        self.in_flight()
    }

    fn with_event_fds(&self) -> u32 {
        self.signalling()
    }

    fn move_results(&self) -> Option<u32> {
        self.look(None)
    }

    fn sleep_for_arrivals(&self) -> Result<(), Errno> {
        let kept = self.kept_event_fds();
        let look_again = self.state().look_again().map(|soon| match self.signalling() {
            // Nobody is to be told by an event fd: who waits in `io_getevents` looks itself.
            0 => MOMENT,
            _ => soon,
        });
        let told = self.sleep_in_ring(1, kept.map(|_| KEPT).into_iter().chain(look_again).min(), None);
        let is_soon = look_again.is_some_and(|time| time < MOMENT);
        if let (Err(Errno::ETIME), Some(uses), false) = (told, kept, is_soon) {
            self.give_back_event_fds(uses);
        }
        told
    }

    fn kept_event_fds(&self) -> Option<u32> {
        locked(&self.event_fds).kept()
    }

    fn give_back_event_fds(&self, uses: u32) {
        locked(&self.event_fds).give_back_since(uses);
    }
}

/// Says this nothing about the ring?
fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::ETIME | Errno::EINTR | Errno::EAGAIN | Errno::EBUSY)
}

/// A healthy device ends its requests within milliseconds; after this long it is taken for stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the kernel lets in from one processor: it hands places out by fours of the processors' number (`ioctx_alloc`, fs/aio.c).
fn capacity_of(nr: u32, processors: u32) -> u32 {
    let batch = ((nr - 1) / processors.saturating_mul(4).max(1)).max(1);
    (nr - 1) / batch * batch
}
