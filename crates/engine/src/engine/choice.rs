//! What an engine is started with: which backend, and how large. The better backends are tried first.

use std::sync::OnceLock;

use baio_process::kernel;

use crate::affinity::Affinity;
use crate::backend::Backend;
use crate::backend::aio::{self, Aio};
use crate::backend::sync::{self, Sync};
use crate::backend::threads::pool::Limits;
use crate::backend::threads::{self, Threads};
use crate::backend::uring::{self, Uring};
use crate::error::{Errno, SetupError};
use crate::slot;

/// Beyond this, [`EngineOptions::pool_threads`] is taken for this: more threads than a process may have (PID_MAX_LIMIT).
const POOL_THREADS_MAX: u32 = 1 << 20;

/// What a program has said of all backends ([`Choice::rule`]).
static RULE: OnceLock<(Choice, Ask)> = OnceLock::new();
/// May this backend be tried here?
type Ask = fn(Choice) -> Result<(), SetupError>;

/// Which backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best that works here, found by trying.
    #[default]
    Auto,
    /// Blocking system calls.
    Sync,
    /// Blocking system calls in worker threads.
    Threads,
    /// Native Linux AIO, and worker threads for what it cannot do.
    Aio,
    /// io_uring.
    Uring,
}

impl Choice {
    /// Every choice.
    pub const ALL: [Choice; 5] = [Choice::Auto, Choice::Sync, Choice::Threads, Choice::Aio, Choice::Uring];

    /// The word used in every message and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Choice::Auto => "auto",
            Choice::Sync => sync::NAME,
            Choice::Threads => threads::NAME,
            Choice::Aio => aio::NAME,
            Choice::Uring => uring::NAME,
        }
    }

    /// For a program, before its first engine: what [`Choice::Auto`] is in this process, and who is asked before a backend is tried. A
    /// filter of system calls may kill whoever tries one. Only the first word counts.
    pub fn rule(auto: Choice, ask: fn(Choice) -> Result<(), SetupError>) {
        let _ = RULE.set((auto, ask));
    }

    /// Starts the backend; with `Auto` the best that starts, and then `rejected` says why the better ones did not.
    pub(super) fn start(
        self,
        config: &EngineOptions,
        rejected: &mut Vec<Rejected>,
    ) -> Result<Box<dyn Backend>, SetupError> {
        match RULE.get() {
            Some((auto, _)) if self == Choice::Auto && *auto != Choice::Auto => return auto.start(config, rejected),
            Some((_, ask)) if self != Choice::Auto => ask(self)?,
            _ => {}
        }
        let threads = config.pool_threads.min(POOL_THREADS_MAX);
        let limits = Limits {
            wide: threads * 4,
            narrow: threads,
            stream: threads / 4,
        };
        Ok(match self {
            Choice::Auto => {
                // Only the last can hardly fail; its error is then the one to tell.
                for better in [Choice::Uring, Choice::Aio, Choice::Threads] {
                    match better.start(config, rejected) {
                        Ok(backend) => return Ok(backend),
                        Err(error) => rejected.push(Rejected {
                            backend: better.name(),
                            reason: error.errno.to_string(),
                            cure: error.cure,
                        }),
                    }
                }
                return Choice::Sync.start(config, rejected);
            }
            Choice::Sync => Box::new(Sync::new(config.slots)?),
            Choice::Threads => Box::new(Threads::new(config.slots, limits)?),
            Choice::Aio => Box::new(Aio::new(config.slots, limits)?),
            Choice::Uring => Box::new(Uring::new(config.slots, config.affinity)?),
        })
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Choice {
    type Err = String;

    /// The choice of that name.
    fn from_str(word: &str) -> Result<Choice, String> {
        let found = Choice::ALL.into_iter().find(|choice| choice.name() == word);
        found.ok_or_else(|| {
            format!(
                "`{word}` is not a backend: {}",
                Choice::ALL.map(Choice::name).join(", ")
            )
        })
    }
}

/// Options of an engine, the part that gives requests to the kernel: how many, with how much memory, by which backend.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// How requests go to the kernel: io_uring, Linux AIO, threads or plain system calls.
    pub backend: Choice,
    /// Which threads may use the engine.
    pub affinity: Affinity,
    /// How many requests can be in flight, outcomes that were not taken included; at most [`EngineOptions::SLOTS_MAX`]. A future that is not polled
    /// again, or a ticket whose outcome is not taken, keeps its slot. If these hold all slots, other requests wait for ever.
    pub slots: u32,
    /// Slots that [`Engine::submit`](crate::Engine::submit) leaves to
    /// [`Engine::submit_reserved`](crate::Engine::submit_reserved): for write-back, log and metadata.
    pub reserved_slots: u32,
    /// Buffer memory in bytes, mapped lazily.
    pub arena_bytes: usize,
    /// Register the buffer memory with the kernel. That pins all of it at once, and saves some work for each request.
    pub register_arena: bool,
    /// How many worker threads the backends `threads` and `aio` may have for writes through the kernel's cache, syncs and allocations. Reads
    /// and direct writes, which only wait for the device, have up to four times as many of their own, and streams that cannot be
    /// tried without blocking a quarter. That is 84 in all by default. A thread is started only when it is needed.
    pub pool_threads: u32,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            backend: Choice::Auto,
            affinity: Affinity::OneThread,
            slots: 1024,
            reserved_slots: 64,
            arena_bytes: 64 << 20,
            register_arena: false,
            pool_threads: 16,
        }
    }
}

impl EngineOptions {
    /// The largest [`EngineOptions::slots`]: each takes memory from the start on.
    pub const SLOTS_MAX: u32 = slot::SLOTS_MAX;

    /// Can an engine be started with this?
    ///
    /// # Errors
    /// `EINVAL`, with what is too large.
    pub fn check(&self) -> Result<(), SetupError> {
        if let Err(why) = kernel::taken_away() {
            return Err(
                SetupError::new("take away what", format!("{} names", kernel::LACKS), Errno::EINVAL)
                    .need(why)
                    .cure("correct the variable, or take it out of the environment"),
            );
        }
        if self.slots <= EngineOptions::SLOTS_MAX {
            return Ok(());
        }
        let asked = format!("{} slots", self.slots);
        Err(SetupError::new("start an engine with", asked, Errno::EINVAL)
            .need(format!("at most {} slots", EngineOptions::SLOTS_MAX))
            .cure("ask for fewer slots"))
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
