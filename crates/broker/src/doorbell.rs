//! The client's wake-up: an event fd (eventfd(2)). The service's own is the engine's [`baio_engine::Doorbell`], which ends
//! a turn.
//!
//! Who rings has looked at the other side's flag first ([`crate::ring`]), so a bell is rung only for somebody who sleeps.
//! Who sleeps does not spin before: on a machine with few cores a spinning client takes the processor that the service
//! needs.

use std::os::fd::OwnedFd;
use std::time::Duration;

use baio_engine::{Errno, SetupError};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// A bell that any thread rings and one thread at a time sleeps on.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    /// Edge-triggered: each ring is told once, and need not be read away. One system call per sleep instead of two.
    edges: OwnedFd,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// What `eventfd` or `epoll_create1` said, with the cure.
    pub fn new() -> Result<Bell, SetupError> {
        let make = || -> Result<Bell, Errno> {
            // Non-blocking: a peer that fills the counter must not hold up whoever rings.
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let edges = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&edges, &fd, epoll::EventData::new_u64(0), edge)?;
            Ok(Bell { fd, edges })
        };
        make().map_err(|errno| {
            SetupError::new("make a doorbell", "an event fd".into(), errno).cure("raise RLIMIT_NOFILE (`ulimit -n`)")
        })
    }

    /// Ends the present sleep, or the next one.
    pub fn ring(&self) {
        // A full counter is a peer's doing, and the peer's loss.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Sleeps until the bell rings or `limit` has passed. May end early: look again.
    pub fn sleep(&self, limit: Option<Duration>) {
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        // A signal ends the sleep early, as a late ring does.
        let _ = epoll::wait(&self.edges, &mut events[..], limit.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ring_ends_one_sleep() {
        let bell = Bell::new().unwrap();
        for _ in 0..3 {
            bell.ring();
            bell.sleep(None);
        }
        bell.ring();
        bell.ring();
        bell.sleep(None);
        // Nothing is left of the two: only the limit ends this one.
        let before = std::time::Instant::now();
        bell.sleep(Some(Duration::from_millis(20)));
        assert!(before.elapsed() >= Duration::from_millis(20));
    }
}
