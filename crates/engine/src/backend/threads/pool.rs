//! A bounded pool of worker threads, for what would block.
//!
//! ```text
//!   owner                      one lock                         workers
//!   batch of jobs  ──────►  queue per class, idle seats  ──────►  run, one system call each
//!   results        ◄──────  finished                     ◄──────  report and take the next job
//! ```
//!
//! - **Hand-over.** The owner takes the lock once for a batch and once to collect. A worker takes it once per job: it
//!   reports, and takes its next job, at the same time. While jobs wait, no worker ever sleeps; one that must be woken gets
//!   its job laid on its seat, so it need not look for it.
//! - **Size.** A worker is started when a job waits that may run and nobody is idle; it starts the next one if there is
//!   still more. Idle ones leave after [`IDLE`], except the last: so there is always somebody to run a job, and a thread
//!   that cannot be made (RLIMIT_NPROC) only keeps the pool smaller. Who was idle last is woken first, so that the others
//!   can leave.
//! - **Awake ones first.** Beyond the first [`BRISK`], nobody is woken or made while fewer jobs wait than run: one of those
//!   that run is about to end. That holds for [`PATIENCE`] at most. A job that has waited for longer gets a worker of its own:
//!   those that run may be stuck. The owner looks when that is due ([`Pool::next_look`]); it need not for any other reason.
//! - **Rations.** Each class of jobs has its limit; together they bound the threads. Syncs that are stuck do not keep reads
//!   from running.
//! - **Bell.** The owner says for how many results it sleeps; the worker that makes them complete rings, once. The bell is an
//!   event fd that is watched edge-triggered and never read.
//!
//! Who owns what: a job holds raw pointers into memory of its slot, and a descriptor of its slot's file. The slot keeps both
//! until the job is reported. When an engine ends while a worker is stuck in the kernel, the engine leaks its slots and the
//! pool lets go of the thread: whatever that still touches is leaked, or shared by `Arc`.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::route::{CLASSES, Class};
use super::streams;
use crate::error::{Errno, SetupError};
use crate::policy::Time;
use crate::request::RequestId;
use crate::sys::{self, Iteration};

/// An idle worker waits so long for a job.
pub(crate) const IDLE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 2000 });

/// Up to here a job that waits gets a worker at once. Beyond, one job is left waiting for each that runs: so a worker that
/// ends one finds the next, and need not sleep and be woken for it, which costs more than a read does.
const BRISK: u32 = 16;

/// A job that has waited for so long for others to end does not count on them any more. Shorter, and on a busy machine
/// workers would be made because those that there are have no processor.
const PATIENCE: Duration = Duration::from_millis(10);

/// Workers only make system calls, and run no signal handlers.
const STACK: usize = 128 << 10;

/// After a thread could not be made, so many jobs pass before the next attempt.
const PAUSE: u32 = 1000;

/// One iteration for a worker. Handing over and reporting both pass through the pool's lock.
pub(crate) struct Job {
    pub(crate) id: RequestId,
    pub(crate) iteration: Iteration,
    pub(crate) class: Class,
}

/// Threads at most, per class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) wide: u32,
    pub(crate) narrow: u32,
    pub(crate) stream: u32,
}

impl Limits {
    fn by_class(self) -> [u32; CLASSES] {
        // In the order of `Class`. None may be 0: its jobs would never run.
        [self.wide, self.narrow, self.stream].map(|limit| limit.max(1))
    }
}

/// When a worker is to ring the bell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ring {
    /// The owner is awake.
    Never,
    /// It sleeps until it holds so many results; not at all when it does.
    When(usize),
    /// It may be asleep elsewhere: at the next result.
    Next,
}

/// The owner's side.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Seats to be woken when the lock is released; kept for its room.
    wake: Vec<Arc<Seat>>,
    /// When a job that waits now will have waited for too long.
    next_look: Option<Time>,
    disowned: bool,
}

struct Shared {
    name: &'static str,
    state: Mutex<Inside>,
    /// A worker has left.
    left: Condvar,
    bell: OwnedFd,
}

