//! A simulated machine under a service, whose device hangs when the test says so.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baio_engine::backend::{Attach, Backend, Detached, Done, Doorbell, Explain};
use baio_engine::sim::Sim;
use baio_engine::{Config, Engine, Errno, Error, RequestId, Slots, Time, Wait};

use super::Client;
use super::tested::Tested;

/// Slots that requests of a client get; as many are reserved.
pub(crate) const SLOTS: u32 = 8;

/// A simulated machine whose device hangs, and whose time passes, as the test says.
#[derive(Clone, Default)]
pub(crate) struct Machine {
    hangs: Arc<AtomicBool>,
    skipped_ns: Arc<AtomicU64>,
    now_ns: Arc<AtomicU64>,
    turns: Arc<AtomicU64>,
    /// What the service's thread runs where a command asks for the counters.
    at_counters: Arc<Mutex<Option<Act>>>,
}

type Act = Box<dyn FnMut() + Send>;

impl Machine {
    pub(crate) fn hangs(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.skipped_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    /// How often the backend was turned.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }

    pub(crate) fn at_counters(&self, act: impl FnMut() + Send + 'static) {
        *self.at_counters.lock().unwrap() = Some(Box::new(act));
    }

    /// A moment after the service's last turn.
    pub(crate) fn after(&self, time: Duration) -> Option<Time> {
        Some(Time(self.now_ns.load(Ordering::SeqCst)).after(time))
    }

    pub(crate) fn client(&self) -> Client {
        self.client_of()
    }

    /// The client of a service around this, on this machine.
    pub(crate) fn client_of<S: Tested>(&self) -> Client<S> {
        let machine = self.clone();
        Client::of(2 * SLOTS, tempfile::tempdir().unwrap(), move || {
            let config = Config {
                slots: 2 * SLOTS,
                arena_bytes: 1 << 20,
                ..Config::default()
            };
            let device = Hanging {
                sim: Sim::new(2).unwrap(),
                machine,
                kept: Vec::new(),
            };
            let engine = Engine::with_backend(Box::new(device), &config).unwrap();
            Ok(S::simulated(engine, &config))
        })
    }
}

struct Hanging {
    sim: Sim,
    machine: Machine,
    /// What the device tells when it hangs no more.
    kept: Vec<(RequestId, i32)>,
}

impl Backend for Hanging {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        self.sim.start(slots, queue)
    }

    fn flush(&mut self) {
        self.sim.flush();
    }

    fn turn(&mut self, slots: &mut Slots, _: Wait, done: &mut Done) -> Result<(), Errno> {
        // Time does not jump to the next event: the test says how it passes.
        self.sim.turn(slots, Wait::No, done)?;
        self.machine.now_ns.store(self.now().0, Ordering::SeqCst);
        self.machine.turns.fetch_add(1, Ordering::SeqCst);
        self.kept.append(&mut done.raw);
        if !self.machine.hangs.load(Ordering::SeqCst) {
            done.raw.append(&mut self.kept);
        }
        std::thread::yield_now();
        Ok(())
    }

    fn cancel(&mut self, slots: &Slots, id: RequestId) {
        if !self.machine.hangs.load(Ordering::SeqCst) {
            self.sim.cancel(slots, id);
        }
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
        let skipped = self.machine.skipped_ns.load(Ordering::SeqCst);
        self.sim.now().after(Duration::from_nanos(skipped))
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        self.sim.random(bytes)
    }

    fn explain(&self) -> Explain {
        if let Some(act) = &mut *self.machine.at_counters.lock().unwrap() {
            act();
        }
        self.sim.explain()
    }

    fn refuses(&self, op: baio_engine::Op) -> Option<Error> {
        self.sim.refuses(op)
    }

    fn system_calls(&self) -> u64 {
        self.sim.system_calls()
    }
}
