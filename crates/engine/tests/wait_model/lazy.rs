//! The simulation as a backend that sleeps for as many iterations as it is told to, which the simulation alone never does,
//! and an eye on what it is told: to sleep for more than one only when no request is held and nothing that could go on is
//! left lying for longer than a millisecond; never for more than run.

use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use baio_engine::backend::{Attach, Detached, Done};
use baio_engine::sim::Sim;
use baio_engine::{Backend, Doorbell, Engine, Errno, Error, Explain, Op, RequestId, Slots, Time, Wait};

use crate::backends::Bench;

/// As long as a sleep for many may last (docs/engine.md rule 9), and the least time that the simulation lets pass.
const GATHER: Duration = Duration::from_micros(1001);

/// What the test and the backend tell one another.
#[derive(Default)]
pub(crate) struct Eye {
    /// Events in flight: they are no backend's, and nobody waits for a place for them.
    pub(crate) events: Cell<usize>,
    /// How many requests the backend takes at a time; 0: all.
    pub(crate) at_once: Cell<usize>,
    /// Sleeps for more than one.
    pub(crate) for_many: Cell<u64>,
    /// What the engine did wrong, first of all.
    pub(crate) fault: RefCell<Option<String>>,
}

pub(crate) struct Lazy {
    inner: Sim,
    eye: Rc<Eye>,
    running: usize,
}

impl Lazy {
    pub(crate) fn engine(seed: u64, eye: &Rc<Eye>) -> Engine {
        let lazy = Lazy {
            inner: Sim::new(seed).expect("a simulation"),
            eye: Rc::clone(eye),
            running: 0,
        };
        Engine::with_backend(Box::new(lazy), &Bench::config()).expect("an engine")
    }

    fn look(&self, slots: &Slots, count: usize) {
        let held = slots.in_use() - self.running - self.eye.events.get();
        self.eye.for_many.set(self.eye.for_many.get() + 1);
        if count > self.running {
            self.blame(format!("a sleep for {count} while {} run", self.running));
        }
        if held > 0 {
            self.blame(format!("a sleep for {count} while {held} are held"));
        }
    }

    fn blame(&self, fault: String) {
        self.eye.fault.borrow_mut().get_or_insert(fault);
    }

    fn one(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        let before = done.raw.len();
        let turned = self.inner.turn(slots, wait, done);
        self.running -= done.raw.len() - before;
        turned
    }
}

impl Backend for Lazy {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let most = match self.eye.at_once.get() {
            0 => queue.len(),
            most => most.min(queue.len()),
        };
        let taken = self.inner.start(slots, &queue[..most]);
        self.running += taken;
        taken
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        let Wait::Until { count, deadline, .. } = wait else {
            return self.one(slots, wait, done);
        };
        let want = count.max(1) as usize;
        if want > 1 {
            self.look(slots, want);
        }
        let mut first = None;
        loop {
            self.one(slots, wait, done)?;
            let now = self.inner.now();
            if !done.raw.is_empty() {
                first.get_or_insert(now);
            }
            if done.raw.len() >= want || done.rang || self.running == 0 || deadline.is_some_and(|at| now >= at) {
                break;
            }
        }
        let lay = first.map_or(Duration::ZERO, |at| self.inner.now().since(at));
        if lay > GATHER {
            self.blame(format!("what had ended lay there for {lay:?}"));
        }
        Ok(())
    }

    fn gains_by_gathering(&self) -> bool {
        true
    }

    fn cancel(&mut self, slots: &Slots, id: RequestId) {
        self.inner.cancel(slots, id);
    }

    fn attach(&mut self, what: Attach<'_>) -> Result<(), Errno> {
        self.inner.attach(what)
    }

    fn detach(&mut self, what: Detached<'_>) {
        self.inner.detach(what);
    }

    fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        self.inner.ready_fd(arm)
    }

    fn doorbell(&self) -> Doorbell {
        self.inner.doorbell()
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        self.inner.random(bytes)
    }

    fn explain(&self) -> Explain {
        self.inner.explain()
    }

    fn refuses(&self, op: Op) -> Option<Error> {
        self.inner.refuses(op)
    }

    fn disown(&mut self) {
        self.inner.disown();
    }

    fn system_calls(&self) -> u64 {
        self.inner.system_calls()
    }
}
