//! A descriptor that is readable while there is something for a program that sleeps in a loop of its own, beside its other descriptors.
//!
//! With one in the client the helper reaps whenever nobody else does, as it does for futures that nobody drives. Whoever has the lock makes the descriptor
//! say what is true before the lock is free (`State::tell_event`), so it is never readable for nothing, and never silent beside news.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Result;

/// An event fd with the counter 0 or 1.
#[derive(Debug)]
pub struct Event {
    fd: Arc<OwnedFd>,
    is_rung: bool,
}

impl Event {
    /// One that is silent.
    ///
    /// # Errors
    /// As eventfd(2).
    pub fn new() -> Result<Event> {
        let fd = Arc::new(baio_process::descriptor::event()?);
        Ok(Event { fd, is_rung: false })
    }

    /// What is polled.
    #[must_use]
    pub fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Is it to be readable? Neither call waits: the descriptor does not block, and its counter is 0 or 1.
    pub fn tell(&mut self, is_news: bool) {
        if is_news == self.is_rung {
            return;
        }
        let told = match is_news {
            true => rustix::io::write(self.fd.as_fd(), &1_u64.to_ne_bytes()),
            false => rustix::io::read(self.fd.as_fd(), &mut [0_u8; 8]),
        };
        // A program that has read or filled it against the rule is told of the next news.
        self.is_rung = is_news && told.is_ok();
    }
}
