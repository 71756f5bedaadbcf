//! The simulation as a backend that sleeps for as many iterations as it is told to, which the simulation alone never does,
//! and an eye on what it is told: to sleep for more than one only when no request is held and nothing that could go on is
//! left lying for longer than a millisecond; never for more than run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use baio_engine::backend::{Backend, Done};
use baio_engine::sim::Sim;
use baio_engine::{Engine, Errno, RequestId, Slots, Wait};

use crate::backends::Bench;
use crate::backends::bent::{self, Bend};

/// As long as a sleep for many may last (docs/inside/engine.md rule 9), and the least time that the simulation lets pass.
const GATHER: Duration = Duration::from_micros(1001);

/// What the test and the backend tell one another.
#[derive(Default)]
pub(crate) struct Eye {
    /// Events in flight: they are no backend's, and nobody waits for a place for them.
    pub(crate) events: AtomicUsize,
    /// How many requests the backend takes at a time; 0: all.
    pub(crate) at_once: AtomicUsize,
    /// Sleeps for more than one.
    pub(crate) for_many: AtomicU64,
    /// What the engine did wrong, first of all.
    pub(crate) fault: OnceLock<String>,
}

pub(crate) struct Lazy {
    eye: Arc<Eye>,
    running: usize,
}

impl Lazy {
    pub(crate) fn engine(seed: u64, eye: &Arc<Eye>) -> Engine {
        let eye = Arc::clone(eye);
        bent::engine(seed, Lazy { eye, running: 0 }, &Bench::config())
    }

    fn look(&self, slots: &Slots, count: usize) {
        let held = slots.in_use() - self.running - self.eye.events.load(Ordering::Relaxed);
        self.eye.for_many.fetch_add(1, Ordering::Relaxed);
        if count > self.running {
            self.blame(format!("a sleep for {count} while {} run", self.running));
        }
        if held > 0 {
            self.blame(format!("a sleep for {count} while {held} are held"));
        }
    }

    fn blame(&self, fault: String) {
        self.eye.fault.get_or_init(|| fault);
    }

    fn one(&mut self, sim: &mut Sim, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        let before = done.raw.len();
        let turned = sim.turn(slots, wait, done);
        self.running -= done.raw.len() - before;
        turned
    }
}

impl Bend for Lazy {
    fn start(&mut self, sim: &mut Sim, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let most = match self.eye.at_once.load(Ordering::Relaxed) {
            0 => queue.len(),
            most => most.min(queue.len()),
        };
        let taken = sim.start(slots, &queue[..most]);
        self.running += taken;
        taken
    }

    fn turn(&mut self, sim: &mut Sim, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        let Wait::Until { count, deadline, .. } = wait else {
            return self.one(sim, slots, wait, done);
        };
        let want = count.max(1) as usize;
        if want > 1 {
            self.look(slots, want);
        }
        let mut first = None;
        loop {
            self.one(sim, slots, wait, done)?;
            let now = sim.now();
            if !done.raw.is_empty() {
                first.get_or_insert(now);
            }
            if done.raw.len() >= want || done.rang || self.running == 0 || deadline.is_some_and(|at| now >= at) {
                break;
            }
        }
        let lay = first.map_or(Duration::ZERO, |at| sim.now().since(at));
        if lay > GATHER {
            self.blame(format!("what had ended lay there for {lay:?}"));
        }
        Ok(())
    }

    fn gains_by_gathering(&self) -> bool {
        true
    }
}
