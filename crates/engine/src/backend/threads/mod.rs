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
//! | `../../timers.rs` | the heap, as the engine has one for deadlines |
//! | `helper.rs` | these four together, as `threads` and `aio` use them |

pub(crate) mod helper;
pub(crate) mod pool;
mod readiness;
pub(crate) mod route;
mod streams;

use std::os::fd::BorrowedFd;

use rustix::event::Timespec;

use crate::backend::{Backend, Done, Doorbell, Explain};
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
            if self.helper.has_streams() || self.helper.is_look_due() {
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

    fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        self.helper.arm(arm, None).ok()?;
        Some(self.helper.fd())
    }

    fn doorbell(&self) -> Doorbell {
        self.helper.doorbell()
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

    fn disown(mut self: Box<Self>) {
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsRawFd, RawFd};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::route::{Class, Way};
    use super::*;
    use crate::memory::Window;
    use crate::sys::{Action, Fd, Iteration};

    const STUCK: u32 = 16;

    /// A read of one byte by a worker, as if of a disk.
    fn read(threads: &mut Threads, slot: u32, fd: RawFd) {
        // Leaked: a stuck worker may write it at any time.
        let byte: &'static mut u8 = Box::leak(Box::new(0));
        let window = Window::Flat { pointer: byte, len: 1 };
        let iteration = Iteration {
            action: Action::Read { window, offset: -1 },
            fd: Fd::Raw(fd),
            flags: 0,
        };
        let id = RequestId { slot, generation: 0 };
        threads.helper.take(id, iteration, Way::Pool(Class::Wide));
    }

    /// Here it is a timer that is always due.
    #[test]
    fn a_ring_is_heard_beside_what_always_has_something() {
        let limits = Limits {
            wide: 1,
            narrow: 1,
            stream: 1,
        };
        let mut threads = Threads::new(1, limits).unwrap();
        let (mut slots, mut done) = (Slots::new(0), Done::default());
        threads.doorbell().ring();
        for _ in 0..helper::LOOK_EVERY {
            let id = RequestId { slot: 0, generation: 0 };
            let iteration = Iteration {
                action: Action::Timer { at: Time(0) },
                fd: Fd::None,
                flags: 0,
            };
            threads.helper.take(id, iteration, Way::Timer);
            threads.turn(&mut slots, Wait::one(), &mut done).unwrap();
        }
        assert!(done.rang);
    }

    /// The owner may sleep for what waits behind stuck jobs, in a turn or elsewhere: it is woken to look after it.
    #[test]
    fn whoever_sleeps_for_a_job_behind_stuck_ones_is_woken_to_look_after_it() {
        for outside in [false, true] {
            let limits = Limits {
                wide: 64,
                narrow: 1,
                stream: 1,
            };
            let mut threads = Threads::new(64, limits).unwrap();
            let (mut slots, mut done) = (Slots::new(0), Done::default());
            let (stuck, mut writer) = std::io::pipe().unwrap();
            let (ready, mut to_ready) = std::io::pipe().unwrap();
            to_ready.write_all(b"x").unwrap();
            for slot in 0..STUCK {
                read(&mut threads, slot, stuck.as_raw_fd());
            }
            read(&mut threads, STUCK, ready.as_raw_fd());
            let far = sys::monotonic().after(std::time::Duration::from_secs(20));
            let wait = Wait::Until {
                count: 1,
                min_wait: std::time::Duration::ZERO,
                deadline: Some(far),
            };
            while done.raw.is_empty() {
                if outside {
                    let fd = threads.ready_fd(true).unwrap().try_clone_to_owned().unwrap();
                    threads.turn(&mut slots, Wait::No, &mut done).unwrap();
                    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
                    assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)), Ok(1));
                    threads.ready_fd(false);
                }
                threads.turn(&mut slots, wait, &mut done).unwrap();
                assert!(sys::monotonic() < far, "nobody looked, outside: {outside}");
            }
            assert_eq!(done.raw[0].0.slot, STUCK);
            writer.write_all(&[7; STUCK as usize]).unwrap();
            while done.raw.len() <= STUCK as usize {
                threads.turn(&mut slots, wait, &mut done).unwrap();
            }
        }
    }
}
