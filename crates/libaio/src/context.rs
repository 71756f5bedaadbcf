//! A context. It begins as the kernel's own, and goes over to a ring of ours when its reads have to wait.
//!
//! What the kernel's AIO does well is left to it: direct I/O is asynchronous there by nature, a buffered write or a read of what is in the
//! page cache is a copy in the call, and nothing of ours stands between. The one thing that it does badly is a buffered read of what is
//! not in the cache: `io_submit` waits for the device, for one request after the other. So each context is made by io_setup(2), and calls
//! go straight to the kernel. What is measured is how long `io_submit` takes. Once it is found to wait for reads, the context goes over:
//! from then on [`OnRing`] carries it.
//!
//! # Going over
//! The program holds the address of the kernel's live ring. Memory of ours takes its place there, with the same contents, in one step
//! (mremap(2)): whoever reads it without a call sees one or the other. The kernel knows the context still by that address: it reads its
//! number there, and nothing else. This is done only at a moment when no request is in flight, no other thread is in a call on the context but to
//! sleep (`sleepers.rs`), and no event is in the ring: a reader without a call may be about to take it, and would say so in the memory that has
//! just been replaced.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use baio_engine::SetupError;
use baio_shim::counters::Sheet;

use crate::abi::Iocb;
use crate::calls::{self, keeping_errno};
use crate::cold;
use crate::counted::{self, Follower};
use crate::live::{self, KernelRing};
use crate::on_ring::{OnRing, locked};
use crate::patience::Patience;
use crate::sleepers::{self, Sleepers};
use crate::users::Users;
use crate::wait::Wait;

pub(crate) struct Context {
    address: usize,
    /// What the program has asked for.
    requests: u32,
    /// Requests that the kernel has taken, and events that our calls have handed out, before it went over.
    submitted: AtomicU64,
    taken: AtomicU64,
    /// [`OPEN`] and its like.
    state: AtomicU8,
    /// Held while the kernel's live ring is looked at, so that it is there.
    looking: Mutex<()>,
    watch: cold::Watch,
    sleepers: Sleepers,
    follower: Mutex<Follower>,
    ring: OnceLock<Arc<OnRing>>,
}

/// The kernel carries it.
const OPEN: u8 = 0;
/// Somebody who was alone takes events out of the kernel's ring, or takes the context over: others wait before the door.
const CLOSED: u8 = 1;
/// It has been destroyed, or is about to be; or there was no memory for its live ring.
const GONE: u8 = 2;

/// Who carries a call.
pub(crate) enum Side<'a> {
    Kernel,
    Ring(&'a Arc<OnRing>),
}

impl Context {
    /// One that io_setup(2) has just made.
    pub(crate) fn new(address: usize, requests: u32) -> Context {
        Context {
            address,
            requests,
            submitted: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            state: AtomicU8::new(OPEN),
            looking: Mutex::default(),
            watch: cold::Watch::default(),
            sleepers: Sleepers::default(),
            follower: Mutex::default(),
            ring: OnceLock::new(),
        }
    }

    pub(crate) fn on_ring(&self) -> Option<&Arc<OnRing>> {
        self.ring.get()
    }