struct Inside {
    queues: [VecDeque<Waiting>; CLASSES],
    running: [u32; CLASSES],
    limits: [u32; CLASSES],
    /// Jobs ever queued: of two that wait, the older goes first, whatever its class.
    sequence: u64,
    workers: u32,
    /// Last in, first out. While anybody is here, no job waits that may run.
    idle: Vec<Arc<Seat>>,
    finished: Vec<(RequestId, i32)>,
    /// The owner sleeps until so many have finished; 0 while it is awake.
    ring_at: usize,
    closing: bool,
    refused: Option<Errno>,
    /// Attempts to make a thread that are skipped, after one failed.
    pause: u32,
    workers_max: u32,
    /// A worker found that no more can be made: the owner looks after the jobs that wait.
    put_back: bool,
    /// [`PATIENCE`], but for tests.
    patience: Duration,
    /// Whether a thread is refused, as by a system at its limit.
    #[cfg(test)]
    refuses: fn() -> bool,
}

/// A job in a queue.
struct Waiting {
    sequence: u64,
    since: Time,
    job: Job,
}

/// Where an idle worker sits, and where its next job is laid.
struct Seat {
    job: Mutex<Option<Job>>,
    thread: Thread,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding it; and no state in here is ever half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Starts the pool with its first worker: threads can be made here.
    pub(crate) fn new(name: &'static str, slots: usize, limits: Limits) -> Result<Pool, SetupError> {
        let limits = limits.by_class();
        let total = limits.iter().sum::<u32>() as usize;
        let bell = baio_process::descriptor::event().map_err(|errno| {
            SetupError::new("make a bell for worker threads", "an event fd".into(), errno.into())
                .cure("raise RLIMIT_NOFILE (`ulimit -n`)")
        })?;
        let state = Inside {
            queues: std::array::from_fn(|_| VecDeque::with_capacity(slots)),
            running: [0; CLASSES],
            limits,
            sequence: 0,
            workers: 1,
            idle: Vec::with_capacity(total),
            finished: Vec::with_capacity(slots),
            ring_at: 0,
            closing: false,
            refused: None,
            pause: 0,
            workers_max: 1,
            put_back: false,
            patience: PATIENCE,
            #[cfg(test)]
            refuses: || false,
        };
        let shared = Arc::new(Shared {
            name,
            state: Mutex::new(state),
            left: Condvar::new(),
            bell,
        });
        spawn(&shared, None).map_err(|errno| {
            SetupError::new("start a worker thread", name.into(), errno)
                .cure("raise RLIMIT_NPROC (`ulimit -u`), or the pids limit of the container")
        })?;
        let wake = Vec::with_capacity(total);
        Ok(Pool {
            shared,
            wake,
            next_look: None,
            disowned: false,
        })
    }

    /// Hands over a batch: one lock, and a wake-up for each job that an idle worker can take.
    pub(crate) fn submit(&mut self, batch: &mut Vec<Job>) {
        if batch.is_empty() {
            return;
        }
        let since = sys::monotonic();
        let mut state = lock(&self.shared.state);
        for job in batch.drain(..) {
            self.wake.extend(state.give(job, since));
        }
        let recruit = state.recruit();
        self.next_look = state.next_look(since);
        drop(state);
        self.call_in(recruit);
    }

    /// Takes what has finished, and says when the bell is to be rung from now on. Jobs that have waited for too long get
    /// workers.
    pub(crate) fn collect(&mut self, into: &mut Vec<(RequestId, i32)>, ring: Ring) {
        let mut state = lock(&self.shared.state);
        into.append(&mut state.finished);
        state.ring_at = match ring {
            Ring::Never => 0,
            Ring::When(want) => want.saturating_sub(into.len()),
            Ring::Next => 1,
        };
        if !std::mem::take(&mut state.put_back) && self.next_look.is_none() {
            return;
        }
        let now = sys::monotonic();
        while let Some(seat) = state.seat_next() {
            self.wake.push(seat);
        }
        let recruit = state.recruit();
        self.next_look = state.next_look(now);
        drop(state);
        self.call_in(recruit);
    }

    /// When the owner has to collect, although nothing may have finished.
    pub(crate) fn next_look(&self) -> Option<Time> {
        self.next_look
    }

    /// Wakes those who have been given a job, and makes one more worker.
    fn call_in(&mut self, recruit: Option<Job>) {
        for seat in self.wake.drain(..) {
            seat.thread.unpark();
        }
        if !self.shared.start(recruit) {
            // Its job waits again. Those that run may be stuck, and then nobody else comes back for it.
            self.next_look = lock(&self.shared.state).next_look(sys::monotonic());
        }
    }

