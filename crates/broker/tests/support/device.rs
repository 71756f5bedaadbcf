//! A simulated device whose requests end, whose time passes and whose backend breaks as the test says, from any thread. The
//! tests of the library use it too.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

#[path = "../../../engine/tests/backends/bent.rs"]
mod bent;

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baio_engine::backend::Done;
use baio_engine::sim::Sim;
use baio_engine::{Backend, Errno, RequestId, Slots, Time, Wait};

use bent::Bend;

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const BROKEN: u8 = 2;
const PANIC: u8 = 3;
const PANICKED: u8 = 4;

/// What the test says. Clones are the same.
#[derive(Clone, Default)]
pub struct Gate(Arc<Said>);

#[derive(Default)]
struct Said {
    state: AtomicU8,
    started: AtomicUsize,
    skipped_ns: AtomicU64,
    now_ns: AtomicU64,
    turns: AtomicU64,
    /// What the thread that turns it runs where it is asked for its name.
    at_explain: Mutex<Option<Act>>,
}

type Act = Box<dyn FnMut() + Send>;

impl Gate {
    /// Requests do not end from now on.
    pub fn close(&self) {
        self.0.started.store(0, Ordering::SeqCst);
        self.0.state.store(CLOSED, Ordering::SeqCst);
    }

    /// Waits until the device has so many requests, counted from the closing of the gate.
    pub fn wait_for(&self, requests: usize) {
        let guard = std::time::Instant::now();
        while self.0.started.load(Ordering::SeqCst) < requests {
            assert!(guard.elapsed() < Duration::from_secs(20), "requests were not sent");
            std::thread::yield_now();
        }
    }

    /// They do.
    pub fn open(&self) {
        self.0.state.store(OPEN, Ordering::SeqCst);
    }

    /// The backend's turns fail.
    pub fn break_it(&self) {
        self.0.state.store(BROKEN, Ordering::SeqCst);
    }

    /// The next turn panics, in the service's thread.
    pub fn panic(&self) {
        self.0.state.store(PANIC, Ordering::SeqCst);
    }

    /// So much time is over at once.
    pub fn pass(&self, time: Duration) {
        self.0.skipped_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    /// A moment after the last turn.
    pub fn after(&self, time: Duration) -> Option<Time> {
        Some(Time(self.0.now_ns.load(Ordering::SeqCst)).after(time))
    }

    /// How often the backend was turned.
    pub fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::SeqCst)
    }

    pub fn at_explain(&self, act: impl FnMut() + Send + 'static) {
        *self.0.at_explain.lock().unwrap() = Some(Box::new(act));
    }

    /// A backend that obeys it.
    pub fn backend(&self) -> Box<dyn Backend> {
        let kept = Vec::new();
        bent::backend(
            2,
            Gated {
                gate: self.clone(),
                kept,
            },
        )
    }
}

struct Gated {
    gate: Gate,
    /// What the device tells when the gate is open.
    kept: Vec<(RequestId, i32)>,
}

impl Bend for Gated {
    fn start(&mut self, sim: &mut Sim, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let taken = sim.start(slots, queue);
        self.gate.0.started.fetch_add(taken, Ordering::SeqCst);
        taken
    }

    /// Time does not jump to the next event: the test says how it passes.
    fn turn(&mut self, sim: &mut Sim, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        sim.turn(slots, Wait::No, done)?;
        let said = &self.gate.0;
        said.now_ns.store(self.now(sim).0, Ordering::SeqCst);
        said.turns.fetch_add(1, Ordering::SeqCst);
        self.kept.append(&mut done.raw);
        match said.state.load(Ordering::SeqCst) {
            OPEN | PANICKED => done.raw.append(&mut self.kept),
            BROKEN => {
                done.raw.append(&mut self.kept); // So that dropping the engine does not wait for them.
                return Err(Errno::EIO);
            }
            PANIC => {
                said.state.store(PANICKED, Ordering::SeqCst);
                panic!("the test wants the service to panic");
            }
            _ => {}
        }
        if wait != Wait::No && done.raw.is_empty() && !done.rang {
            std::thread::sleep(Duration::from_micros(200)); // The doorbell is looked at by the next turn.
        }
        Ok(())
    }

    fn now(&self, sim: &Sim) -> Time {
        let skipped = self.gate.0.skipped_ns.load(Ordering::SeqCst);
        sim.now().after(Duration::from_nanos(skipped))
    }

    fn is_asked(&self) {
        if let Some(act) = &mut *self.gate.0.at_explain.lock().unwrap() {
            act();
        }
    }
}