    /// Who carries the call of a thread that is counted in.
    pub(crate) fn side(&self) -> Side<'_> {
        let mut patience = Patience::default();
        loop {
            // SeqCst, here and in `closed`: either who closes it sees us counted in, or we see that it is closed.
            match self.state.load(Ordering::SeqCst) {
                CLOSED => {}
                _ => return Side::Kernel,
            }
            // Acquire, in `get`: the state stays closed then.
            if let Some(ring) = self.ring.get() {
                return Side::Ring(ring);
            }
            patience.wait();
        }
    }

    /// Does something while nobody else is in a call on the kernel's side, if nobody is; whether it is to stay closed then, that says.
    fn closed<T>(&self, users: &Users, what: impl FnOnce() -> (T, bool)) -> Option<T> {
        if !self.moves_on(CLOSED) {
            return None;
        }
        let told = (users.others() == 0).then(what);
        if !told.as_ref().is_some_and(|(_, stays)| *stays) {
            // SeqCst: who comes in sees what we did. Nobody else moves it from `CLOSED`.
            self.state.store(OPEN, Ordering::SeqCst);
        }
        told.map(|(told, _)| told)
    }

    /// Moves it on from where it is open.
    fn moves_on(&self, to: u8) -> bool {
        let told = self
            .state
            .compare_exchange(OPEN, to, Ordering::SeqCst, Ordering::Relaxed);
        told.is_ok()
    }

    /// `io_submit`.
    ///
    /// # Safety
    /// As for [`crate::io_submit`].
    pub(crate) unsafe fn submit(&self, users: &Users, count: c_long, list: *mut *mut Iocb) -> c_int {
        if self.watch.wants_ring() {
            keeping_errno(|| self.try_to_go_over(users, list));
        }
        match self.side() {
            // SAFETY: the caller's promise.
            Side::Kernel => unsafe { self.submit_to_kernel(count, list) },
            // SAFETY: the caller's promise.
            Side::Ring(ring) => keeping_errno(|| match unsafe { ring.submit(count, list) } {
                Ok(taken) => taken as c_int,
                Err(errno) => -errno.raw(),
            }),
        }
    }

    /// Nothing here may change `errno`, or be a place where a thread is cancelled.
    ///
    /// # Safety
    /// As for [`crate::io_submit`].
    unsafe fn submit_to_kernel(&self, count: c_long, list: *mut *mut Iocb) -> c_int {
        self.count(|follower, sheet, ring| follower.submits(sheet, ring, cold::requests_of(list, count)));
        let before = self.submitted.load(Ordering::Relaxed);
        let measures = self.watch.measures(before, u64::try_from(count).unwrap_or(0));
        let started = measures.then(Instant::now);
        // SAFETY: the caller's promise.
        let told = unsafe { calls::submit(self.address, count, list) };
        if let Ok(taken) = u64::try_from(told) {
            self.submitted.fetch_add(taken, Ordering::Relaxed);
            if let Some(started) = started {
                self.watch.took(started.elapsed(), list, taken);
            }
        }
        self.count(|follower, sheet, ring| follower.follow(sheet, ring, true));
        told
    }

    /// `io_getevents` on the kernel's side: by `ask`, where events have to be waited for. When the context goes over meanwhile, how many there
    /// are so far, and how long it has slept.
    ///
    /// # Safety
    /// As for [`crate::io_getevents`].
    pub(crate) unsafe fn events_of_kernel(
        &self,
        users: &Users,
        wait: &Wait,
        is_never: bool,
        ask: impl Fn(&Wait) -> c_int,
    ) -> Result<c_int, (usize, Duration)> {
        // Counted before they are handed out: their requests may be submitted again then.
        self.count(|follower, sheet, ring| follower.follow(sheet, ring, false));
        if is_never && self.kernel_has_none() {
            // So does libaio, whatever else it is asked for.
            return Ok(0);
        }
        let (least, most) = (u32::try_from(wait.least).ok(), u32::try_from(wait.most).ok());
        if let (Some(least), Some(most @ 1..), false) = (least, most, wait.events.is_null()) {
            // SAFETY: the caller's promise.
            let take = |ring: KernelRing| unsafe { ring.take(wait.events, least.max(1), most) };
            let taken = match least <= most && !self.sleepers.were_woken() {
                true => self.closed(users, || (self.kernel_ring().map(take), false)),
                false => None,
            };
            if let Some(Some(taken @ 1..)) = taken {
                self.taken.fetch_add(taken.into(), Ordering::Relaxed);
                return Ok(taken as c_int);
            }
        }
        // SAFETY: the caller's promise.
        let told = unsafe { self.ask(users, wait, is_never, ask) };
        self.count(|follower, sheet, ring| follower.follow(sheet, ring, false));
        told
    }

    /// # Safety
    /// As for [`crate::io_getevents`].
    unsafe fn ask(
        &self,
        users: &Users,
        wait: &Wait,
        is_never: bool,
        ask: impl Fn(&Wait) -> c_int,
    ) -> Result<c_int, (usize, Duration)> {
        let started = (!is_never && !wait.limit.is_null()).then(Instant::now);
        self.sleepers.come();
        let told = ask(wait);
        // Who submitted was counted in before; what he did before that has been done for who takes the event.
        let _ = users.others();
        let Ok(taken) = usize::try_from(told) else {
            self.sleepers.leave();
            return Ok(told);
        };
        self.taken.fetch_add(taken as u64, Ordering::Relaxed);
        // Counted first: who goes over looks at it when all have left.
        self.sleepers.leave();
        if !self.sleepers.were_woken() {
            return Ok(told);
        }
        // SAFETY: the kernel has just written so many.
        let own = unsafe { sleepers::without_wakes(wait.events, taken) };
        match own < taken && (own as c_long) < wait.least {
            true => Err((own, started.map_or(Duration::ZERO, |at| at.elapsed()))),
            false => Ok(own as c_int),
        }
    }

    /// Counts, where that is asked for.
    fn count(&self, what: impl FnOnce(&mut Follower, &Sheet, &KernelRing)) {
        if let Some(sheet) = counted::sheet() {
            keeping_errno(|| self.looked_at(|ring| what(&mut locked(&self.follower), sheet, &ring)));
        }
    }

    fn kernel_has_none(&self) -> bool {
        self.looked_at(|ring| ring.is_empty()).unwrap_or(false)
    }

    /// Looks at the kernel's live ring, if it is there.
    fn looked_at<T>(&self, look: impl FnOnce(KernelRing) -> T) -> Option<T> {
        let _looking = locked(&self.looking);
        self.kernel_ring().map(look)
    }

    /// The kernel's live ring, if it is there. It stays while the caller has closed the context, or has the lock of those who look.
    fn kernel_ring(&self) -> Option<KernelRing> {
        let is_there = self.state.load(Ordering::SeqCst) != GONE;
        // SAFETY: it goes only when neither is so, and the context is marked as gone.
        is_there.then(|| unsafe { KernelRing::at(self.address) })?
    }

    fn try_to_go_over(&self, users: &Users, list: *mut *mut Iocb) {
        if !self.watch.says_to_go(list) || !self.moves_on(CLOSED) {
            return;
        }
        // Who is counted in was so before it was closed, or waits before the door. So all others sleep, if so many do.
        let others = users.others();
        let went = others == self.sleepers.asleep() && self.goes_over(others, list);
        if !went {
            // Unless it is gone.
            let _ = self
                .state
                .compare_exchange(CLOSED, OPEN, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    fn goes_over(&self, sleepers: u32, list: *mut *mut Iocb) -> bool {
        let _looking = locked(&self.looking);
        let Some(ring) = self.kernel_ring() else { return false };
        if !self.is_quiet(&ring, sleepers > 0) {
            return false;
        }
        let wake = |wakes| {
            let sent = cold::requests_of(list, 1)
                .next()
                .map_or(0, |(_, first)| sleepers::wake(self.address, first.fd, wakes));
            self.submitted.fetch_add(sent, Ordering::Relaxed);
            sent > 0
        };
        if !self.sleepers.all_leave(wake) {
            self.watch.give_up();
            return false;
        }
        self.begin_ring(&ring)
    }

    /// It has just been made. Does as `BAIO_LIBAIO` says: `uring` for a ring from the start, `kernel` for none.
    pub(crate) fn choose(&self, users: &Users) {
        if let Some(sheet) = counted::sheet() {
            sheet.context(false);
        }
        explain(self.requests, &Carrier::Kernel);
        match std::env::var_os("BAIO_LIBAIO") {
            Some(asked) if asked == "uring" => {
                self.watch.wish();
                self.try_to_go_over(users, std::ptr::null_mut());
            }
            Some(asked) if asked == "kernel" => self.watch.give_up(),
            _ => {}
        }
    }

    /// Is nothing in flight and no event there, and does nobody take events without a call, if there will be any?
    fn is_quiet(&self, ring: &KernelRing, will_be: bool) -> bool {
        let nr = u64::from(ring.nr());
        let (head, tail) = ring.ends();
        let nothing_in_flight = self.submitted.load(Ordering::Relaxed) % nr == u64::from(tail);
        let nobody_takes = self.taken.load(Ordering::Relaxed) % nr == u64::from(head);
        nothing_in_flight && head == tail && (nobody_takes || !will_be)
    }

    fn begin_ring(&self, ring: &KernelRing) -> bool {
        if let Some(sheet) = counted::sheet() {
            locked(&self.follower).follow(sheet, ring, false);
        }
        // SAFETY: nothing is in flight and nobody else is inside.
        match unsafe { OnRing::over(self.address, self.requests) } {
            Ok(ring) => {
                let _ = self.ring.set(ring);
                if let Some(sheet) = counted::sheet() {
                    sheet.context_goes_over();
                }
                explain(self.requests, &Carrier::Ring);
                true
            }
            Err(why) => {
                self.watch.give_up();
                if !live::is_mapped(self.address) {
                    // Nobody looks there any more, and the kernel says that there is no such context.
                    self.state.store(GONE, Ordering::SeqCst);
                }
                explain(self.requests, &Carrier::KernelOnly(&why));
                false
            }
        }
    }

    /// `io_destroy`: waits for what is in flight, and until `is_alone` says that nobody else is in here.
    pub(crate) fn end(&self, is_alone: impl Fn() -> bool) -> c_int {
        // Who has it closed is done soon, or has gone over.
        let mut patience = Patience::default();
        while self.ring.get().is_none() && self.state.load(Ordering::SeqCst) != GONE && !self.moves_on(GONE) {
            patience.wait();
        }
        // Who looks has seen that it is there.
        drop(locked(&self.looking));
        if let Some(ring) = self.ring.get() {
            ring.end(is_alone);
        }
        // It takes the memory away too, whosever it is by now.
        calls::destroy(self.address)
    }
}

/// What carries a context.
enum Carrier<'a> {
    Kernel,
    Ring,
    /// And why it is to stay so.
    KernelOnly(&'a SetupError),
}

/// Says on standard error what carries a context from here on, if `BAIO_EXPLAIN=1` asks for it.
fn explain(count: u32, carrier: &Carrier<'_>) {
    if std::env::var_os("BAIO_EXPLAIN").is_none_or(|asked| asked != "1") {
        return;
    }
    let what = match carrier {
        Carrier::Kernel => "the kernel's AIO, and io_uring when its reads wait".to_owned(),
        Carrier::Ring => "its reads wait: io_uring".to_owned(),
        Carrier::KernelOnly(why) => format!("the kernel's own io_* calls; {why}"),
    };
    let text = format!("baio libaio: a context for {count} requests: {what}\n");
    // One write, so that nothing of others comes between; `eprintln` may be cancelled halfway.
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
}
