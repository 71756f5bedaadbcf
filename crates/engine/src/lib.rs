//! # baio-engine: asynchronous I/O on files and devices
//!
//! The life of one request:
//!
//! 1. The caller describes it: a [`Request`] is an operation, a [`File`], [`Memory`] and a [`Policy`]. Plain data.
//! 2. [`Engine::submit`] puts it in a slot of a fixed table, which owns its memory and its file from now on, and queues it.
//!    Nothing has reached the kernel yet.
//! 3. [`Engine::turn`] hands everything that is queued to the backend in one batch, sleeps as long as it is told, and reads
//!    the raw results. A request that is not finished continues where it stopped, in a new iteration.
//! 4. [`Engine::next_completion`] gives exactly one [`Completion`] per request, with its memory.
//!
//! ```
//! use baio_engine::{EngineOptions, Create, Engine, File, Open, Policy, Request, Wait};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("baio-engine-{}", std::process::id()));
//! let mut engine = Engine::new(&EngineOptions::default())?;
//! let file = File::open(&dir, &Open { create: Create::IfMissing, ..Open::write() })?;
//! let mut buffer = engine.buffer(4096).ok_or("the arena is used up")?;
//! buffer.fill(7);
//! engine.submit(Request::write(&file, 0, buffer, Policy::kernel())).map_err(|_| "full")?;
//! engine.turn(Wait::one())?;
//! let completion = engine.next_completion().ok_or("nothing completed")?;
//! assert_eq!(completion.result, Ok(4096));
//! # std::fs::remove_file(dir)?;
//! # Ok(()) }
//! ```
//!
//! The rules that hold on every backend are in `docs/inside/engine.md`; the states of a request stand at the top of `slot.rs`, the
//! contract of a backend at the top of `backend/mod.rs`, and the shortest backend is `backend/sync.rs`.
//!
//! Sources: seed 000 and seed 001 §2-3 (iterations and retries), seed 004 §4 and §6 (many operations in one call, notice by
//! a status word).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod address;
mod affinity;
pub mod backend;
mod completion;
mod device;
mod durable;
mod engine;
mod error;
mod file;
mod fork;
mod histogram;
mod judge;
pub mod memory;
mod policy;
mod probe;
mod request;
mod signals;
mod slot;
mod stats;
mod sys;
mod timers;
mod trial;
mod validate;

pub use address::Address;
pub use affinity::Affinity;
pub use backend::uring::shared;
pub use backend::{BATCH_MAX, Backend, Doorbell, Explain, sim};
pub use baio_process::kernel;
pub use completion::{Completion, Notice};
pub use device::{Device, DirectLimits, DurableBy, Kind};
pub use engine::{Choice, Engine, EngineOptions, Rejected};
pub use error::{Argument, Errno, Error, SetupError};
pub use file::{Create, Descriptions, File, LockHolder, Open, path_name};
pub use histogram::Histogram;
pub use memory::{Arena, Buffer, CHUNK, Foreign, Frozen, Lent, Memory, Region, RegionError, Span, Vectored};
pub use policy::{Caching, Durability, Patience, Policy, Space, Time};
pub use probe::try_the_kernel;
pub use request::{Op, Request, RequestId, Wait};
pub use signals::Signals;
pub use slot::{Slots, Work};
pub use stats::{Measured, Measures, Stats};
