//! The engine: what is common to all backends, so that all give the same answers.
//!
//! A request runs as iterations (seed 000: "we complete as much IO as we can in a non-blocking fashion, and then continue
//! the remaining part"). The backend runs one and reports a raw result; [`Engine`] decides what it means: done, continue
//! where it stopped, try again, or fail. Order (fences, writes behind an abandoned one), deadlines and the memory of
//! failed syncs live here too.

mod choice;
mod ending;
mod home;
mod leftovers;
mod line;
mod lost;
mod order;
mod syncs;
mod turn;

pub use choice::{Choice, EngineOptions, Rejected};

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::backend::router::Router;
use crate::backend::sim::Sim;
use crate::backend::{Attach, BATCH_MAX, Backend, Done, Doorbell, Explain};
use crate::completion::{Completion, Notice};
use crate::error::{Errno, Error, SetupError};
use crate::file::File;
use crate::fork::ForkGuard;
use crate::memory::{Arena, Buffer, Memory};
use crate::policy::{Caching, Time};
use crate::request::{Op, Request, RequestId, Wait};
use crate::signals::{Posted, Signals};
use crate::slot::{By, Slot, Slots, State};
use crate::stats::{Measures, Stats};
use crate::timers::Timers;
use baio_process::signals;
use home::Home;
use leftovers::Leftovers;
use line::Line;

/// Fewest and most requests that go off together while others run. io_uring rings a device's doorbell once for more than two
/// (`IO_PLUG_THRESHOLD`, io_uring/io_uring.c), else for each. Larger parts cost less CPU and let the device run empty sooner.
const PART_MIN: usize = 4;
const PART_MAX: usize = 32;

/// Runs requests. Used by the thread that started it; by any, one after the other, if it was started so ([`Affinity`](crate::Affinity)). Never
/// by two at once: it is `Send` and not `Sync`.
pub struct Engine {
    // Declared before the backend and leaked by `drop` when a device is stuck: see `shutdown`.
    slots: ManuallyDrop<Slots>,
    backend: Router,
    /// Was the size of files limited when it started (`ulimit -f`)? Then a write in this thread may raise SIGXFSZ, which must not be the
    /// program's end.
    files_are_limited: bool,
    backend_name: &'static str,
    arena: Arc<Arena>,
    reserved_slots: usize,
    /// Requests that a backend has yet to take, in order.
    queue: Line,
    /// Requests that wait for writes to end.
    held: Line,
    /// Requests that wait for another sync of their file.
    awaiting_sync: Line,
    /// Abandoned writes that may still land.
    leftovers: Leftovers,
    /// The one sync of each file that runs or is about to.
    syncing: Vec<(File, RequestId)>,
    /// Syncs that another one has just answered; kept for its room.
    answered: Vec<(RequestId, Result<u32, Error>)>,
    /// Requests that wait for no write any more; kept for its room.
    freed: Vec<RequestId>,
    /// Completions that the caller has taken.
    taken: u64,
    /// Completions that the caller has yet to take.
    ready: VecDeque<Completion>,
    done: Done,
    now: Time,
    /// The last turn did not read the clock.
    now_is_old: bool,
    sequence: u64,
    /// Of the requests in the table that have one.
    deadlines: Timers,
    /// Completions of the last turn that no request has followed yet.
    refill: usize,
    /// An outside loop is about to sleep, or sleeps, on our descriptor.
    outside: bool,
    gains_by_trial: bool,
    /// Its backend's word ([`Backend::loses_orphans`]).
    loses_orphans: bool,
    /// A backend is starting; still so in a drop if it has panicked.
    is_starting: bool,
    /// Something that may be worth a trial has been queued since the last.
    may_try: bool,
    /// Is the result of an accept a descriptor that the kernel has just made for it? The number that a backend from outside
    /// reports may be anybody's.
    adopts: bool,
    trial_turns: u64,
    /// Turns that had nothing to do.
    idle_turns: u64,
    rejected: Vec<Rejected>,
    /// The first file whose durable writes were followed by a sync, and why: for `explain`.
    flag_not_kept: Option<String>,
    /// `shutdown` has found that what is left does not end.
    is_stuck: bool,
    fork: ForkGuard,
    posted: Arc<Posted>,
    /// Signals taken from `posted`; kept for its room.
    signalled: Vec<(RequestId, u32)>,
    stats: Stats,
    measures: Measures,
    home: Home,
}

impl Engine {
    /// Starts an engine on the backend that the configuration names, or on the best that works.
    ///
    /// # Errors
    /// What refused to start, and the cure.
    pub fn new(config: &EngineOptions) -> Result<Engine, SetupError> {
        config.check()?;
        let mut rejected = Vec::new();
        let backend = config.backend.start(config, &mut rejected)?;
        let mut engine = Engine::with_backend(backend, config)?;
        engine.rejected = rejected;
        engine.adopts = true;
        Ok(engine)
    }

