//! The thread that moves results when nobody calls.
//!
//! A program may wait for an event fd, or look at the live ring in memory, and make no call. Then this thread must move results. But while
//! the program is in `io_getevents` a second thread would only be in its way. So the helper watches, and goes on duty
//!
//! - at once when a request that names an event fd is in flight, and nobody is in `io_getevents`,
//! - when requests are in flight, results have arrived, and no call has come since it last looked.
//!
//! It goes off duty when it wakes and finds a thread in `io_getevents`, or finds several times in a row that others have moved the results that
//! it was woken for: `io_submit` moves those that end at once. It looks after a millisecond at first, then after twice as long
//! each time that it was not needed. With nothing in flight it sleeps until the next request. It is started with the first request.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use baio_engine::Errno;
use rustix::thread::futex;

/// How long an event fd is kept that no request names.
pub(crate) const KEPT: Duration = Duration::from_millis(100);

/// How long it watches before it looks: at first, and at most.
const FIRST: Duration = Duration::from_millis(1);
const LAST: Duration = Duration::from_millis(128);
/// It runs only what is in this library.
const STACK_BYTES: usize = 128 << 10;

/// Wakes without results, on end, after which it is in the way.
const IDLE_WAKES: u32 = 4;

const ABSENT: u8 = 0;
const THERE: u8 = 1;

/// For what it moves results.
pub(crate) trait Helped: Send + Sync + 'static {
    fn helper(&self) -> &Helper;

    /// Nothing more comes.
    fn is_over(&self) -> bool;

    /// Requests in flight.
    fn requests(&self) -> u32;

    /// Of these, how many have an event fd to signal.
    fn with_event_fds(&self) -> u32;

    /// Moves results while nobody waits, and says how many; none when somebody waits, who will.
    fn move_results(&self) -> Option<u32>;

    /// Sleeps until something arrives.
    fn sleep_for_arrivals(&self) -> Result<(), Errno>;

    /// The uses of event fds so far, if any are kept that no request names.
    fn kept_event_fds(&self) -> Option<u32>;

    /// Gives those back that have not been used since.
    fn give_back_event_fds(&self, uses: u32);
}

/// What others tell the helper.
#[derive(Default)]
pub(crate) struct Helper {
    state: AtomicU8,
    /// It moves results.
    duty: AtomicBool,
    /// It sleeps until it is told of a request.
    asleep: AtomicBool,
    /// Calls of `io_getevents`.
    calls: AtomicU32,
    /// What it sleeps on while it watches; moved to wake it.
    word: AtomicU32,
}

impl Helper {
    /// Requests are in flight. On duty, if they name event fds.
    pub(crate) fn be_there(&self, context: &Weak<impl Helped>, on_duty: bool) {
        // SeqCst, here and in `rest`: either it sees the request, which was counted before, or we see that it sleeps.
        let wake_up = self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst);
        let to_duty = on_duty && !self.duty.swap(true, Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ABSENT {
            self.make(context);
        } else if wake_up || to_duty {
            self.wake();
        }
    }

    /// Makes it, if it is not there.
    pub(crate) fn exist(&self, context: &Weak<impl Helped>) {
        if self.state.load(Ordering::Relaxed) == ABSENT {
            self.make(context);
        }
    }

    /// Somebody is in `io_getevents`.
    pub(crate) fn called(&self) {
        // Relaxed: a hint about who does the work.
        self.calls
            .store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The context is gone.
    pub(crate) fn go(&self) {
        self.wake();
    }

    fn wake(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }

    fn make(&self, context: &Weak<impl Helped>) {
        let mine = self
            .state
            .compare_exchange(ABSENT, THERE, Ordering::SeqCst, Ordering::Relaxed);
        let Some(context) = mine.ok().and_then(|_| context.upgrade()) else {
            return;
        };
        let thread = baio_process::thread::named("baio-libaio").stack_bytes(STACK_BYTES);
        let made = thread.start(move || run(&*context));
        if made.is_err() {
            // Without it programs have to call; the next request tries again.
            self.state.store(ABSENT, Ordering::SeqCst);
        }
    }

    /// Sleeps for so long, or until somebody wakes it since `word` was read.
    fn rest(&self, word: u32, time: Option<Duration>) {
        let time = time.and_then(|time| futex::Timespec::try_from(time).ok());
        let _ = futex::wait(&self.word, futex::Flags::PRIVATE, word, time.as_ref());
    }
}

fn run(context: &impl Helped) {
    let helper = context.helper();
    let mut interval = FIRST;
    let mut idle_wakes = 0;
    let mut calls = helper.calls.load(Ordering::Relaxed);
    while !context.is_over() {
        let word = helper.word.load(Ordering::SeqCst);
        // Off duty before it looks: a thread that leaves `io_getevents` after that finds it off duty, and wakes it.
        if helper.duty.swap(false, Ordering::SeqCst) {
            let stays = match context.move_results() {
                None => {
                    interval = (interval * 2).min(LAST);
                    false
                }
                Some(moved) => {
                    idle_wakes = if moved > 0 { 0 } else { idle_wakes + 1 };
                    // SeqCst: who submits counts its requests before it looks whether somebody is on duty.
                    idle_wakes < IDLE_WAKES || context.with_event_fds() > 0
                }
            };
            // Once more: the look may have taken the last word of `end`, which comes after the context is dead.
            if stays && !context.is_over() {
                helper.duty.store(true, Ordering::SeqCst);
                // Whatever it says, the next look tells.
                let _ = context.sleep_for_arrivals();
            }
            continue;
        }
        if context.requests() == 0 {
            let kept = context.kept_event_fds();
            helper.asleep.store(true, Ordering::SeqCst);
            // SeqCst: see `be_there`.
            if context.requests() == 0 && !context.is_over() {
                helper.rest(word, kept.map(|_| KEPT));
            }
            helper.asleep.store(false, Ordering::SeqCst);
            if let Some(uses) = kept {
                context.give_back_event_fds(uses);
            }
            continue;
        }
        helper.rest(word, Some(interval));
        let now = helper.calls.load(Ordering::Relaxed);
        if now == calls && context.move_results().is_some_and(|moved| moved > 0) {
            idle_wakes = 0;
            helper.duty.store(true, Ordering::SeqCst);
        } else {
            interval = (interval * 2).min(LAST);
        }
        calls = now;
    }
}
