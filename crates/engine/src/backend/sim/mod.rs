//! A simulated machine: virtual time, choices that follow from a seed, and disks in memory that take their time, fail as
//! disks do, and record what is done to them. It is always compiled and public, so that users can test their own formats
//! with it; `docs/inside/simulation.md` tells how, and what is not simulated.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | an engine's place on a machine |
//! | `machine.rs` | the machine, which one engine has or several: which event is next |
//! | [`disk`] | a disk: bytes, record, faults, power |
//! | `cache.rs` | what of it a power cut takes |
//! | [`profile`] | how long it takes: instant, flash, rotating |
//! | [`faults`] | what goes wrong, and when |
//! | `execute.rs` | what one iteration does |
//! | [`log`], [`crash`] | the record, and every crash that can be cut from it |
//! | `trace.rs` | one number for all that happened |
//!
//! An iteration reaches its disk when it is started (later, with [`Fault::Delay`]), waits there until the profile begins it,
//! and moves its bytes in the moment in which it ends. A write is recorded then, for then it has reached the disk's cache;
//! a flush covers the writes that had ended when it reached the disk. A turn jumps to the next event, so time costs nothing.
//!
//! # A format of your own, through every power cut
//!
//! A value of four bytes is kept in two sectors in turn, with its number and a check word; opening takes the newest that is
//! whole. Whatever moment the power fails at, what was acknowledged must be found again.
//!
//! ```
//! use baio_engine::sim::{Disk, Sim};
//! use baio_engine::{EngineOptions, Durability, Engine, Error, File, Policy, Request};
//!
//! fn engine(seed: u64) -> Engine {
//!     let config = EngineOptions { slots: 8, arena_bytes: 1 << 20, ..EngineOptions::default() };
//!     Engine::simulated(Sim::new(seed).unwrap(), &config).unwrap()
//! }
//!
//! fn save(engine: &mut Engine, file: &File, number: u32, value: u32) -> Result<u32, Error> {
//!     let mut sector = engine.buffer(512).unwrap();
//!     sector.fill(0);
//!     for (at, word) in [number, value, number ^ value ^ 0x5eed].into_iter().enumerate() {
//!         sector[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
//!     }
//!     let policy = Policy::direct().durable(Durability::Data); // Without this the assertion below fails.
//!     engine.run(Request::write(file, u64::from(number % 2) * 512, sector, policy)).result
//! }
//!
//! fn load(engine: &mut Engine, file: &File) -> Option<(u32, u32)> {
//!     let sectors = engine.buffer(1024).unwrap();
//!     let sectors = engine.run(Request::read(file, 0, sectors, Policy::direct())).memory.into_buffer()?;
//!     let word = |at: usize| u32::from_le_bytes(sectors[at..at + 4].try_into().unwrap());
//!     let whole = [0, 512].into_iter().filter(|at| word(*at) ^ word(at + 4) ^ 0x5eed == word(at + 8));
//!     whole.map(|at| (word(at), word(at + 4))).max()
//! }
//!
//! for steps in 0.. {
//!     let disk = Disk::new(4096);
//!     disk.cut_power_after(steps, steps); // After so many steps; what is torn follows from the seed.
//!     let (mut engine1, file, mut acknowledged) = (engine(1), File::simulated(&disk, "mine"), 0);
//!     for number in 1..=10 {
//!         if save(&mut engine1, &file, number, number * 7).is_err() {
//!             break;
//!         }
//!         acknowledged = number;
//!     }
//!     let Some(left) = disk.surviving() else { break }; // The power outlasted the workload: all is tried.
//!     let found = load(&mut engine(2), &File::simulated(&left, "mine"));
//!     let (number, value) = found.unwrap_or_default();
//!     assert!(number >= acknowledged && value == number * 7, "after {steps} steps: {found:?}");
//! }
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{Backend, Done, Doorbell, Explain};
use crate::error::{Errno, Error, SetupError};
use crate::policy::Time;
use crate::request::{Op, RequestId, Wait};
use crate::slot::Slots;