    /// Starts an engine on a simulation.
    ///
    /// # Errors
    /// When memory for the arena cannot be mapped.
    pub fn simulated(sim: Sim, config: &EngineOptions) -> Result<Engine, SetupError> {
        Engine::with_backend(Box::new(sim), config)
    }

    /// Starts an engine on any backend. One from outside cannot accept connections: that ends as `EOPNOTSUPP`, whatever it
    /// reports.
    ///
    /// # Errors
    /// When memory for the arena cannot be mapped.
    pub fn with_backend(mut backend: Box<dyn Backend>, config: &EngineOptions) -> Result<Engine, SetupError> {
        config.check()?;
        let arena = Arena::new(config.arena_bytes)?;
        if config.register_arena {
            // A refusal (RLIMIT_MEMLOCK) costs speed only, and `explain` tells it.
            let _ = backend.attach(Attach::Arena(&arena));
        }
        let slots = config.slots.max(1);
        let name = backend.explain().backend;
        Ok(Engine {
            slots: ManuallyDrop::new(Slots::new(slots)),
            files_are_limited: signals::files_are_limited(),
            now: backend.now(),
            now_is_old: false,
            refill: 0,
            outside: false,
            gains_by_trial: backend.gains_by_trial(),
            loses_orphans: backend.loses_orphans(),
            is_starting: false,
            may_try: false,
            adopts: false,
            trial_turns: 0,
            idle_turns: 0,
            backend_name: name,
            backend: Router::new(backend),
            arena,
            taken: 0,
            reserved_slots: config.reserved_slots.min(slots / 2) as usize,
            queue: Line::with_capacity(slots as usize),
            held: Line::default(),
            awaiting_sync: Line::default(),
            leftovers: Leftovers::default(),
            syncing: Vec::new(),
            answered: Vec::new(),
            freed: Vec::new(),
            ready: VecDeque::with_capacity(slots as usize),
            done: Done {
                raw: Vec::with_capacity(slots as usize),
                rang: false,
            },
            sequence: 0,
            deadlines: Timers::new(slots as usize),
            rejected: Vec::new(),
            flag_not_kept: None,
            is_stuck: false,
            fork: ForkGuard::new()?,
            posted: Arc::default(),
            signalled: Vec::new(),
            stats: Stats::default(),
            measures: Measures::new(),
            home: Home::of(config.affinity),
        })
    }

    /// Adds a backend for foreign files that the engine's own does not know: it serves those of which it says so
    /// ([`Backend::serves`]), in the same queue, beside the engine's own and whichever were added before.
    ///
    /// `make` is given the bell that the helper shall ring, from whatever thread, each time *after* a result is there for its `turn`;
    /// its own [`Backend::doorbell`] must be that bell. It is never asked to sleep. Requests that were submitted before stay where
    /// they are.
    ///
    /// # Errors
    /// What `make` said; `EINVAL` for a helper with a bell of its own, and for more than fifteen.
    pub fn add_helper(
        &mut self,
        make: impl FnOnce(Doorbell) -> Result<Box<dyn Backend>, SetupError>,
    ) -> Result<(), SetupError> {
        self.backend.add(make)
    }

