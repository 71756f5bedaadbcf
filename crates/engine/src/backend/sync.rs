//! Blocking system calls: the shortest backend. It is documentation, fallback and oracle at once; every other backend
//! must give the answers that this one gives.

#![allow(unsafe_code)]

use crate::backend::{Backend, Done, Doorbell, Explain};
use crate::error::{Errno, Error, SetupError};
use crate::request::{Op, RequestId, Wait};
use crate::slot::{Slots, State};
use crate::sys::{self, Action, Iteration};

pub(crate) const NAME: &str = "sync";

pub(crate) struct Sync {
    finished: Vec<(RequestId, i32)>,
    doorbell: Doorbell,
    system_calls: u64,
}

impl Sync {
    pub(crate) fn new(slots: u32) -> Result<Sync, SetupError> {
        Ok(Sync {
            finished: Vec::with_capacity(slots as usize),
            doorbell: Doorbell::new()?,
            system_calls: 0,
        })
    }
}

impl Backend for Sync {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            slots.transition(id, State::Running);
            let raw = match slots.iteration(id, 0) {
                // A pause: here nobody else could go on meanwhile anyway.
                Some(Iteration {
                    action: Action::Timer { at },
                    ..
                }) => {
                    std::thread::sleep(at.since(sys::monotonic()));
                    0
                }
                // SAFETY: the slot owns the memory, and this call ends before anybody can touch the slot.
                Some(iteration) => unsafe { sys::execute(&iteration) },
                None => -libc::EBADF,
            };
            self.system_calls += 1;
            self.finished.push((id, raw));
        }
        queue.len()
    }

    fn turn(&mut self, _: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        done.rang = self.doorbell.silence();
        done.raw.append(&mut self.finished);
        if done.rang || !done.raw.is_empty() {
            return Ok(());
        }
        // Nothing can ever end by itself here, so only the doorbell or the deadline is worth sleeping for.
        if let Wait::Until { deadline, .. } = wait {
            done.rang = self.doorbell.sleep(deadline)?;
            self.system_calls += 1;
        }
        Ok(())
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn explain(&self) -> Explain {
        Explain {
            backend: NAME,
            features: vec![("asynchronous", Err("each request blocks until it has ended".into()))],
        }
    }

    /// A drop concerns this process alone.
    fn disown(self: Box<Self>) {}

    fn refuses(&self, op: Op) -> Option<Error> {
        let waits_for_others = matches!(op, Op::Poll { .. } | Op::Timer { .. }) || op.is_network();
        waits_for_others.then(|| op.unsupported_by(NAME))
    }

    fn gains_by_trial(&self) -> bool {
        false
    }

    fn system_calls(&self) -> u64 {
        self.system_calls
    }
}
