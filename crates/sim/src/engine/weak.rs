//! A backend that keeps one promise less, to see it noticed.

use std::os::fd::BorrowedFd;

use baio_engine::backend::{Attach, Detached, Done};
use baio_engine::sim::Sim;
use baio_engine::{Backend, Doorbell, Errno, Error, Explain, Op, RequestId, Slots, Time, Wait};

/// Tells `EIO` as success.
pub(crate) struct Swallowing(pub(crate) Sim);

impl Backend for Swallowing {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        self.0.start(slots, queue)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.0.turn(slots, wait, done)?;
        for (_, raw) in &mut done.raw {
            if *raw == -Errno::EIO.raw() {
                *raw = 0;
            }
        }
        Ok(())
    }

    fn cancel(&mut self, slots: &Slots, id: RequestId) {
        self.0.cancel(slots, id);
    }

    fn attach(&mut self, what: Attach<'_>) -> Result<(), Errno> {
        self.0.attach(what)
    }

    fn detach(&mut self, what: Detached<'_>) {
        self.0.detach(what);
    }

    fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        self.0.ready_fd(arm)
    }

    fn doorbell(&self) -> Doorbell {
        self.0.doorbell()
    }

    fn now(&self) -> Time {
        self.0.now()
    }

    fn wall_clock(&self) -> Time {
        self.0.wall_clock()
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        self.0.random(bytes)
    }

    fn explain(&self) -> Explain {
        self.0.explain()
    }

    fn refuses(&self, op: Op) -> Option<Error> {
        self.0.refuses(op)
    }

    fn system_calls(&self) -> u64 {
        self.0.system_calls()
    }
}