    /// The arena that buffers come from.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// A buffer of `len` bytes; `None` when the arena is used up.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Option<Buffer> {
        self.arena.buffer(len)
    }

    /// Queues a request. It reaches the kernel at the next [`Engine::turn`], or when [`BATCH_MAX`] have gathered.
    ///
    /// Whatever is wrong with the request is told by its completion.
    ///
    /// # Errors
    /// The request itself, when every slot is taken: take completions, turn, and try again.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, Request> {
        self.submit_leaving(self.reserved_slots, request)
    }

    /// The same for requests that others wait for (write-back, log, metadata): may use the reserved slots.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn submit_reserved(&mut self, request: Request) -> Result<RequestId, Request> {
        self.submit_leaving(0, request)
    }

    fn submit_leaving(&mut self, left: usize, request: Request) -> Result<RequestId, Request> {
        // Completions not yet taken count too: else a caller who never takes any would pile them up without bound.
        if self.slots.in_use() + self.ready.len() + left >= self.slots.capacity() {
            return Err(request);
        }
        self.accept(request)
    }

    /// Gives a request a slot, whatever the caller has yet to take.
    fn accept(&mut self, mut request: Request) -> Result<RequestId, Request> {
        // Counted first: a failure in another thread that is not in the count is seen by who looks for one behind it.
        let failures = request.file.as_ref().map_or(0, File::failures);
        let fault = self.fault_of(&mut request);
        let deadline = request.policy.deadline;
        // Nobody asks a helper in a child of its process.
        let route = match fault {
            None => self.backend.route(request.file.as_ref()),
            Some(_) => By::PRIMARY,
        };
        let id = self.slots.insert(request, self.sequence + 1)?;
        if let Some(slot) = self.slots.get_mut(id) {
            (slot.route, slot.failures) = (route, failures);
        }
        self.sequence += 1;
        self.is_stuck = false;
        if let Some(at) = deadline {
            self.deadlines.set(id, at);
        }
        self.stats.requests += 1;
        self.stats.in_flight_max = self.stats.in_flight_max.max(self.slots.in_use() as u64);
        let refused = fault.is_some();
        match fault {
            Some(Err(error)) => self.finish(id, Err(error)),
            Some(Ok(())) => self.finish(id, Ok(0)),
            None => self.enqueue(id),
        }
        self.refill = self.refill.saturating_sub(1);
        // What is refused adds nothing to the queue; in a forked child, where all is, the queue is the parent's.
        if !refused && self.startable() >= self.batch_limit() {
            let begun = self.start_queued();
            self.flush(begun);
        }
        Ok(id)
    }

    /// How many requests gather before they go off without a turn.
    ///
    /// What completes together is submitted together, so the queue moves in bursts, and the device is half empty between
    /// them: at depth 64, submitting whatever one turn brought cost a tenth of the throughput. So a caller who refills what
    /// has just completed hands over an eighth of the depth at a time; one who comes with something new to an idle device,
    /// everything at once.
    fn batch_limit(&self) -> usize {
        if self.slots.running() == 0 && self.refill == 0 {
            return BATCH_MAX;
        }
        let depth = self.slots.in_use() + self.refill;
        (depth / 8).clamp(PART_MIN, PART_MAX)
    }

    /// Why nothing may be asked of it here.
    fn barred(&self) -> Option<Error> {
        if self.fork.is_forked() {
            Some(Error::Forked)
        } else {
            self.home.is_elsewhere().then_some(Error::OtherThread)
        }
    }

    /// What can be said without trying: an error, or that there is nothing to do.
    fn fault_of(&self, request: &mut Request) -> Option<Result<(), Error>> {
        if let Some(error) = self.barred() {
            return Some(Err(error));
        }
        if let Some(error) = self.backend.refuses(request) {
            return Some(Err(error));
        }
        let len = request.memory.len();
        if let Err(error) = Slot::validate(request, len) {
            return Some(Err(error));
        }
        if Slot::will_sync(request) {
            if let Some(errno) = request.file.as_ref().and_then(File::poisoned) {
                return Some(Err(Error::Poisoned(errno)));
            }
        }
        let nothing_to_do = match request.op {
            Op::Read { .. } | Op::Write { .. } | Op::Receive { .. } => len == 0,
            Op::Transfer { len, .. } => len == 0,
            // An empty datagram is one.
            _ => false,
        };
        nothing_to_do.then_some(Ok(()))
    }

    /// Takes the next completion, in the order in which they arrived.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let next = self.ready.pop_front();
        self.taken += u64::from(next.is_some());
        next
    }

    /// How many requests more [`Engine::submit`] takes; and a number that grows whenever that does. A slot comes free when its completion, or
    /// its `Released` notice, is taken, however it came to that.
    #[must_use]
    pub fn free_slots(&self) -> (usize, u64) {
        let used = self.slots.in_use() + self.ready.len() + self.reserved_slots;
        (self.slots.capacity().saturating_sub(used), self.taken)
    }

    /// Runs one request to its end, for straight-line code. Other completions stay ready to be taken, however many they
    /// are: waiting for the caller to take them would be waiting for ever. A ring of the doorbell meanwhile is heard, and
    /// not passed on: look at what others may have posted before the next sleep.
    pub fn run(&mut self, mut request: Request) -> Completion {
        let id = loop {
            match self.accept(request) {
                Ok(id) => break id,
                Err(back) => {
                    if self.wait_for_more().is_err() {
                        return refused(back);
                    }
                    request = back;
                }
            }
        };
        loop {
            let mine = |c: &Completion| c.id == id && c.notice == Notice::Completed;
            if let Some(at) = self.ready.iter().position(mine) {
                if let Some(completion) = self.ready.remove(at) {
                    self.taken += 1;
                    return completion;
                }
            }
            if let Err(error) = self.wait_for_more() {
                return self.give_up(id, error);
            }
        }
    }

    fn wait_for_more(&mut self) -> Result<usize, Error> {
        let count = self.ready.len() as u32 + 1;
        self.turn(Wait::for_count(count))
    }

    fn give_up(&mut self, id: RequestId, error: Error) -> Completion {
        self.abandon(id);
        Completion {
            id,
            tag: 0,
            notice: Notice::Completed,
            result: Err(error),
            bytes_done: 0,
            memory: Memory::None,
            accepted: None,
            took: Caching::Kernel,
            iterations: 0,
        }
    }

    /// Completes an event with `value`. False when it has ended, or is no event.
    pub fn signal(&mut self, id: RequestId, value: u32) -> bool {
        let waits = |slot: &Slot| slot.op == Op::Event && slot.state == State::Held;
        let found = self.slots.get(id).is_some_and(waits);
        if found {
            self.finish(id, Ok(value));
        }
        found
    }

    /// What other threads complete events with.
    #[must_use]
    pub fn signals(&self) -> Signals {
        Signals::new(Arc::clone(&self.posted), self.backend.doorbell())
    }

    fn take_signals(&mut self) {
        if self.posted.is_empty() {
            return;
        }
        let mut taken = std::mem::take(&mut self.signalled);
        self.posted.take(&mut taken);
        for (id, value) in taken.drain(..) {
            self.signal(id, value);
        }
        self.signalled = taken;
    }

    /// Is this the copy of an engine in a child of the process that made it? It refuses everything; what it shares with its
    /// parent is the parent's.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.fork.is_forked()
    }

    /// Registers a file with the backend; a refusal costs speed only. Pipes, sockets and other streams are refused: before Linux 6.13 a
    /// request that waits on a registered file keeps others open that are detached meanwhile.
    pub fn attach(&mut self, file: &File) -> bool {
        self.barred().is_none() && self.backend.attach(file).is_ok()
    }

    /// Undoes [`Engine::attach`]; must come before a locked file is closed.
    pub fn detach(&mut self, file: &File) {
        if self.barred().is_none() {
            self.backend.detach(file);
        }
    }

    /// A descriptor that polls readable when a turn would find something or the doorbell rings, for outside loops: arm, turn
    /// without waiting, look at what others may have posted, sleep on it until [`Engine::next_deadline`] at most, disarm. `None`: the
    /// backend has none, or the system has no descriptors left for it; then turn again soon while anything is in flight.
    pub fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        if self.barred().is_some() {
            return None;
        }
        self.outside = arm;
        self.backend.ready_fd(arm)
    }

    /// When the soonest deadline of a request in flight passes, in engine time ([`Engine::now`]). No descriptor tells of it
    /// ([`Engine::ready_fd`]): a loop of your own sleeps no longer than until then, and turns.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// What another thread rings to end a sleeping turn.
    #[must_use]
    pub fn doorbell(&self) -> Doorbell {
        self.backend.doorbell()
    }

    /// Engine time at the last turn.
    #[must_use]
    pub fn now(&self) -> Time {
        if self.now_is_old { self.backend.now() } else { self.now }
    }

    /// Engine time now, for computing deadlines: the last turn may be long ago.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.backend.now()
    }

    /// Nanoseconds since 1970, for records; in a simulation since its beginning.
    #[must_use]
    pub fn wall_clock(&self) -> Time {
        self.backend.wall_clock()
    }

    /// Random bytes for identities.
    ///
    /// # Errors
    /// What `getrandom` said.
    pub fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        self.backend.random(bytes)
    }

    /// Requests in flight: queued, running, or abandoned and not yet released.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.in_use()
    }

    /// Completions that wait to be taken.
    #[must_use]
    pub fn completed(&self) -> usize {
        self.ready.len()
    }

    /// Requests that the next turn will submit; none while all that wait are for a helper that has no room.
    #[must_use]
    pub fn queued(&self) -> usize {
        if self.can_start() { self.queue.len() } else { 0 }
    }

    /// What was chosen, and what could not be had.
    #[must_use]
    pub fn explain(&self) -> Explain {
        if self.fork.is_forked() {
            // The backend may have to take a lock for its answer, which a thread of the parent's held when it forked.
            return Explain {
                backend: self.backend_name,
                features: vec![("usable", Err(Error::Forked.to_string()))],
            };
        }
        let mut explained = self.backend.explain();
        if let Some(file) = &self.flag_not_kept {
            let why = format!("not known to be kept, so a sync follows each durable write to {file}");
            explained.features.push(("durable_write_flag", Err(why)));
        }
        explained
    }

    /// Better backends that were tried first and refused, with the cure.
    #[must_use]
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// Counters and latencies of each operation and caching mode, and the time spent in handing requests over.
    #[must_use]
    pub fn measures(&self) -> &Measures {
        &self.measures
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            system_calls: self.backend.system_calls(),
            ..self.stats
        }
    }
}

fn refused(request: Request) -> Completion {
    Completion {
        id: RequestId {
            slot: u32::MAX,
            generation: u64::MAX,
        },
        tag: request.tag,
        notice: Notice::Completed,
        result: Err(Error::Full),
        bytes_done: 0,
        memory: request.memory,
        accepted: None,
        took: request.policy.caching,
        iterations: 0,
    }
}