    /// Takes a job out of its queue; false when it runs, or has run.
    pub(crate) fn cancel(&mut self, id: RequestId) -> bool {
        let mut state = lock(&self.shared.state);
        for queue in &mut state.queues {
            if let Some(at) = queue.iter().position(|waiting| waiting.job.id == id) {
                queue.remove(at);
                if state.queues.iter().all(VecDeque::is_empty) {
                    self.next_look = None;
                }
                return true;
            }
        }
        false
    }

    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.shared.bell
    }

    /// In a forked child there are no workers, and the lock may be held by one of the parent's: for ever.
    pub(crate) fn disown(&mut self) {
        self.disowned = true;
    }

    /// Why the pool is smaller than it might be.
    pub(crate) fn refused(&self) -> Option<Errno> {
        lock(&self.shared.state).refused
    }

    /// Threads at present, and at most so far.
    #[cfg(test)]
    fn workers(&self) -> (u32, u32) {
        let state = lock(&self.shared.state);
        (state.workers, state.workers_max)
    }
}

impl Drop for Pool {
    /// Idle workers leave, and are waited for. Busy ones are let go of: they leave when the kernel lets go of them.
    fn drop(&mut self) {
        /// Generous for threads that have nothing left to do.
        const FAREWELL: Duration = Duration::from_secs(1);
        if self.disowned {
            return;
        }
        let until = Instant::now() + FAREWELL;
        let mut state = lock(&self.shared.state);
        state.closing = true;
        state.queues.iter_mut().for_each(VecDeque::clear);
        for seat in state.idle.drain(..) {
            seat.thread.unpark();
        }
        while state.workers > state.running.iter().sum() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.left.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Inside {
    /// Lays a job on an idle worker's seat, who is then to be woken; else queues it.
    fn give(&mut self, job: Job, since: Time) -> Option<Arc<Seat>> {
        self.sequence += 1;
        let sequence = self.sequence;
        self.queues[job.class as usize].push_back(Waiting { sequence, since, job });
        self.seat_next()
    }

    /// Lays the next job that may run on an idle worker's seat.
    fn seat_next(&mut self) -> Option<Arc<Seat>> {
        if self.idle.is_empty() {
            return None;
        }
        let job = self.next(Inside::wants_one_more)?;
        let seat = self.idle.pop()?;
        *lock(&seat.job) = Some(job);
        Some(seat)
    }

    /// The oldest job of a class that may run now.
    fn next(&mut self, may_run: fn(&Inside, usize) -> bool) -> Option<Job> {
        let front = |class: usize| self.queues[class].front().map(|first| (first.sequence, class));
        let runnable = (0..CLASSES).filter(|&class| may_run(self, class));
        let (_, class) = runnable.filter_map(front).min()?;
        self.running[class] += 1;
        self.queues[class].pop_front().map(|first| first.job)
    }

    /// May somebody who is awake anyway go on with this class?
    fn has_room(&self, class: usize) -> bool {
        self.running[class] < self.limits[class]
    }

    /// Is it worth waking or making somebody for this class? Beyond [`BRISK`], only while more wait than run, or when one
    /// has waited for too long.
    fn wants_one_more(&self, class: usize) -> bool {
        let waiting = self.queues[class].len() as u32;
        let overdue = || self.due(class).is_some_and(|at| at <= sys::monotonic());
        self.has_room(class) && (self.running[class] < BRISK || self.running[class] < waiting || overdue())
    }

    /// When the oldest job of this class will have waited for too long.
    fn due(&self, class: usize) -> Option<Time> {
        let first = self.queues[class].front()?;
        Some(first.since.after(self.patience))
    }

    /// When somebody has to look again after jobs that wait although they may run. Just now is too early: the worker that
    /// was made last makes the next one, and none can be made where the system refuses.
    fn next_look(&self, now: Time) -> Option<Time> {
        let held_back = (0..CLASSES).filter(|&class| self.has_room(class));
        let due = held_back.filter_map(|class| self.due(class)).min()?;
        Some(if due > now { due } else { now.after(self.patience) })
    }

    /// A job for a worker that does not exist yet, and will.
    fn recruit(&mut self) -> Option<Job> {
        let full = self.workers >= self.limits.iter().sum();
        if full || self.closing || !self.idle.is_empty() {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let job = self.next(Inside::wants_one_more)?;
        self.workers += 1;
        self.workers_max = self.workers_max.max(self.workers);
        Some(job)
    }

    /// Should the owner be woken?
    fn must_ring(&mut self) -> bool {
        let enough = self.ring_at > 0 && self.finished.len() >= self.ring_at;
        if enough {
            self.ring_at = 0;
        }
        enough
    }
}

/// What a worker does after a job.
enum Next {
    Run(Job),
    Sit,
    Leave,
}

impl Shared {
    /// Makes the worker that `recruit` counted. If that fails, its job goes to whoever there is: false.
    fn start(self: &Arc<Shared>, recruit: Option<Job>) -> bool {
        let Some(job) = recruit else { return true };
        let (id, iteration, class) = (job.id, job.iteration, job.class);
        let Err(errno) = spawn(self, Some(job)) else {
            return true;
        };
        let mut state = lock(&self.state);
        state.workers -= 1;
        state.running[class as usize] -= 1;
        state.refused = Some(errno);
        state.pause = PAUSE;
        // Somebody may have become idle meanwhile; else somebody is busy, and comes back for it unless it is stuck.
        let seat = state.give(Job { id, iteration, class }, sys::monotonic());
        drop(state);
        if let Some(seat) = seat {
            seat.thread.unpark();
        }
        false
    }

    /// Tells the owner, who may sleep.
    fn ring(&self) {
        // It cannot be full: nobody rings 2^64 times.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// The whole life of a worker.
    fn work(self: &Arc<Shared>, first: Option<Job>) {
        let seat = Arc::new(Seat {
            job: Mutex::new(None),
            thread: thread::current(),
        });
        let mut next = match first {
            Some(job) => {
                // Is there more than this one can do? Then it makes the next one; the owner need not.
                let recruit = lock(&self.state).recruit();
                if !self.start(recruit) {
                    lock(&self.state).put_back = true;
                    self.ring();
                }
                Next::Run(job)
            }
            None => self.sit_down(&seat, &mut lock(&self.state)),
        };
        loop {
            next = match next {
                Next::Run(job) => self.run(&seat, &job),
                Next::Sit => self.wait(&seat),
                Next::Leave => return,
            }
        }
    }

    fn run(&self, seat: &Arc<Seat>, job: &Job) -> Next {
        let raw = match job.class {
            // SAFETY: the slot owns the memory until the report below.
            Class::Stream => unsafe { streams::run_if_ready(&job.iteration) },
            // SAFETY: as above.
            Class::Wide | Class::Narrow => unsafe { sys::execute(&job.iteration) },
        };
        let mut state = lock(&self.state);
        state.running[job.class as usize] -= 1;
        state.finished.push((job.id, raw));
        let ring = state.must_ring();
        let next = self.sit_down(seat, &mut state);
        drop(state);
        if ring {
            self.ring();
        }
        next
    }

    /// Takes the next job, or takes a seat.
    fn sit_down(&self, seat: &Arc<Seat>, state: &mut Inside) -> Next {
        if state.closing {
            return self.leave(state);
        }
        if let Some(job) = state.next(Inside::has_room) {
            return Next::Run(job);
        }
        state.idle.push(Arc::clone(seat));
        Next::Sit
    }

    /// Waits on its seat for a job, for the end of the pool, or until it has waited for long enough.
    fn wait(&self, seat: &Arc<Seat>) -> Next {
        let mut last = false;
        loop {
            if last {
                thread::park();
            } else {
                thread::park_timeout(IDLE);
            }
            if let Some(job) = lock(&seat.job).take() {
                return Next::Run(job);
            }
            let mut state = lock(&self.state);
            if state.closing {
                return self.leave(&mut state);
            }
            // Not there: a job was laid on the seat just now.
            if let Some(at) = state.idle.iter().position(|other| Arc::ptr_eq(other, seat)) {
                last = state.workers == 1;
                if !last {
                    state.idle.remove(at);
                    return self.leave(&mut state);
                }
            }
        }
    }

    fn leave(&self, state: &mut Inside) -> Next {
        state.workers -= 1;
        self.left.notify_all();
        Next::Leave
    }
}

/// Makes a thread. No signal reaches it: handlers belong to the program, and none of them fits on its stack.
fn spawn(shared: &Arc<Shared>, first: Option<Job>) -> Result<(), Errno> {
    #[cfg(test)]
    if (lock(&shared.state).refuses)() {
        return Err(Errno::EAGAIN);
    }
    let worker = Arc::clone(shared);
    let thread = baio_process::thread::named(shared.name).stack_bytes(STACK);
    let made = thread.start(move || worker.work(first));
    made.map(drop).map_err(|error| Errno::of(&error))
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
