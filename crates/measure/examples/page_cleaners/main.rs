//! An OLTP-like mix on a buffer pool: agents that read and change pages, and cleaners that write them (seed 001 §8).
//!
//! As many threads as there are processors; each has a pool over its own part of the database, its share of the agents, and an
//! engine. An agent is a transaction that goes on when its page is there, so agents wait, and threads do not. Agents and pools are
//! the same whoever cleans:
//!
//! - **one asynchronous cleaner** (one of each pool): the cache's own, its writes carried out by the engine, many in flight;
//! - **N synchronous ones**: threads that each take one write, and block until it has ended. Each takes memory, which the pool has
//!   less. When agents wait for a frame and all of these threads are busy, an agent writes by itself.
//!
//! A foreground write is one that an agent makes; on the asynchronous side, any that begins while an agent waits for a frame.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use baio_engine::{Doorbell, Memory};
use baio_measure::program::{self, CacheCounts, Measurement, Permutation, Random, Recorder, joined, mix, words};
use baio_storage::cache::eviction::Hint;
use baio_storage::cache::{CacheError, CacheOp, CacheOptions, CacheRequest, Io, IoKind, PagePin};
use serde::{Deserialize, Serialize};

use pool::{Blocking, Ended, Make, Pool};

mod pool;

const PAGE: u64 = 4096;

/// For the last transactions to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes that wait for agents of one pool at most, on top of those that its cleaners have.
const AGENTS_OWN: usize = 8;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    /// Bytes of the database.
    pub(crate) bytes: u64,
    /// Memory of the pool and of the synchronous cleaners together.
    pub(crate) memory_bytes: u64,
    /// Memory of one of those.
    pub(crate) cleaner_bytes: u64,
    /// Threads that clean; none for the asynchronous one.
    pub(crate) cleaners: u32,
    /// Through the kernel's cache, writes O_DSYNC, instead of past it.
    pub(crate) through_kernel: bool,
    /// Transactions under way, over all threads.
    pub(crate) agents: u32,
    pub(crate) runtime_ms: u64,
    pub(crate) mix: Mix,
}

/// What a transaction is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Mix {
    /// Pages that it uses.
    pub(crate) pages: u32,
    /// Percent of them that it changes.
    pub(crate) changed_percent: u64,
    /// So many percent of the uses are of so many percent of the pages.
    pub(crate) hot_uses_percent: u64,
    pub(crate) hot_pages_percent: u64,
    /// How often a page is gone through in each use.
    pub(crate) work: u32,
}

/// The mix of the tables.
pub(crate) const OLTP: Mix = Mix {
    pages: 8,
    changed_percent: 50,
    hot_uses_percent: 80,
    hot_pages_percent: 20,
    work: 2,
};
/// Transactions under way.
pub(crate) const AGENTS: u32 = 64;
/// A quarter of the database is memory.
pub(crate) const MEMORY_PART: u64 = 4;
/// Of a synchronous cleaner: its two stacks, and what the system keeps for a thread.
pub(crate) const CLEANER_BYTES: u64 = 128 << 10;

/// Where one transaction is.
#[derive(Debug)]
enum State {
    /// It can go on.
    Ready,
    /// It waits for its page.
    Pins(u64),
    /// It waits until it may change its page.
    Changes {
        pin: PagePin,
        /// Too many pages are changed; else just this one is being written.
        for_room: bool,
    },
    Over,
}

#[derive(Debug)]
struct Agent {
    state: State,
    /// Pages that it has used so far.
    uses: u32,
    begun: Instant,
}

/// What one thread has done.
#[derive(Default)]
struct Done {
    transactions: u64,
    errors: u64,
    latency: Option<Recorder>,
    pages_by_cleaners: u64,
    pages_by_agents: u64,
    cache: CacheCounts,
    elapsed: Duration,
}

/// Writes for the threads that block, and what became of them.
struct Board {
    state: Mutex<BoardState>,
    work: Condvar,
    /// By pool; there once it is made.
    bells: Vec<OnceLock<Doorbell>>,
}

