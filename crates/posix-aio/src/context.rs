//! The requests of a process on one ring of the engine's.
//!
//! No thread of ours stands between a waiting thread and the device: the waiting thread sleeps in the ring itself, and moves results from the
//! ring into the program's requests. If several threads wait, one of them does this, the *leader*. The others sleep on a word in memory. They
//! are woken when results were moved, or when the leader leaves and another must take over. While there is a leader no other thread moves
//! results, because the leader could then sleep for a result that has gone.
//!
//! A signal handler may interrupt the leader's sleep, wait itself, and never return. So a leader sleeps for at most a second, and one that is
//! not back by then is leader no more. The helper (`helper.rs`) leads when no thread waits and the program is to be notified.
//!
//! One lock guards everything but the ring, and no thread sleeps with it. Submitting has the ring's own lock. Calls that a signal handler may
//! make (`aio_error`, `aio_return`, `aio_suspend`) first check whether this very thread is inside (`inside.rs`), and allocate nothing. What
//! each call of a program does with it stands in `calls.rs`.

#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use baio_engine::shared::{Call, Reaper, SharedRing, What};
use baio_engine::{Errno, SetupError};
use rustix::thread::futex;

use crate::check;
use crate::helper::{Helped, Helper};
use crate::inside::{Inside, is_inside, this_thread};
use crate::requests::{IN_RING_MAX, Requests};

/// Calls that are handed to the kernel together.
const BATCH: usize = 16;

pub(crate) struct Context {
    pub(crate) ring: SharedRing,
    state: Mutex<State>,
    /// What those sleep on who do not lead.
    epoch: AtomicU32,
    broken: AtomicBool,
    pub(crate) knows_no_signal: bool,
    pub(crate) helper: Helper,
}

pub(crate) struct State {
    pub(crate) requests: Requests,
    reaper: Reaper,
    /// The thread that sleeps in the ring, or is about to, and will move results; 0 if none does.
    leader: usize,
    /// When it last went to sleep. One that has left by longjmp(3), out of a handler above its sleep, never does again.
    slept: Option<Instant>,
    /// So many wait beside the leader.
    followers: u32,
    /// They are to be woken.
    call_followers: bool,
}

/// The lock, and a mark that this thread is inside.
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    _inside: Inside,
}

impl State {
    /// Is it for another to move results? Not for the leader, in a signal handler above its own sleep: it may never go back to that.
    fn another_leads(&self) -> bool {
        self.leader != 0 && self.leader != this_thread()
    }

    /// All who wait look whether it is over for them.
    pub(crate) fn call_all(&mut self) {
        self.call_followers |= self.followers > 0;
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Who moves results, and what may be done meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// What a signal handler may call.
    Handler,
    /// Everything else: threads may be made.
    Plain,
    /// The same; requests were made from this time on.
    Submitting(u64),
}

impl Context {
    /// # Errors
    /// Why there is no io_uring, and the cure.
    pub(crate) fn new() -> Result<Box<Context>, SetupError> {
        let (ring, reaper) = SharedRing::new(IN_RING_MAX as u32)?;
        let state = State {
            requests: Requests::default(),
            reaper,
            leader: 0,
            slept: None,
            followers: 0,
            call_followers: false,
        };
        Ok(Box::new(Context {
            ring,
            state: Mutex::new(state),
            epoch: AtomicU32::new(0),
            broken: AtomicBool::new(false),
            knows_no_signal: check::knows_no_signal(),
            helper: Helper::default(),
        }))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        // The mark first: a handler may come at any time.
        let inside = Inside::enter();
        Locked {
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner),
            _inside: inside,
        }
    }

