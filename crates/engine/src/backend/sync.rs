//! Blocking system calls: the shortest backend. It is documentation, fallback and oracle at once; every other backend
//! must give the answers that this one gives.

#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use crate::backend::{Attach, Backend, Detached, Done, Doorbell, Explain, system_random};
use crate::error::{Errno, Error, SetupError};
use crate::policy::Time;
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

    fn flush(&mut self) {}

    fn turn(&mut self, _: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        done.rang = self.doorbell.silence();
        done.raw.append(&mut self.finished);
        if done.rang || !done.raw.is_empty() {
            return Ok(());
        }
        // Nothing can ever end by itself here, so only the doorbell or the deadline is worth sleeping for.
        if let Wait::Until { deadline, .. } = wait {
            let timeout = deadline.map(|at| at.since(sys::monotonic()));
            done.rang = wait_for_doorbell(&self.doorbell, timeout)?;
            self.system_calls += 1;
        }
        Ok(())
    }

    fn cancel(&mut self, _: &Slots, _: RequestId) {}

    fn attach(&mut self, _: Attach<'_>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn detach(&mut self, _: Detached<'_>) {}

    fn ready_fd(&mut self, _: bool) -> Option<BorrowedFd<'_>> {
        None
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn now(&self) -> Time {
        sys::monotonic()
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        system_random(bytes)
    }

    fn explain(&self) -> Explain {
        Explain {
            backend: NAME,
            features: vec![("asynchronous", Err("each request blocks until it has ended".into()))],
        }
    }

    fn refuses(&self, op: Op) -> Option<Error> {
        let waits_for_others = matches!(op, Op::Poll { .. } | Op::Timer { .. }) || op.is_network();
        waits_for_others.then_some(Error::Unsupported {
            operation: op.name(),
            backend: NAME,
        })
    }

    fn gains_by_trial(&self) -> bool {
        false
    }

    fn disown(&mut self) {}

    fn system_calls(&self) -> u64 {
        self.system_calls
    }
}

fn wait_for_doorbell(doorbell: &Doorbell, timeout: Option<std::time::Duration>) -> Result<bool, Errno> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = timeout.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    match poll(&mut [PollFd::new(doorbell.fd(), PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(doorbell.silence()),
        Err(errno) => Err(errno.into()),
    }
}