struct BoardState {
    /// By pool.
    waiting: Vec<VecDeque<Io>>,
    ended: Vec<Vec<Ended>>,
    /// The pool whose turn it is.
    turn: usize,
    is_over: bool,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BoardState {
    fn next(&mut self) -> Option<(usize, Io)> {
        let pools = self.waiting.len();
        for step in 0..pools {
            let pool = (self.turn + step) % pools;
            if let Some(io) = self.waiting[pool].pop_front() {
                self.turn = (pool + 1) % pools;
                return Some((pool, io));
            }
        }
        None
    }
}

impl Job {
    /// On a file or device of so many bytes, past the kernel's cache.
    pub(crate) fn new(path: PathBuf, bytes: u64, cleaners: u32, runtime_ms: u64) -> Job {
        Job {
            path,
            bytes,
            memory_bytes: bytes / MEMORY_PART,
            cleaner_bytes: CLEANER_BYTES,
            cleaners,
            through_kernel: false,
            agents: AGENTS,
            runtime_ms,
            mix: OLTP,
        }
    }
}

fn main() -> ExitCode {
    program::tell(
        words("page_cleaners FILE [CLEANERS], which writes over FILE").and_then(|(path, words)| {
            let bytes = std::fs::metadata(&path).map_err(|error| error.to_string())?.len();
            let cleaners = words.first().map_or(Ok(0), |number| number.parse());
            let cleaners = cleaners.map_err(|_| "how many cleaners?")?;
            run(&Job::new(path, bytes, cleaners, 3000))
        }),
    )
}

pub(crate) fn run(job: &Job) -> Result<Measurement, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let taken = job.cleaner_bytes * u64::from(job.cleaners);
    let memory = job
        .memory_bytes
        .checked_sub(taken)
        .ok_or("the cleaners take all memory")?;
    let memory = memory as usize / threads;
    // More would find every frame in use by one another.
    let agents_max = memory / PAGE as usize / 4;
    let part = Part {
        bytes: job.bytes / threads as u64 / PAGE * PAGE,
        memory,
        agents: (job.agents as usize).div_ceil(threads).min(agents_max).max(1),
        cleaners: job.cleaners.div_ceil(threads as u32),
    };
    if part.bytes < 64 * PAGE {
        return Err("the database is too small".into());
    }
    let board = Board {
        state: Mutex::new(BoardState {
            waiting: (0..threads).map(|_| VecDeque::new()).collect(),
            ended: (0..threads).map(|_| Vec::new()).collect(),
            turn: 0,
            is_over: false,
        }),
        work: Condvar::new(),
        bells: (0..threads).map(|_| OnceLock::new()).collect(),
    };
    let file = Blocking::open(&job.path, job.through_kernel)?;
    let (board, part) = (&board, &part);
    let results = std::thread::scope(|scope| {
        for _ in 0..job.cleaners {
            let file = file.clone();
            scope.spawn(move || clean(board, &file, part.bytes));
        }
        let handles: Vec<_> = (0..threads)
            .map(|index| scope.spawn(move || Thread::new(job, part, index, board)?.run()))
            .collect();
        let results: Vec<_> = handles.into_iter().map(|handle| joined(handle.join())).collect();
        board.state().is_over = true;
        board.work.notify_all();
        results.into_iter().collect::<Result<Vec<Done>, String>>()
    })?;
    Ok(summed(job, &results, threads))
}

/// What each thread has of everything.
struct Part {
    bytes: u64,
    memory: usize,
    agents: usize,
    cleaners: u32,
}

fn summed(job: &Job, results: &[Done], threads: usize) -> Measurement {
    let elapsed = results.iter().map(|done| done.elapsed).max().unwrap_or_default();
    let mut latency = Recorder::new();
    let mut cache = CacheCounts::default();
    for done in results {
        done.latency.iter().for_each(|one| latency.merge(one));
        cache = cache.and(done.cache);
    }
    let sum = |of: fn(&Done) -> u64| results.iter().map(of).sum::<u64>();
    let transactions = sum(|done| done.transactions);
    let (cleaners, agents) = (sum(|done| done.pages_by_cleaners), sum(|done| done.pages_by_agents));
    Measurement {
        iops: transactions as f64 / elapsed.as_secs_f64(),
        latency_us: latency.latency(),
        in_flight_max: u64::from(job.agents),
        threads_max: Some(threads as u64 + u64::from(job.cleaners) + 1),
        requests: transactions,
        errors: sum(|done| done.errors),
        backend: if job.cleaners == 0 {
            "one asynchronous cleaner"
        } else {
            "synchronous cleaners"
        }
        .into(),
        mode: if job.through_kernel { "kernel" } else { "direct" }.into(),
        foreground_percent: Some(100.0 * agents as f64 / (agents + cleaners).max(1) as f64),
        cache: Some(cache),
        ..Measurement::default()
    }
}

