//! How whoever drives a log is woken.

use std::task::Waker;

use baio_engine::Doorbell;

/// By what whoever drives a log is woken.
#[derive(Clone, Debug)]
pub enum LogBell {
    /// It turns an engine.
    Doorbell(Doorbell),
    /// It polls.
    Waker(Waker),
}

impl LogBell {
    pub(super) fn ring(&self) {
        match self {
            LogBell::Doorbell(bell) => bell.ring(),
            LogBell::Waker(waker) => waker.wake_by_ref(),
        }
    }
}

impl From<Doorbell> for LogBell {
    fn from(bell: Doorbell) -> LogBell {
        LogBell::Doorbell(bell)
    }
}

impl From<Waker> for LogBell {
    fn from(waker: Waker) -> LogBell {
        LogBell::Waker(waker)
    }
}
