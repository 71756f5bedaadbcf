//! A device whose requests end when and how the test says: the simulation behind a gate. What depends on a request being
//! in flight at a certain moment, or on a failure, is shown with it, without a race.

use std::sync::{Arc, Mutex, MutexGuard};

use baio_engine::backend::{Backend, Done};
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, Errno, File, RequestId, Slots, Wait};

use crate::backends::bent::{self, Bend};
use crate::backends::{Bench, Stop};

/// Holds back the ends of requests.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    closed: bool,
    ids: Vec<RequestId>,
    /// How many requests from now on the failing one starts, and how it ends.
    fails: Option<(usize, Errno)>,
    doomed: Vec<(RequestId, Errno)>,
    ended: Vec<(RequestId, i32)>,
    /// How often it was asked to explain itself.
    explained: u64,
}

impl Gate {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().expect("no panic meanwhile")
    }

    /// Requests that start from now on do not end.
    pub(crate) fn close(&self) {
        self.held().closed = true;
    }

    /// Requests that start from now on end as usual; those held stay.
    pub(crate) fn pass_others(&self) {
        self.held().closed = false;
    }

    /// Of the requests that start from now on, the one behind `others` fails.
    pub(crate) fn fail_behind(&self, others: usize, errno: Errno) {
        self.held().fails = Some((others, errno));
    }

    /// How often the backend was asked to explain itself.
    #[allow(dead_code, reason = "for the test of forks")]
    pub(crate) fn explained(&self) -> u64 {
        self.held().explained
    }

    /// Everything ends.
    pub(crate) fn open(&self) {
        let mut held = self.held();
        held.closed = false;
        held.ids.clear();
    }
}

/// An engine, its gate, and a disk of `size` bytes. Only the simulation's requests can be held.
pub(crate) fn gated(bench: &Bench, size: u64) -> Result<(Engine, Gate, Disk, File), Stop> {
    let Some((disk, file)) = bench.disk(size) else {
        return Err(Stop::Refused("its device cannot be held".into()));
    };
    let gate = Gate::default();
    let engine = bent::engine(1, gate.clone(), &Bench::config());
    Ok((engine, gate, disk, file))
}

impl Bend for Gate {
    fn start(&mut self, sim: &mut Sim, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let mut held = self.held();
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
        sim.start(slots, queue)
    }

    fn turn(&mut self, sim: &mut Sim, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        sim.turn(slots, wait, done)?;
        let mut held = self.held();
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

    fn is_asked(&self) {
        self.held().explained += 1;
    }
}