    fn try_lock(&self) -> Option<Locked<'_>> {
        let inside = Inside::enter();
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Locked { state, _inside: inside })
    }

    /// Moves results, unless somebody leads, who will.
    fn gather(&self, state: &mut State, from: From) {
        let mut moved = false;
        state.requests.submitted = match from {
            From::Submitting(started) => Some(started),
            From::Handler | From::Plain => None,
        };
        let State { requests, reaper, .. } = state;
        self.ring.reap(reaper, |name, raw| {
            requests.ended(name, raw);
            moved = true;
        });
        state.requests.submitted = None;
        state.call_followers |= moved && state.followers > 0;
    }

    pub(crate) fn look(&self, state: &mut State, from: From) {
        if !state.another_leads() {
            self.gather(state, from);
        }
    }

    /// Hands on what may begin, tells whom there is to tell, and wakes who must go on; until there is nothing left to do.
    pub(crate) fn finish<'a>(&'a self, mut state: Locked<'a>, from: From) {
        loop {
            self.look(&mut state, from);
            for kept in state.requests.left.drain(..) {
                self.ring.give_back(kept);
            }
            let mut calls = [NO_CALL; BATCH];
            let count = state.requests.take_ready(&mut calls);
            let notice = state.requests.next_notice(from != From::Handler);
            let call_followers = std::mem::take(&mut state.call_followers);
            let last = count == 0 && notice.is_none();
            // A leader sees to it, unless a thread is to be made: that is for the helper, whoever leads.
            let needs_helper =
                last && (state.requests.any_thread() || state.leader == 0 && state.requests.need_a_helper());
            let inside = Inside::enter();
            drop(state);
            let told = match &calls[..count] {
                [] => Ok(()),
                // SAFETY: the promise of who submitted them lasts until they have ended.
                calls => unsafe { self.ring.submit(calls) },
            };
            drop(inside);
            if call_followers {
                self.wake_followers();
            }
            if let Err((taken, _)) = told {
                self.give_up(&calls[taken..count]);
            }
            if let Some(notice) = notice {
                notice.send();
            }
            if needs_helper {
                self.helper.wake();
            }
            if last {
                return;
            }
            state = self.lock();
        }
    }

    fn wake_followers(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.epoch, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// The program has closed the ring; `calls` could not be handed over. What the kernel does not have ends as an error; what it has it
    /// still reads and writes, and its results still arrive in memory. The next request makes another ring.
    fn give_up(&self, calls: &[Call]) {
        let mut state = self.lock();
        self.broken.store(true, Ordering::SeqCst);
        ANY_BROKEN.store(true, Ordering::SeqCst);
        state.requests.take_back(calls);
        state.requests.fail_what_has_not_begun(Errno::EIO);
        state.leader = 0;
        drop(state);
        self.wake_followers();
        self.helper.wake();
    }

    /// Sleeps until `is_over`, a signal is handled (`EINTR`) or the time is over (`ETIME`).
    pub(crate) fn wait_until(
        &self,
        limit: Option<Duration>,
        from: From,
        mut is_over: impl FnMut(&mut Requests) -> bool,
    ) -> Result<(), Errno> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut ended = None;
        loop {
            let mut state = self.lock();
            self.look(&mut state, from);
            let over = is_over(&mut state.requests);
            if over || ended.is_some() {
                // Somebody else must lead now.
                state.call_followers |= state.leader == 0 && state.followers > 0;
                self.finish(state, from);
                return if over { Ok(()) } else { ended.map_or(Ok(()), Err) };
            }
            if state.requests.any_ready() || state.requests.any_notice() || state.requests.any_thread() {
                self.finish(state, from);
                state = self.lock();
                self.look(&mut state, from);
                if is_over(&mut state.requests) {
                    self.finish(state, from);
                    return Ok(());
                }
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if limit.is_some() && left.is_none_or(|left| left.is_zero()) {
                ended = Some(Errno::ETIME);
                continue;
            }
            ended = self.sleep(state, left).err();
        }
    }

    /// Sleeps once: in the ring, if nobody else does.
    fn sleep(&self, mut state: Locked<'_>, left: Option<Duration>) -> Result<(), Errno> {
        if self.is_broken() {
            drop(state);
            pause(left.unwrap_or(MOMENT).min(MOMENT));
            return Ok(());
        }
        let at_most = |most: Duration| left.unwrap_or(most).min(most);
        if state.slept.is_some_and(|slept| slept.elapsed() > 2 * LEADER_SLEEP_MAX) {
            // It has not come back from its sleep, and never will.
            state.leader = 0;
        }
        let told = if state.another_leads() {
            state.followers += 1;
            let epoch = self.epoch.load(Ordering::SeqCst);
            drop(state);
            let left = futex::Timespec::try_from(at_most(2 * LEADER_SLEEP_MAX)).ok();
            let told = futex::wait(&self.epoch, futex::Flags::PRIVATE, epoch, left.as_ref());
            let mut state = self.lock();
            state.followers -= 1;
            told.map_err(|errno| Errno::from_raw(errno.raw_os_error()))
        } else {
            // Where this is a handler above this thread's own sleep, that goes on as the leader's.
            let above = state.leader != 0;
            state.leader = this_thread();
            state.slept = Some(Instant::now());
            // It may sleep long: those whose results it has just moved must not sleep with it.
            let call_followers = std::mem::take(&mut state.call_followers);
            drop(state);
            if call_followers {
                self.wake_followers();
            }
            let told = self.ring.wait(1, Some(at_most(LEADER_SLEEP_MAX)), None);
            let mut state = self.lock();
            if !above && state.leader == this_thread() {
                state.leader = 0;
            }
            drop(state);
            told
        };
        match told {
            Ok(()) | Err(Errno::EAGAIN | Errno::EBUSY | Errno::ETIME | Errno::ETIMEDOUT) => Ok(()),
            Err(Errno::EINTR) => Err(Errno::EINTR),
            Err(_) => {
                self.give_up(&[]);
                Ok(())
            }
        }
    }

    /// `aio_error` finds a request under way: it moves results, if it can without waiting for a lock.
    pub(crate) fn poll(&self) {
        if is_inside() {
            return;
        }
        let Some(mut state) = self.try_lock() else { return };
        if state.another_leads() {
            return;
        }
        self.gather(&mut state, From::Handler);
        let requests = &state.requests;
        if requests.any_ready() || requests.any_notice() || requests.any_thread() || state.call_followers {
            self.finish(state, From::Handler);
        }
    }
}

