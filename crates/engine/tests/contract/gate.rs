//! A device whose requests end when and how the test says: the simulation behind a gate. What depends on a request being
//! in flight at a certain moment, or on a failure, is shown with it, without a race.

use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use baio_engine::backend::{Attach, Detached, Done};
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Backend, Doorbell, Engine, Errno, Error, Explain, File, Op, RequestId, Slots, Time, Wait};

use crate::backends::{Bench, Stop};

/// Holds back the ends of requests.
#[derive(Clone, Default)]
pub(crate) struct Gate(Rc<RefCell<Held>>);

#[derive(Default)]
struct Held {
    closed: bool,
    ids: Vec<RequestId>,
    /// How many requests from now on the failing one starts, and how it ends.
    fails: Option<(usize, Errno)>,
    doomed: Vec<(RequestId, Errno)>,
    ended: Vec<(RequestId, i32)>,
    /// How often it was asked to explain itself.
    explained: Cell<u64>,
}

impl Gate {
    /// Requests that start from now on do not end.
    pub(crate) fn close(&self) {
        self.0.borrow_mut().closed = true;
    }

    /// Requests that start from now on end as usual; those held stay.
    pub(crate) fn pass_others(&self) {
        self.0.borrow_mut().closed = false;
    }

    /// Of the requests that start from now on, the one behind `others` fails.
    pub(crate) fn fail_behind(&self, others: usize, errno: Errno) {
        self.0.borrow_mut().fails = Some((others, errno));
    }

    /// How often the backend was asked to explain itself.
    #[allow(dead_code, reason = "for the test of forks")]
    pub(crate) fn explained(&self) -> u64 {
        self.0.borrow().explained.get()
    }

    /// Everything ends.
    pub(crate) fn open(&self) {
        let mut held = self.0.borrow_mut();
        held.closed = false;
        held.ids.clear();
    }
}

struct Gated {
    inner: Sim,
    gate: Gate,
}

/// An engine, its gate, and a disk of `size` bytes. Only the simulation's requests can be held.
pub(crate) fn gated(bench: &Bench, size: u64) -> Result<(Engine, Gate, Disk, File), Stop> {
    let Some((disk, file)) = bench.disk(size) else {
        return Err(Stop::Refused("its device cannot be held".into()));
    };
    let gate = Gate::default();
    let backend = Gated {
        inner: Sim::new(1).expect("a simulation"),
        gate: gate.clone(),
    };
    let engine = Engine::with_backend(Box::new(backend), &Bench::config()).expect("an engine");
    Ok((engine, gate, disk, file))
}

impl Backend for Gated {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let mut held = self.gate.0.borrow_mut();
        if held.closed {
            held.ids.extend_from_slice(queue);
        }
        for &id in queue {
            held.fails = match held.fails.take() {
                Some((0, errno)) => {
                    held.doomed.push((id, errno));
                    None
                }
                Some((others, errno)) => Some((others - 1, errno)),
                None => None,
            };
        }
        self.inner.start(slots, queue)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.inner.turn(slots, wait, done)?;
        let mut held = self.gate.0.borrow_mut();
        held.ended.append(&mut done.raw);
        let Held { ids, ended, doomed, .. } = &mut *held;
        for (id, raw) in ended.iter_mut() {
            if let Some(at) = doomed.iter().position(|(doomed, _)| doomed == id) {
                *raw = -doomed.swap_remove(at).1.raw();
            }
        }
        done.raw.extend(ended.extract_if(.., |(id, _)| !ids.contains(id)));
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
        let held = self.gate.0.borrow();
        held.explained.set(held.explained.get() + 1);
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
