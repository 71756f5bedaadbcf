//! An event fd for loops that know only descriptors.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};

use baio_engine::Doorbell;
use baio_storage::log::{Appender, WaitKey};
use baio_storage::{Error, Result};

/// An event fd that is readable when more of a log has become durable since [`LogEvents::take`] was called last; and when nothing ever will
/// any more. It does not keep the log open.
pub struct LogEvents {
    watcher: Arc<Watcher>,
}

struct Watcher {
    bell: Doorbell,
    appender: Appender,
    /// None once nobody looks any more: who is being woken just then does not wait again.
    key: Mutex<Option<WaitKey>>,
}

impl fmt::Debug for LogEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogEvents")
    }
}

impl LogEvents {
    pub(super) fn new(name: &str, appender: &Appender) -> Result<LogEvents> {
        let bell = Doorbell::new().map_err(|error| Error::new("watch the log in", name, error))?;
        let watcher = Arc::new(Watcher {
            bell,
            appender: appender.clone(),
            key: Mutex::new(Some(WaitKey::default())),
        });
        watcher.watch();
        Ok(LogEvents { watcher })
    }

    /// Makes it unreadable until more is durable; says whether there was anything.
    #[must_use = "whether more is durable"]
    pub fn take(&self) -> bool {
        self.watcher.bell.silence()
    }
}

impl AsFd for LogEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watcher.bell.as_fd()
    }
}

impl Drop for LogEvents {
    fn drop(&mut self) {
        // The log would keep the watcher, and the watcher the log.
        let key = self.watcher.key().take();
        drop(key);
    }
}

impl Watcher {
    fn key(&self) -> std::sync::MutexGuard<'_, Option<WaitKey>> {
        self.key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what is not durable yet.
    fn watch(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        loop {
            let next = self.appender.durable_lsn();
            let mut key = self.key();
            let Some(key) = key.as_mut() else { return };
            match self.appender.poll_durable(next, key, &waker) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => self.bell.ring(), // Meanwhile.
                Poll::Ready(Err(_)) => return self.bell.ring(),
            }
        }
    }
}

impl Wake for Watcher {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.bell.ring();
        self.watch();
    }
}

#[cfg(test)]
mod tests {
    use baio_engine::Arena;
    use baio_storage::log::{LogOptions, LogPart};

    use super::*;

    /// The driver has it in hand, to wake it, when nobody looks any more: it does not wait again, and the log does not keep it.
    #[test]
    fn who_is_dropped_while_being_woken_does_not_wait_again() {
        let arena = Arena::new(8 << 20).unwrap();
        let part = LogPart::create(
            &arena,
            4 << 20,
            [1; 16],
            baio_storage::log::Salt([2; 16]),
            &LogOptions::default(),
        )
        .unwrap();
        let events = LogEvents::new("log", &part.appender()).unwrap();
        let in_hand = Arc::clone(&events.watcher);
        drop(events);
        assert_eq!(Arc::strong_count(&in_hand), 1);
        in_hand.wake_by_ref();
        assert_eq!(Arc::strong_count(&in_hand), 1, "the log keeps it");
    }
}