/// The helper moves results when nobody calls, and starts threads.
impl Helped for Context {
    fn helper(&self) -> &Helper {
        &self.helper
    }

    fn is_over(&self) -> bool {
        self.is_broken()
    }

    fn help(&self) -> bool {
        let mut state = self.lock();
        self.look(&mut state, From::Plain);
        let goes_on = state.requests.need_a_helper() || self.is_broken() && state.requests.any_begun();
        if state.leader != 0 || !goes_on {
            let rests = !state.requests.any_thread();
            // Those who wait lead themselves.
            state.call_followers |= state.leader == 0 && state.followers > 0;
            self.finish(state, From::Plain);
            return rests;
        }
        if state.requests.any_ready() || state.requests.any_notice() || state.requests.any_thread() {
            self.finish(state, From::Plain);
            return false;
        }
        let _ = self.sleep(state, None);
        false
    }

    fn has_begun(&self) -> bool {
        self.lock().requests.any_begun()
    }
}

/// Has a ring of this process been closed under us?
static ANY_BROKEN: AtomicBool = AtomicBool::new(false);

/// The same.
pub(crate) fn any_broken() -> bool {
    ANY_BROKEN.load(Ordering::Relaxed)
}

/// How long a leader sleeps at most, whatever it waits for. One that is asleep for twice as long is gone.
const LEADER_SLEEP_MAX: Duration = Duration::from_secs(1);
/// How often results are looked for in a ring whose descriptor is gone.
const MOMENT: Duration = Duration::from_millis(10);

/// Sleeps; not by `std::thread::sleep`, in which a thread can be cancelled.
fn pause(time: Duration) {
    let time = rustix::event::Timespec::try_from(time).ok();
    let _ = rustix::event::poll(&mut [], time.as_ref());
}

const NO_CALL: Call = Call {
    what: What::Poll { events: 0 },
    fd: -1,
    kept: None,
    beside: false,
    priority: 0,
    name: 0,
};
