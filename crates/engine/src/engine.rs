//! The engine: what is common to all backends, so that all give the same answers.
//!
//! A request runs as iterations (seed 000: "we complete as much IO as we can in a non-blocking fashion, and then continue
//! the remaining part"). The backend runs one and reports a raw result; [`Engine`] decides what it means: done, continue
//! where it stopped, try again, or fail. Order (fences, writes behind an abandoned one), deadlines and the memory of
//! failed syncs live here too.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::sim::Sim;
use crate::backend::sync::Sync;
use crate::backend::uring::Uring;
use crate::backend::{Attach, Backend, Detached, Done, Doorbell, Explain};
use crate::completion::{Completion, Notice};
use crate::error::{Errno, Error, SetupError};
use crate::file::File;
use crate::fork::ForkGuard;
use crate::judge::{Next, judge, poison_if_lost};
use crate::memory::{Arena, Buffer, Memory};
use crate::policy::{Caching, Time};
use crate::request::{Op, Request, RequestId, Wait};
use crate::signals::{Posted, Signals};
use crate::slot::{Slot, Slots, State};
use crate::stats::{Measures, Stats};
use crate::{sys, trial};

/// Requests that are queued at most before they are submitted without a turn.
pub const BATCH_MAX: usize = 256;

/// Which backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best that works here, found by trying.
    #[default]
    Auto,
    /// Blocking system calls.
    Sync,
    /// io_uring.
    Uring,
}

/// How large an engine is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Which backend.
    pub backend: Choice,
    /// Requests in flight at most.
    pub slots: u32,
    /// Slots that [`Engine::submit`] leaves to [`Engine::submit_reserved`]: for write-back, log and metadata.
    pub reserved_slots: u32,
    /// Buffer memory in bytes, mapped lazily.
    pub arena_bytes: usize,
    /// Register the arena with the kernel: pins it at once, saves some work per request.
    pub register_arena: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            backend: Choice::Auto,
            slots: 1024,
            reserved_slots: 64,
            arena_bytes: 64 << 20,
            register_arena: false,
        }
    }
}

/// A backend that was tried and not taken.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Its name.
    pub backend: &'static str,
    /// What the system said.
    pub reason: String,
    /// What to do about it.
    pub cure: Option<String>,
}

/// Runs requests. Owned by one thread: neither `Send` nor `Sync`, as the ring inside is not.
pub struct Engine {
    // Declared before the backend and leaked by `drop` when a device is stuck: see `shutdown`.
    slots: ManuallyDrop<Slots>,
    backend: Box<dyn Backend>,
    arena: Arc<Arena>,
    reserved_slots: usize,
    /// Requests that a backend has yet to take, in order.
    queue: Vec<RequestId>,
    /// Requests that wait for others to end.
    held: Vec<RequestId>,
    /// Completions that the caller has yet to take.
    ready: VecDeque<Completion>,
    done: Done,
    now: Time,
    sequence: u64,
    /// Requests in the table that have a deadline: without any, no turn looks for them.
    deadlines: usize,
    gains_by_trial: bool,
    trial_turns: u64,
    rejected: Vec<Rejected>,
    fork: ForkGuard,
    posted: Arc<Posted>,
    /// Signals taken from `posted`; kept for its room.
    signalled: Vec<(RequestId, u32)>,
    stats: Stats,
    measures: Measures,
    _one_thread: PhantomData<*const ()>,
}

impl Engine {
    /// Starts an engine on the backend that the configuration names, or on the best that works.
    ///
    /// # Errors
    /// What refused to start, and the cure.
    pub fn new(config: &Config) -> Result<Engine, SetupError> {
        let mut rejected = Vec::new();
        let backend: Box<dyn Backend> = match config.backend {
            Choice::Sync => Box::new(Sync::new(config.slots)?),
            Choice::Uring => Box::new(Uring::new(config.slots)?),
            Choice::Auto => match Uring::new(config.slots) {
                Ok(uring) => Box::new(uring),
                Err(error) => {
                    rejected.push(Rejected {
                        backend: crate::backend::uring::NAME,
                        reason: error.errno.to_string(),
                        cure: error.cure,
                    });
                    Box::new(Sync::new(config.slots)?)
                }
            },
        };
        let mut engine = Engine::with_backend(backend, config)?;
        engine.rejected = rejected;
        Ok(engine)
    }