mod cache;
pub mod crash;
pub mod disk;
mod execute;
pub mod faults;
mod job;
pub mod log;
mod machine;
mod pages;
pub mod profile;
mod random;
mod trace;

pub use disk::Disk;
pub use faults::{Fault, FaultCounts, Faults, Injected, Trigger};
pub use profile::{Flash, Profile, Rotating};
pub use random::Random;
pub use trace::SimHandle;

use job::Owner;
use machine::Machine;

const NAME: &str = "sim";

/// The simulated backend: the place of one engine on a machine.
///
/// [`Sim::beside`] gives another engine a place on the same machine. They share its clock, its dice, and one queue a disk, as
/// processes on one computer do. One thread that turns them in an order of its own gets the same run again from the same seed.
pub struct Sim {
    machine: Arc<Mutex<Machine>>,
    /// Which of the machine's engines.
    engine: usize,
    trace: SimHandle,
    doorbell: Doorbell,
}

impl Sim {
    /// A machine whose choices follow from `seed`.
    ///
    /// # Errors
    /// When the doorbell's event fd cannot be made.
    pub fn new(seed: u64) -> Result<Sim, SetupError> {
        let trace = SimHandle::new();
        let machine = Arc::new(Mutex::new(Machine::new(seed, trace.clone())));
        Sim::on(machine, trace)
    }

    /// The place of one more engine on this machine. What an engine that is dropped had begun goes on, as long as another
    /// engine lets time pass: the disk knows nothing of engines.
    ///
    /// A turn that sleeps lets time pass for all. It comes back early when something has ended for another engine, which
    /// may be what its caller waits for; and when nothing is planned at all, since then nothing but another engine's turn will
    /// bring anything. So engines that one thread turns by turns never wait for one another.
    ///
    /// # Errors
    /// When the doorbell's event fd cannot be made.
    pub fn beside(&self) -> Result<Sim, SetupError> {
        Sim::on(Arc::clone(&self.machine), self.trace.clone())
    }

    fn on(machine: Arc<Mutex<Machine>>, trace: SimHandle) -> Result<Sim, SetupError> {
        let doorbell = Doorbell::new()?;
        let engine = locked(&machine).add_engine();
        Ok(Sim {
            machine,
            engine,
            trace,
            doorbell,
        })
    }

    /// A view on this machine that stays when an engine owns it.
    #[must_use]
    pub fn handle(&self) -> SimHandle {
        self.trace.clone()
    }

    fn owner(&self, id: RequestId) -> Owner {
        Owner {
            engine: self.engine,
            id,
        }
    }
}

fn locked(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    // Whoever panics meanwhile is a test that is about to fail.
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for Sim {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let mut machine = locked(&self.machine);
        for &id in queue {
            machine.start(slots, self.owner(id));
        }
        queue.len()
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        done.rang = self.doorbell.silence();
        let mut machine = locked(&self.machine);
        match wait {
            Wait::Until { deadline, .. } if !done.rang && !machine.has_news(self.engine) => {
                done.rang = machine.sleep(self.engine, deadline);
            }
            _ => machine.pass_a_tick(),
        }
        for outcome in machine.take_news(self.engine) {
            slots.copy_in(outcome.id, &outcome.bytes);
            done.raw.push((outcome.id, outcome.raw));
        }
        Ok(())
    }

    /// What waits for its disk is called back. What the disk works on, sometimes: as with a real one, whoever cancels has to
    /// wait for the end and look.
    fn cancel(&mut self, _: &Slots, id: RequestId) {
        locked(&self.machine).cancel(self.owner(id));
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn now(&self) -> Time {
        self.trace.now()
    }

    fn wall_clock(&self) -> Time {
        self.trace.now()
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        locked(&self.machine).identify(bytes);
        Ok(())
    }

    fn explain(&self) -> Explain {
        Explain::named(NAME)
    }

    /// A drop concerns this process alone.
    fn disown(self: Box<Self>) {}

    fn refuses(&self, op: Op) -> Option<Error> {
        (!op.is_for_disks()).then(|| op.unsupported_by(NAME))
    }
}
