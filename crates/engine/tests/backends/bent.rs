//! The simulation with something bent, for what the simulation alone never does: a device that is held, one that sleeps for
//! many, one that is broken. What is not bent is the simulation's.

use std::os::fd::BorrowedFd;

use baio_engine::backend::{Attach, Detached, Done};
use baio_engine::sim::Sim;
use baio_engine::{Backend, Doorbell, Engine, EngineOptions, Errno, Error, Explain, Op, RequestId, Slots, Time, Wait};

/// What is bent.
pub(crate) trait Bend: Send + 'static {
    fn start(&mut self, sim: &mut Sim, slots: &mut Slots, queue: &[RequestId]) -> usize {
        sim.start(slots, queue)
    }

    fn turn(&mut self, sim: &mut Sim, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        sim.turn(slots, wait, done)
    }

    fn refuses(&self, sim: &Sim, op: Op) -> Option<Error> {
        sim.refuses(op)
    }

    fn now(&self, sim: &Sim) -> Time {
        sim.now()
    }

    /// Somebody asks the backend to explain itself.
    fn is_asked(&self) {}

    fn gains_by_gathering(&self) -> bool {
        false
    }
}

/// An engine on a simulation of this seed.
pub(crate) fn engine(seed: u64, bend: impl Bend, config: &EngineOptions) -> Engine {
    Engine::with_backend(backend(seed, bend), config).expect("an engine")
}

pub(crate) fn backend(seed: u64, bend: impl Bend) -> Box<dyn Backend> {
    let sim = Sim::new(seed).expect("a simulation");
    Box::new(Bent { sim, bend })
}

struct Bent<B> {
    sim: Sim,
    bend: B,
}

impl<B: Bend> Backend for Bent<B> {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        self.bend.start(&mut self.sim, slots, queue)
    }

    fn flush(&mut self) {
        self.sim.flush();
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.bend.turn(&mut self.sim, slots, wait, done)
    }

    fn cancel(&mut self, slots: &Slots, id: RequestId) {
        self.sim.cancel(slots, id);
    }

    fn attach(&mut self, what: Attach<'_>) -> Result<(), Errno> {
        self.sim.attach(what)
    }

    fn detach(&mut self, what: Detached<'_>) {
        self.sim.detach(what);
    }

    fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        self.sim.ready_fd(arm)
    }

    fn doorbell(&self) -> Doorbell {
        self.sim.doorbell()
    }

    fn now(&self) -> Time {
        self.bend.now(&self.sim)
    }

    fn wall_clock(&self) -> Time {
        self.sim.wall_clock()
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        self.sim.random(bytes)
    }

    fn explain(&self) -> Explain {
        self.bend.is_asked();
        self.sim.explain()
    }

    fn refuses(&self, op: Op) -> Option<Error> {
        self.bend.refuses(&self.sim, op)
    }

    fn system_calls(&self) -> u64 {
        self.sim.system_calls()
    }

    fn gains_by_gathering(&self) -> bool {
        self.bend.gains_by_gathering()
    }
}