    /// Starts an engine on a simulation.
    ///
    /// # Errors
    /// When memory for the arena cannot be mapped.
    pub fn simulated(sim: Sim, config: &Config) -> Result<Engine, SetupError> {
        Engine::with_backend(Box::new(sim), config)
    }

    /// Starts an engine on any backend.
    ///
    /// # Errors
    /// When memory for the arena cannot be mapped.
    pub fn with_backend(mut backend: Box<dyn Backend>, config: &Config) -> Result<Engine, SetupError> {
        let arena = Arena::new(config.arena_bytes)?;
        if config.register_arena {
            // A refusal (RLIMIT_MEMLOCK) costs speed only, and `explain` tells it.
            let _ = backend.attach(Attach::Arena(&arena));
        }
        let slots = config.slots.max(1);
        Ok(Engine {
            slots: ManuallyDrop::new(Slots::new(slots)),
            now: backend.now(),
            gains_by_trial: backend.gains_by_trial(),
            trial_turns: 0,
            backend,
            arena,
            reserved_slots: config.reserved_slots.min(slots / 2) as usize,
            queue: Vec::with_capacity(slots as usize),
            held: Vec::new(),
            ready: VecDeque::with_capacity(slots as usize),
            done: Done {
                raw: Vec::with_capacity(slots as usize),
                rang: false,
            },
            sequence: 0,
            deadlines: 0,
            rejected: Vec::new(),
            fork: ForkGuard::new()?,
            posted: Arc::default(),
            signalled: Vec::new(),
            stats: Stats::default(),
            measures: Measures::new(),
            _one_thread: PhantomData,
        })
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
        if self.slots.in_use() >= self.slots.capacity() {
            return Err(request);
        }
        let fault = self.fault_of(&mut request);
        self.sequence += 1;
        // Counted for refused requests too: ending one forgets its deadline, and must not forget another's.
        self.deadlines += usize::from(request.policy.deadline.is_some());
        let id = self.slots.insert(request, self.sequence)?;
        self.stats.requests += 1;
        self.stats.in_flight_max = self.stats.in_flight_max.max(self.slots.in_use() as u64);
        match fault {
            Some(Err(error)) => self.finish(id, Err(error)),
            Some(Ok(())) => self.finish(id, Ok(0)),
            None => self.enqueue(id),
        }
        if self.queue.len() >= self.batch_limit() {
            let begun = self.start_queued();
            self.flush(begun);
        }
        Ok(id)
    }

    /// How many requests gather before they go off without a turn.
    ///
    /// What completes together is submitted together, so the queue moves in bursts, and the device is half empty between
    /// them: at depth 64, submitting whatever one turn brought cost a tenth of the throughput. So while others run, a
    /// sixteenth of them is enough; an idle device gets everything at once.
    fn batch_limit(&self) -> usize {
        match self.slots.running() {
            0 => BATCH_MAX,
            running => (running / 16).clamp(2, BATCH_MAX),
        }
    }

    /// What can be said without trying: an error, or that there is nothing to do.
    fn fault_of(&self, request: &mut Request) -> Option<Result<(), Error>> {
        if self.fork.is_forked() {
            return Some(Err(Error::Forked));
        }
        if let Some(error) = self.backend.refuses(request.op) {
            return Some(Err(error));
        }
        if let Err(error) = Slot::validate(request) {
            return Some(Err(error));
        }
        if matches!(request.op, Op::Sync | Op::Fence)
            && let Some(errno) = request.file.as_ref().and_then(File::poisoned)
        {
            return Some(Err(Error::Poisoned(errno)));
        }
        let nothing_to_do = match request.op {
            Op::Read { .. } | Op::Write { .. } | Op::Receive { .. } => request.memory.is_empty(),
            Op::Transfer { len, .. } => len == 0,
            // An empty datagram is one.
            _ => false,
        };
        nothing_to_do.then_some(Ok(()))
    }

    fn enqueue(&mut self, id: RequestId) {
        if self.slots.get(id).is_some_and(|slot| slot.op == Op::Event) {
            self.slots.transition(id, State::Held);
        } else if self.must_wait_for_others(id) {
            self.slots.transition(id, State::Held);
            self.held.push(id);
        } else {
            self.queue.push(id);
        }
    }