/// A synchronous cleaner.
fn clean(board: &Board, file: &Blocking, len: u64) {
    let mut state = board.state();
    loop {
        if let Some((pool, io)) = state.next() {
            drop(state);
            let ended = file.carry_out(io, len * pool as u64);
            state = board.state();
            state.ended[pool].push(ended);
            if let Some(bell) = board.bells[pool].get() {
                bell.ring();
            }
        } else if state.is_over {
            return;
        } else {
            state = board.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct Thread<'a> {
    job: &'a Job,
    index: usize,
    pool: Pool,
    board: &'a Board,
    begun: Instant,
    agents: Vec<Agent>,
    /// Those that can go on.
    ready: Vec<usize>,
    random: Random,
    scattered: Permutation,
    pages: u64,
    /// Pages that are being read.
    coming: Vec<bool>,
    /// Writes that agents make, and what the threads have, under way.
    by_agents: usize,
    with_cleaners: usize,
    wanted: Vec<Io>,
    done: Done,
}

impl<'a> Thread<'a> {
    fn new(job: &'a Job, part: &Part, index: usize, board: &'a Board) -> Result<Thread<'a>, String> {
        let mut config = CacheOptions {
            bytes: part.memory,
            ..CacheOptions::default()
        };
        if job.cleaners > 0 {
            config.cleaner_depth = part.cleaners + AGENTS_OWN as u32;
        }
        let pool = Pool::make(Make {
            path: &job.path,
            first: index as u64 * part.bytes,
            len: part.bytes,
            config,
            through_kernel: job.through_kernel,
        })?;
        let _ = board.bells[index].set(pool.doorbell());
        let (pages, begun) = (part.bytes / PAGE, Instant::now());
        let agent = |_| Agent {
            state: State::Ready,
            uses: 0,
            begun,
        };
        Ok(Thread {
            job,
            index,
            pool,
            board,
            begun,
            agents: (0..part.agents).map(agent).collect(),
            ready: (0..part.agents).collect(),
            random: Random::new(u64::from(std::process::id()) << 8 | index as u64),
            scattered: Permutation::new(pages, 1),
            pages,
            coming: vec![false; pages as usize],
            by_agents: 0,
            with_cleaners: 0,
            wanted: Vec::new(),
            done: Done {
                latency: Some(Recorder::new()),
                ..Done::default()
            },
        })
    }

    fn run(mut self) -> Result<Done, String> {
        let runtime = Duration::from_millis(self.job.runtime_ms);
        let before = self.pool.cache.stats();
        let mut left = self.agents.len();
        while left > 0 || !self.pool.is_idle() || self.with_cleaners > 0 {
            let is_over = self.begun.elapsed() >= runtime;
            if self.begun.elapsed() >= runtime + PATIENCE {
                return Err(format!("{left} agents of this thread are still waiting"));
            }
            while let Some(agent) = self.ready.pop() {
                left -= usize::from(self.go_on(agent, is_over));
            }
            self.settle();
            if !self.ready.is_empty() {
                continue;
            }
            self.hand_out()?;
            // What is still dirty when all agents are over, the next run writes over.
            if left > 0 || !self.pool.is_idle() || self.with_cleaners > 0 {
                self.pool.turn()?;
            }
            self.take_in();
            self.settle();
        }
        self.done.elapsed = self.begun.elapsed();
        self.done.cache = CacheCounts::between(&before, &self.pool.cache.stats());
        Ok(self.done)
    }

    /// An agent goes on until it has to wait, or its transaction ends. True when it is over.
    fn go_on(&mut self, agent: usize, is_over: bool) -> bool {
        loop {
            if self.agents[agent].uses == 0 {
                if is_over {
                    self.agents[agent].state = State::Over;
                    return true;
                }
                self.agents[agent].begun = Instant::now();
            }
            let page = self.draw();
            let Some(pin) = self.pool.cache.pin_hit(self.pool.object, page) else {
                self.agents[agent].state = State::Pins(page);
                self.ask(agent, CacheOp::Pin { page });
                return false;
            };
            if !self.use_page(agent, pin) {
                return false;
            }
            if self.agents[agent].uses == 0 {
                // The others' turn.
                self.ready.insert(0, agent);
                return false;
            }
        }
    }

    fn draw(&mut self) -> u64 {
        let mix = &self.job.mix;
        let hot = self.pages * mix.hot_pages_percent / 100;
        let number = if self.random.below(100) < mix.hot_uses_percent {
            self.random.below(hot)
        } else {
            hot + self.random.below(self.pages - hot)
        };
        self.scattered.at(number)
    }

    fn ask(&mut self, agent: usize, op: CacheOp) {
        let request = CacheRequest {
            object: self.pool.object,
            op,
            memory: Memory::None,
            hint: Hint::Normal,
        };
        self.pool.cache.start(agent as u64, request);
    }

    /// Works on a page, and changes it if it is to be. False when the agent waits for that.
    fn use_page(&mut self, agent: usize, pin: PagePin) -> bool {
        let mut sum = 0;
        if let Ok(bytes) = self.pool.cache.page(&pin) {
            for _ in 0..self.job.mix.work {
                for word in bytes.as_chunks::<8>().0 {
                    sum = mix(sum ^ u64::from_le_bytes(*word));
                }
            }
        }
        std::hint::black_box(sum);
        if self.random.below(100) < self.job.mix.changed_percent {
            return self.change(agent, pin);
        }
        self.used(agent, pin);
        true
    }

    fn change(&mut self, agent: usize, pin: PagePin) -> bool {
        let for_room = match self.pool.cache.change(&pin, 0) {
            Ok(bytes) => {
                if let Some(first) = bytes.first_mut() {
                    *first = first.wrapping_add(1);
                }
                self.used(agent, pin);
                return true;
            }
            Err(CacheError::BeingWritten) => false,
            Err(CacheError::NoRoom) => true,
            Err(_) => {
                self.done.errors += 1;
                self.used(agent, pin);
                return true;
            }
        };
        let page = pin.page();
        self.agents[agent].state = State::Changes { pin, for_room };
        self.ask(agent, CacheOp::Change { page, lsn: 0 });
        false
    }

    fn used(&mut self, agent: usize, pin: PagePin) {
        self.pool.cache.unpin(pin);
        let agent = &mut self.agents[agent];
        agent.uses += 1;
        if agent.uses >= self.job.mix.pages {
            agent.uses = 0;
            self.done.transactions += 1;
            if let Some(latency) = &mut self.done.latency {
                latency.record(agent.begun.elapsed());
            }
        }
    }

    /// Agents whose page has come, or may be changed, go on.
    fn settle(&mut self) {
        while let Some(done) = self.pool.cache.next_done() {
            let agent = done.owner as usize;
            self.done.errors += u64::from(done.result.is_err());
            let goes_on = match (std::mem::replace(&mut self.agents[agent].state, State::Ready), done.pin) {
                (State::Changes { pin, .. }, _) => self.change(agent, pin),
                (_, Some(pin)) => self.use_page(agent, pin),
                _ => true,
            };
            if goes_on {
                self.ready.push(agent);
            }
        }
    }

    /// Gives what the cache wants to who carries it out.
    fn hand_out(&mut self) -> Result<(), String> {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.extend(std::iter::from_fn(|| self.pool.cache.next_io()));
        for io in &wanted {
            self.mark(&io.kind, true);
        }
        let waiting = self.waiting_agents();
        let are_threads = self.job.cleaners > 0;
        let mut queued = 0;
        for io in wanted.drain(..) {
            let pages = match io.kind {
                IoKind::Write { len, .. } => u64::from(len).div_ceil(PAGE),
                _ => 0,
            };
            if matches!(io.kind, IoKind::Read { .. }) {
                self.pool.start(io)?;
            } else if are_threads {
                self.board.state().waiting[self.index].push_back(io);
                self.with_cleaners += 1;
                queued += 1;
            } else {
                if waiting > 0 {
                    self.done.pages_by_agents += pages;
                } else {
                    self.done.pages_by_cleaners += pages;
                }
                self.pool.start(io)?;
            }
        }
        self.wanted = wanted;
        for _ in 0..queued {
            self.board.work.notify_one();
        }
        while self.by_agents < waiting.min(AGENTS_OWN) && are_threads {
            let Some(io) = self.board.state().waiting[self.index].pop_front() else {
                break;
            };
            if let IoKind::Write { len, .. } = io.kind {
                self.done.pages_by_agents += u64::from(len).div_ceil(PAGE);
            }
            self.with_cleaners -= 1;
            self.by_agents += 1;
            self.pool.start(io)?;
        }
        Ok(())
    }

    /// Agents that cannot go on before something has been written.
    fn waiting_agents(&self) -> usize {
        let waits = |agent: &&Agent| match &agent.state {
            State::Pins(page) => !self.coming[*page as usize],
            State::Changes { for_room, .. } => *for_room,
            State::Ready | State::Over => false,
        };
        self.agents.iter().filter(waits).count()
    }

    fn mark(&mut self, kind: &IoKind, is_coming: bool) {
        if let IoKind::Read { offset, len } = *kind {
            let first = (offset / PAGE) as usize;
            let end = first + (len as usize).div_ceil(PAGE as usize);
            self.coming[first..end].fill(is_coming);
        }
    }

    fn take_in(&mut self) {
        while let Some(ended) = self.pool.ended() {
            if self.job.cleaners > 0 && !matches!(ended.kind, IoKind::Read { .. }) {
                self.by_agents -= 1;
            }
            self.end(ended);
        }
        let from_threads = std::mem::take(&mut self.board.state().ended[self.index]);
        for ended in from_threads {
            self.with_cleaners -= 1;
            if let IoKind::Write { len, .. } = ended.kind {
                self.done.pages_by_cleaners += u64::from(len).div_ceil(PAGE);
            }
            self.end(ended);
        }
    }

    fn end(&mut self, ended: Ended) {
        self.mark(&ended.kind, false);
        self.done.errors += u64::from(ended.result.is_err());
        self.pool.cache.io_ended(ended.id, ended.result, ended.memory);
    }
}
