//! Threads: what runs where there is neither io_uring nor native AIO, and beside the latter whatever that cannot do.
//!
//! Iterations that would block go to a bounded pool of workers, each of which makes the system call that `sync` would make;
//! so the answers are those of `sync`. Nothing that waits for somebody else takes a worker: streams are tried without
//! waiting and then watched, timers are a heap, and the owner sleeps on all of it at once.
//!
//! | file | what it holds |
//! |---|---|
//! | `route.rs` | who runs which iteration: one table |
//! | `pool.rs` | the workers, and the hand-over both ways |
//! | `readiness.rs` | who waits for which descriptor |
//! | `streams.rs` | one try at a stream, without waiting |
//! | `timers.rs` | the heap |
//! | `helper.rs` | these four together, as `threads` and `aio` use them |

pub(crate) mod helper;
pub(crate) mod pool;
mod readiness;
pub(crate) mod route;
mod streams;
mod timers;

use std::os::fd::BorrowedFd;

use rustix::event::Timespec;

use crate::backend::{Attach, Backend, Detached, Done, Doorbell, Explain, system_random};
use crate::error::{Errno, Error, SetupError};
use crate::policy::Time;
use crate::request::{Op, RequestId, Wait};
use crate::slot::{Slots, State};
use crate::sys;
use helper::{Helper, NOW};
use pool::{Limits, Ring};
use route::{Kernel, route};

pub(crate) const NAME: &str = "threads";

pub(crate) struct Threads {
    helper: Helper,
    limits: Limits,
}

impl Threads {
    pub(crate) fn new(slots: u32, limits: Limits) -> Result<Threads, SetupError> {
        Ok(Threads {
            helper: Helper::new("baio-threads", slots.max(1), limits)?,
            limits,
        })
    }
}

impl Backend for Threads {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            let (kind, caching) = slots.subject(id);
            slots.transition(id, State::Running);
            if let Some(iteration) = slots.iteration(id, 0) {
                let way = route(Kernel::None, kind, caching, &iteration.action);
                self.helper.take(id, iteration, way);
            }
        }
        queue.len()
    }

    fn flush(&mut self) {
        self.helper.send();
    }

    fn turn(&mut self, _: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.helper.send();
        let Wait::Until { count, deadline, .. } = wait else {
            if self.helper.has_streams() {
                self.helper.look(Some(&NOW))?;
            }
            self.helper.collect(done, Ring::Never);
            return Ok(());
        };
        let want = count.max(1) as usize;
        self.helper.collect(done, Ring::When(want));
        if done.raw.len() >= want || done.rang {
            // Streams may not starve behind workers that always have something.
            if self.helper.has_streams() {
                self.helper.look(Some(&NOW))?;
            }
        } else {
            let limit = until(earliest(deadline, self.helper.next_timer()));
            self.helper.look(limit.as_ref())?;
        }
        self.helper.collect(done, Ring::Never);
        Ok(())
    }

    fn cancel(&mut self, _: &Slots, id: RequestId) {
        self.helper.cancel(id);
    }

    fn attach(&mut self, _: Attach<'_>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn detach(&mut self, _: Detached<'_>) {}

    fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        self.helper.arm(arm, None).ok()?;
        Some(self.helper.fd())
    }

    fn doorbell(&self) -> Doorbell {
        self.helper.doorbell()
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
            features: features(&self.helper, self.limits),
        }
    }

    fn refuses(&self, _: Op) -> Option<Error> {
        None
    }

    fn gains_by_gathering(&self) -> bool {
        true
    }

    fn disown(&mut self) {
        self.helper.disown();
    }

    fn system_calls(&self) -> u64 {
        self.helper.system_calls()
    }
}

/// What can be said of the workers.
pub(crate) fn features(helper: &Helper, limits: Limits) -> Vec<(&'static str, Result<(), String>)> {
    let most = limits.wide + limits.narrow + limits.stream;
    let whole = match helper.refused() {
        None => Ok(()),
        Some(errno) => Err(format!(
            "a thread was refused below the limit of {most}: {errno}; raise RLIMIT_NPROC (`ulimit -u`) or the pids limit"
        )),
    };
    vec![("worker_threads", whole)]
}

/// How long to sleep until `at`.
pub(crate) fn until(at: Option<Time>) -> Option<Timespec> {
    let left = at?.since(sys::monotonic());
    Some(Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    })
}

pub(crate) fn earliest(one: Option<Time>, two: Option<Time>) -> Option<Time> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}
