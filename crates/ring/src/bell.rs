//! The client's wake-up: within one process a word that it waits on (futex(2)); between processes whatever its socket makes of it. The service's own is its engine's
//! doorbell, an event fd that stays private to the service's process and is never handed to a peer.
//!
//! It is a word and not a descriptor, because any holder of an event fd can change its flags and its counter: a peer could clear
//! `O_NONBLOCK` and fill the counter, and ringing would then block for ever. Ringing a word is a store and a wake-up, and nothing that a
//! peer writes there can make it block.
//!
//! A side looks at the other side's flag before it rings ([`crate::ring`]), so a bell is rung only for a sleeper.
//! A client does not spin before it sleeps: on a machine with few cores it would take the processor that the service
//! needs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

const SILENT: u32 = 0;
const RUNG: u32 = 1;

/// A bell that any thread rings and one thread at a time sleeps on.
#[derive(Debug)]
pub struct Bell(Kind);

enum Kind {
    Word(Word),
    Far(Arc<dyn FarBell>),
}

/// The bell of a client whose service is another process: its threads ring it here, the service rings it from there. It keeps
/// the promises of [`Bell`].
pub trait FarBell: Send + Sync {
    /// Rings it, and never waits. Rings that nobody has heard yet merge into one.
    fn ring(&self);

    /// Sleeps until the bell rings, here or from the service, or until `limit` has passed. A ring that came since the last sleep
    /// ends this one at once. May end early. When the service is gone it does not sleep any more.
    fn sleep(&self, limit: Option<Duration>);
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Word(word) => write!(f, "{word:?}"),
            Kind::Far(_) => f.write_str("Far"),
        }
    }
}

impl Default for Bell {
    /// Of this process.
    fn default() -> Bell {
        Bell(Kind::Word(Word::default()))
    }
}

impl Bell {
    /// Of a client whose service is another process.
    #[must_use]
    pub fn far(bell: Arc<dyn FarBell>) -> Bell {
        Bell(Kind::Far(bell))
    }

    /// Rings it. Rings that nobody has heard yet merge into one.
    pub fn ring(&self) {
        match &self.0 {
            Kind::Word(word) => word.ring(),
            Kind::Far(bell) => bell.ring(),
        }
    }

    /// Sleeps until the bell rings or `limit` has passed. May end early: look again.
    pub fn sleep(&self, limit: Option<Duration>) {
        match &self.0 {
            Kind::Word(word) => word.sleep(limit),
            Kind::Far(bell) => bell.sleep(limit),
        }
    }
}

/// The bell within one process.
#[derive(Debug, Default)]
struct Word(AtomicU32);

impl Word {
    fn ring(&self) {
        // Other side: `was_rung`. Whoever hears the ring sees what was done before it.
        if self.0.swap(RUNG, Ordering::AcqRel) == SILENT {
            let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
        }
    }

    fn sleep(&self, limit: Option<Duration>) {
        if self.was_rung() {
            return;
        }
        // A deadline past the clock's range means no deadline.
        let limit = limit.and_then(|limit| {
            Some(Timespec {
                tv_sec: i64::try_from(limit.as_secs()).ok()?,
                tv_nsec: i64::from(limit.subsec_nanos()),
            })
        });
        // A signal ends the sleep early, as a late ring does.
        let _ = futex::wait(&self.0, Flags::PRIVATE, SILENT, limit.as_ref());
        self.was_rung();
    }

    /// Hears a ring, if there was one.
    fn was_rung(&self) -> bool {
        // Other side: `ring`.
        self.0.swap(SILENT, Ordering::AcqRel) != SILENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ring_ends_one_sleep() {
        let bell = Word::default();
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

    #[test]
    #[cfg_attr(miri, ignore = "the kernel's /proc knows nothing of Miri's threads")]
    fn a_ring_that_ends_a_sleep_ends_no_other() {
        let bell = Word::default();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tell.send(rustix::thread::gettid()).unwrap();
                bell.sleep(None);
            });
            let status = format!("/proc/self/task/{}/status", told.recv().unwrap());
            while !std::fs::read_to_string(&status).unwrap().contains("State:\tS") {
                std::thread::yield_now();
            }
            bell.ring();
        });
        assert!(!bell.was_rung(), "it rings on");
    }

    /// Whatever a peer has left in the word, ringing ends, and the next sleep of somebody who looks for himself too.
    #[test]
    fn no_word_of_a_peer_makes_anybody_wait() {
        let bell = Word::default();
        for word in [SILENT, RUNG, 2, u32::MAX] {
            bell.0.store(word, Ordering::Relaxed);
            bell.ring();
            bell.sleep(None);
        }
    }
}