    /// Orders that a request must keep: a fence comes after the writes before it; a write comes after an abandoned write
    /// to the same bytes, which may still land.
    fn must_wait_for_others(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.slots.get(id) else {
            return false;
        };
        let Some(file) = &slot.file else { return false };
        let same_file = |other: &Slot| other.file.as_ref().is_some_and(|f| f.identity() == file.identity());
        match slot.op {
            Op::Fence => {
                let earlier = |other: &Slot| other.op.is_write() && other.sequence < slot.sequence && same_file(other);
                let count = self.slots.iter().filter(|(_, s)| earlier(s)).count() as u32;
                if let Some(slot) = self.slots.get_mut(id) {
                    slot.waits_for = count;
                }
                count > 0
            }
            _ if slot.op.is_write() && self.stats.abandoned > 0 => {
                let range = slot.write_range();
                let blocks = |other: &Slot| {
                    other.state == State::Abandoned && same_file(other) && overlap(range, other.write_range())
                };
                self.slots.iter().any(|(_, other)| blocks(other))
            }
            _ => false,
        }
    }

    /// Submits what is queued, sleeps as long as `wait` allows, and makes completions ready to be taken. Returns how many
    /// are.
    ///
    /// With nothing in flight it does not sleep, unless `wait` asks for a count of 0: then only the doorbell or the
    /// deadline ends the sleep.
    ///
    /// # Errors
    /// The backend itself is broken.
    pub fn turn(&mut self, wait: Wait) -> Result<usize, Error> {
        if self.fork.is_forked() {
            return Err(Error::Forked);
        }
        let enough_at = match wait {
            Wait::Until { min_wait, .. } if !min_wait.is_zero() => Some(self.backend.now().after(min_wait)),
            _ => None,
        };
        loop {
            self.start_queued();
            let sleep = self.sleep_for(wait, enough_at);
            let turned = self.backend.turn(&mut self.slots, sleep, &mut self.done);
            self.now = self.backend.now();
            let rang = std::mem::take(&mut self.done.rang);
            self.settle();
            self.take_signals();
            self.expire();
            turned?;
            if !self.queue.is_empty() {
                continue; // Iterations that go on are part of what this turn submits.
            }
            if rang || sleep == Wait::No || self.is_satisfied(wait, enough_at) {
                self.stats.system_calls = self.backend.system_calls();
                return Ok(self.ready.len());
            }
        }
    }

    /// Takes the next completion, in the order in which they arrived.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.ready.pop_front()
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
            if let Some(at) = self.ready.iter().position(mine)
                && let Some(completion) = self.ready.remove(at)
            {
                return completion;
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
        let mut taken = std::mem::take(&mut self.signalled);
        self.posted.take(&mut taken);
        for (id, value) in taken.drain(..) {
            self.signal(id, value);
        }
        self.signalled = taken;
    }

    /// Asks that a request end early. It still completes exactly once, cancelled or not: disk I/O that the device has
    /// begun cannot be called back.
    pub fn cancel(&mut self, id: RequestId) {
        match self.slots.get(id).map(|slot| slot.state) {
            Some(State::Queued | State::Held) => self.drop_before_start(id, Err(Error::Cancelled)),
            Some(State::Running) if !self.fork.is_forked() => self.backend.cancel(&self.slots, id),
            Some(State::Running | State::Abandoned | State::Free) | None => {}
        }
    }

    /// Gives up on a request: it will not complete. Its memory comes back by a `Released` notice when the kernel has let
    /// go of it.
    pub fn abandon(&mut self, id: RequestId) {
        match self.slots.get(id).map(|slot| slot.state) {
            Some(State::Queued | State::Held) => {
                self.unqueue(id);
                self.release(id);
            }
            Some(State::Running) if !self.fork.is_forked() => {
                self.leave_to_kernel(id);
                self.backend.cancel(&self.slots, id);
            }
            Some(State::Running | State::Abandoned | State::Free) | None => {}
        }
    }

    fn leave_to_kernel(&mut self, id: RequestId) {
        self.forget_deadline(id);
        self.slots.transition(id, State::Abandoned);
        self.stats.abandoned += 1;
    }

    fn forget_deadline(&mut self, id: RequestId) {
        if let Some(slot) = self.slots.get_mut(id)
            && slot.policy.deadline.take().is_some()
        {
            self.deadlines = self.deadlines.saturating_sub(1);
        }
    }

    /// Registers a file with the backend; a refusal costs speed only.
    pub fn attach(&mut self, file: &File) -> bool {
        !self.fork.is_forked() && self.backend.attach(Attach::File(file)).is_ok()
    }

