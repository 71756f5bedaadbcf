//! A device whose requests end when the test says, and whose backend breaks or panics when the test says: the simulation
//! behind a gate that other threads can turn.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use baio::{Core, Identity, Options, Remote};
use baio_engine::backend::{Attach, Detached, Done};
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Backend, Config, Doorbell, Engine, Errno, Error, Explain, File, Op, RequestId, Slots, Time, Wait};
use baio_storage::format_simulated;

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const BROKEN: u8 = 2;
const PANIC: u8 = 3;
const PANICKED: u8 = 4;

#[derive(Clone, Default)]
pub struct Gate(Arc<AtomicU8>, Arc<AtomicUsize>);

impl Gate {
    /// Requests do not end from now on.
    pub fn close(&self) {
        self.1.store(0, Ordering::SeqCst);
        self.0.store(CLOSED, Ordering::SeqCst);
    }

    /// Waits until the device has so many requests, counted from the closing of the gate.
    pub fn wait_for(&self, requests: usize) {
        let guard = std::time::Instant::now();
        while self.1.load(Ordering::SeqCst) < requests {
            assert!(guard.elapsed() < Duration::from_secs(20), "requests were not sent");
            std::thread::yield_now();
        }
    }

    /// They do.
    pub fn open(&self) {
        self.0.store(OPEN, Ordering::SeqCst);
    }

    /// The backend's turns fail.
    pub fn break_it(&self) {
        self.0.store(BROKEN, Ordering::SeqCst);
    }

    /// The next turn panics, in the service's thread.
    pub fn panic(&self) {
        self.0.store(PANIC, Ordering::SeqCst);
    }
}

struct Gated {
    inner: Sim,
    gate: Gate,
    ended: Vec<(RequestId, i32)>,
}

/// A volume of 16 MiB on a simulated disk behind a gate.
pub fn gated() -> (Gate, Remote) {
    let gate = Gate::default();
    let inside = gate.clone();
    let config = Config {
        slots: 128,
        arena_bytes: 8 << 20,
        ..Config::default()
    };
    let options = Options {
        identity: Identity::effective(),
        config,
        ..Options::default()
    };
    let make = move || {
        let disk = Disk::new(16 << 20);
        let file = File::simulated(&disk, "gated");
        let backend = Gated {
            inner: Sim::new(1).expect("a simulation"),
            gate: inside,
            ended: Vec::new(),
        };
        let mut engine = Engine::with_backend(Box::new(backend), &config).expect("an engine");
        format_simulated(&mut engine, &file, &baio::Format::default())?;
        Core::open_simulated(engine, &file, &config)
    };
    (gate, Remote::around(make, &options).unwrap())
}

impl Backend for Gated {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let taken = self.inner.start(slots, queue);
        self.gate.1.fetch_add(taken, Ordering::SeqCst);
        taken
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.inner.turn(slots, Wait::No, done)?;
        self.ended.append(&mut done.raw);
        match self.gate.0.load(Ordering::SeqCst) {
            OPEN | PANICKED => done.raw.append(&mut self.ended),
            BROKEN => {
                done.raw.append(&mut self.ended); // So that dropping the engine does not wait for them.
                return Err(Errno::EIO);
            }
            PANIC => {
                self.gate.0.store(PANICKED, Ordering::SeqCst);
                panic!("the test wants the service to panic");
            }
            _ => {}
        }
        if wait != Wait::No && done.raw.is_empty() && !done.rang {
            std::thread::sleep(Duration::from_micros(200)); // The doorbell is looked at by the next turn.
        }
        Ok(())
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

    fn system_calls(&self) -> u64 {
        self.inner.system_calls()
    }
}