    /// Undoes [`Engine::attach`]; must come before a locked file is closed.
    pub fn detach(&mut self, file: &File) {
        if !self.fork.is_forked() {
            self.backend.detach(Detached::File(file));
        }
    }

    /// A descriptor that polls readable when a turn would find something or the doorbell rings, for outside loops: arm, turn
    /// without waiting, look at what others may have posted, sleep on it, disarm.
    pub fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        if self.fork.is_forked() {
            return None;
        }
        self.backend.ready_fd(arm)
    }

    /// What another thread rings to end a sleeping turn.
    #[must_use]
    pub fn doorbell(&self) -> Doorbell {
        self.backend.doorbell()
    }

    /// Engine time at the last turn.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
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

    /// Requests that the next turn will submit.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// What was chosen, and what could not be had.
    #[must_use]
    pub fn explain(&self) -> Explain {
        self.backend.explain()
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
        self.stats
    }

    /// Cancels everything and waits until the kernel has let go of all memory, at most `patience`. Returns how many
    /// requests a stuck device still holds; their memory is leaked, not freed, because it may still be written.
    pub fn shutdown(&mut self, patience: Duration) -> usize {
        if self.fork.is_forked() {
            return 0;
        }
        let ids: Vec<RequestId> = self.slots.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.cancel(id);
        }
        let deadline = self.backend.now().after(patience);
        while self.slots.in_use() > 0 && self.now < deadline {
            let before = self.ready.len() as u32;
            let wait = Wait::Until {
                count: before + 1,
                min_wait: Duration::ZERO,
                deadline: Some(deadline),
            };
            if self.turn(wait).is_err() {
                break;
            }
        }
        self.slots.in_use()
    }

    /// Returns when the batch was begun, if there was one.
    fn start_queued(&mut self) -> Option<Time> {
        if self.gains_by_trial {
            self.try_queued();
        }
        if self.queue.is_empty() {
            return None;
        }
        let now = self.backend.now();
        for &id in &self.queue {
            if let Some(slot) = self.slots.get_mut(id) {
                slot.begun.get_or_insert(now);
            }
        }
        self.stats.batches += 1;
        let taken = self.backend.start(&mut self.slots, &self.queue);
        self.stats.iterations += taken as u64;
        self.queue.drain(..taken);
        Some(now)
    }

    /// Hands over what was started without waiting for a turn.
    fn flush(&mut self, begun: Option<Time>) {
        const SAMPLED: u64 = 8;
        self.backend.flush();
        if let Some(begun) = begun
            && self.stats.batches.is_multiple_of(SAMPLED)
        {
            let took = self.backend.now().since(begun);
            self.measures.submit.record(took);
        }
    }

    /// Runs what the page cache can answer at once, in order; the rest stays queued.
    fn try_queued(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        const SAMPLED: u64 = 16;
        let hits_before = self.stats.trial_hits;
        self.trial_turns += 1;
        let begun = self.trial_turns.is_multiple_of(SAMPLED).then(|| self.backend.now());
        let mut queue = std::mem::take(&mut self.queue);
        queue.retain(|&id| !self.ends_at_once(id));
        self.queue = queue;
        let hits = self.stats.trial_hits - hits_before;
        if let Some(begun) = begun
            && hits > 0
        {
            let took = self.backend.now().since(begun);
            let read = Op::Read { offset: None };
            self.measures
                .entry(read, Caching::Kernel)
                .latency
                .record_many(took, hits);
        }
    }

    fn ends_at_once(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.slots.get_mut(id) else {
            return false;
        };
        let Some(raw) = trial::attempt(slot) else {
            return false;
        };
        slot.iterations += 1;
        self.stats.iterations += 1;
        self.stats.trials += 1;
        if raw < 0 {
            return false;
        }
        match judge(slot, raw) {
            Next::Again => false,
            Next::End(result) => {
                self.stats.trial_hits += 1;
                self.finish(id, result);
                true
            }
        }
    }

    /// How many completions a turn waits for; from `enough_at` on, one will do.
    fn needed(&self, count: u32, enough_at: Option<Time>) -> usize {
        let patient = enough_at.is_none_or(|at| self.now < at);
        if patient { count as usize } else { count.min(1) as usize }
    }

    fn sleep_for(&self, wait: Wait, enough_at: Option<Time>) -> Wait {
        let Wait::Until {
            count,
            min_wait,
            deadline,
        } = wait
        else {
            return Wait::No;
        };
        let missing = self.needed(count, enough_at).saturating_sub(self.ready.len());
        if !self.queue.is_empty() || (count > 0 && (missing == 0 || self.slots.in_use() == 0)) {
            return Wait::No;
        }
        Wait::Until {
            count: missing.min(self.slots.in_use()) as u32,
            min_wait,
            deadline: earliest(
                earliest(deadline, self.next_deadline()),
                enough_at.filter(|&at| self.now < at),
            ),
        }
    }

    fn is_satisfied(&self, wait: Wait, enough_at: Option<Time>) -> bool {
        match wait {
            Wait::No => true,
            Wait::Until { count, deadline, .. } => {
                let enough = self.ready.len() >= self.needed(count, enough_at) || self.slots.in_use() == 0;
                (count > 0 && enough) || deadline.is_some_and(|at| self.now >= at)
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.deadlines == 0 {
            return None;
        }
        self.slots.iter().filter_map(|(_, slot)| slot.policy.deadline).min()
    }

    /// Reads the raw results of a turn.
    fn settle(&mut self) {
        let mut raw = std::mem::take(&mut self.done.raw);
        for &(id, result) in raw.iter().filter(|(_, result)| *result < 0) {
            // First of all: no sync of the same turn may prove what this one disproves.
            if let Some(slot) = self.slots.get(id) {
                poison_if_lost(slot, Errno::from_raw(-result));
            }
        }
        for (id, result) in raw.drain(..) {
            self.settle_one(id, result);
        }
        self.done.raw = raw;
    }

    fn settle_one(&mut self, id: RequestId, mut raw: i32) {
        let Some(slot) = self.slots.get_mut(id) else {
            return;
        };
        slot.iterations = slot.iterations.saturating_add(1);
        if slot.op == Op::Accept && raw >= 0 && !slot.awaits_readiness {
            // Owned first of all: whatever becomes of the request, the descriptor is closed or handed over.
            slot.accepted = File::from_fd(sys::adopt(raw), "a connection").ok();
            raw = 0;
        }
        if slot.state == State::Abandoned {
            self.release(id);
            return;
        }
        match judge(slot, raw) {
            Next::Again => {
                self.slots.transition(id, State::Queued);
                self.queue.push(id);
            }
            Next::End(result) => self.finish(id, result),
        }
    }

    /// Completes what is overdue. The kernel keeps the memory of a running request, so that comes back later.
    fn expire(&mut self) {
        if self.deadlines == 0 {
            return;
        }
        let now = self.now;
        let overdue = |slot: &Slot| slot.policy.deadline.is_some_and(|at| at <= now);
        let ids: Vec<(RequestId, State)> = self
            .slots
            .iter()
            .filter(|(_, slot)| overdue(slot))
            .map(|(id, slot)| (id, slot.state))
            .collect();
        for (id, state) in ids {
            match state {
                State::Running => {
                    self.complete_early(id);
                    self.leave_to_kernel(id);
                    self.backend.cancel(&self.slots, id);
                }
                State::Queued | State::Held => {
                    let begun = self.slots.get(id).is_some_and(|slot| slot.iterations > 0);
                    if begun {
                        // Between two iterations. The caller cannot know that, so it is told as if one were running.
                        self.complete_early(id);
                        self.unqueue(id);
                        self.release(id);
                    } else {
                        self.drop_before_start(id, Err(Error::Cancelled));
                    }
                }
                State::Free | State::Abandoned => {}
            }
        }
    }

    fn drop_before_start(&mut self, id: RequestId, result: Result<u32, Error>) {
        self.unqueue(id);
        self.finish(id, result);
    }

    fn unqueue(&mut self, id: RequestId) {
        self.queue.retain(|&queued| queued != id);
        self.held.retain(|&held| held != id);
    }

    /// Tells the caller that a running request is given up; its slot and memory stay.
    fn complete_early(&mut self, id: RequestId) {
        let Some(slot) = self.slots.get(id) else {
            return;
        };
        let completion = Completion {
            id,
            tag: slot.tag,
            notice: Notice::Completed,
            result: Err(Error::Indeterminate),
            bytes_done: slot.done as u32,
            memory: Memory::None,
            accepted: None,
            took: slot.policy.caching,
            iterations: slot.iterations,
        };
        let (op, begun) = (slot.op, slot.begun);
        self.count(&completion, op, begun);
        self.ready.push_back(completion);
    }

    /// The one completion of a request, and the end of its slot.
    fn finish(&mut self, id: RequestId, result: Result<u32, Error>) {
        self.end(id, Notice::Completed, result);
    }

    /// The end of a slot whose caller has already been answered, or does not want an answer.
    fn release(&mut self, id: RequestId) {
        self.end(id, Notice::Released, Err(Error::Indeterminate));
    }

    fn end(&mut self, id: RequestId, notice: Notice, result: Result<u32, Error>) {
        self.forget_deadline(id);
        let Some(slot) = self.slots.get_mut(id) else {
            return;
        };
        let (op, sequence, begun) = (slot.op, slot.sequence, slot.begun);
        let accepted = slot.accepted.take();
        let mut completion = Completion {
            id,
            tag: slot.tag,
            notice,
            result,
            bytes_done: slot.done as u32,
            memory: Memory::None,
            accepted,
            took: slot.policy.caching,
            iterations: slot.iterations,
        };
        let file = op.is_write().then(|| slot.file.clone()).flatten();
        completion.memory = self.slots.remove(id);
        if notice == Notice::Completed {
            self.count(&completion, op, begun);
        }
        self.ready.push_back(completion);
        if let Some(file) = file
            && !self.held.is_empty()
        {
            self.wake_held(&file, sequence);
        }
    }

    /// A write has ended: fences count down, and whoever waited for it may go.
    fn wake_held(&mut self, file: &File, sequence: u64) {
        for index in (0..self.held.len()).rev() {
            let id = self.held[index];
            let Some(slot) = self.slots.get_mut(id) else {
                continue;
            };
            let same = slot.file.as_ref().is_some_and(|f| f.identity() == file.identity());
            if !same {
                continue;
            }
            let free = if slot.op == Op::Fence {
                if slot.sequence > sequence {
                    slot.waits_for = slot.waits_for.saturating_sub(1);
                }
                slot.waits_for == 0
            } else {
                !self.must_wait_for_others(id)
            };
            if free {
                self.held.remove(index);
                self.slots.transition(id, State::Queued);
                self.queue.push(id);
            }
        }
    }

    fn count(&mut self, completion: &Completion, op: Op, begun: Option<Time>) {
        let measured = self.measures.entry(op, completion.took);
        measured.count(completion.result.is_err(), completion.bytes_done);
        if let Some(begun) = begun {
            measured.latency.record(self.now.since(begun));
        }
        self.stats.completions += 1;
        self.stats.errors += u64::from(completion.result.is_err());
        let bytes = u64::from(completion.bytes_done);
        match op {
            Op::Read { .. } => self.stats.bytes_read += bytes,
            Op::Write { .. } => self.stats.bytes_written += bytes,
            Op::Transfer { .. } => {
                self.stats.bytes_read += bytes;
                self.stats.bytes_written += bytes;
            }
            Op::Receive { .. } => self.stats.bytes_read += bytes,
            Op::Send { .. } => self.stats.bytes_written += bytes,
            _ => {}
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        /// A healthy device ends its requests within milliseconds; after this long it is taken for stuck.
        const PATIENCE: Duration = Duration::from_secs(30);
        if self.fork.is_forked() {
            // The parent's kernel work concerns the parent's memory: this process may free its copies.
            self.backend.disown();
        } else {
            self.shutdown(PATIENCE);
        }
        if !self.fork.is_forked() && self.slots.running() > 0 {
            // Leaked: the kernel may still write this memory and these files.
            return;
        }
        // Dropping the table frees memory that nobody else refers to; it is not used again.
        let slots = std::mem::replace(&mut self.slots, ManuallyDrop::new(Slots::new(0)));
        drop(ManuallyDrop::into_inner(slots));
    }
}

fn refused(request: Request) -> Completion {
    Completion {
        id: RequestId {
            slot: u32::MAX,
            generation: u32::MAX,
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

fn overlap(one: Option<(u64, u64)>, two: Option<(u64, u64)>) -> bool {
    match (one, two) {
        (Some((a, b)), Some((c, d))) => a < d && c < b,
        _ => false,
    }
}

fn earliest(one: Option<Time>, two: Option<Time>) -> Option<Time> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}
