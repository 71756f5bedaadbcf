//! Appending: from any thread, without waiting and without I/O.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use super::Lsn;
use super::bell::LogBell;
use super::error::LogError;
use super::read::Batches;
use super::retained::Retained;
use super::shared::Shared;
use super::waits::{FireAll, Fired, WaitPlace, WhenDurable};

/// Appends records to a log and tells when they are durable. Of any thread; a clone appends to the same log.
#[derive(Clone, Debug)]
pub struct Appender {
    shared: Arc<Shared>,
    is_quiet: bool,
}

impl Appender {
    pub(super) fn new(shared: &Arc<Shared>) -> Appender {
        Appender {
            shared: Arc::clone(shared),
            is_quiet: false,
        }
    }

    /// The same for the thread that drives the log itself: it never rings the bell.
    #[must_use]
    pub fn quiet(&self) -> Appender {
        Appender {
            shared: Arc::clone(&self.shared),
            is_quiet: true,
        }
    }

    /// Appends one record of 0 to 16 MiB; its LSN. It is in memory then, not durable: see [`Appender::poll_durable`].
    ///
    /// # Errors
    /// `WouldBlock` when there is no room in memory now, `Full` when there is none in the log, `TooLong` when there never will be, `Failed` after a failed write, `Closed`.
    pub fn append(&self, record: &[u8]) -> Result<Lsn, LogError> {
        self.append_all(&[record])
    }

    /// Appends records as one group: a crash leaves all of them, or none. The LSN of the last.
    ///
    /// # Errors
    /// As [`Appender::append`]; nothing has been appended then.
    pub fn append_all(&self, records: &[&[u8]]) -> Result<Lsn, LogError> {
        let (lsn, bell) = {
            let mut front = self.shared.lock();
            let (had_work, had_full) = (front.has_work(), !front.full.is_empty());
            let lsn = front.append(records)?;
            // The first of a batch; and a batch that gathered and is full now.
            let is_news = !had_work || !had_full && !front.full.is_empty();
            let rings = is_news && !self.is_quiet;
            (lsn, if rings { front.bell_to_ring() } else { None })
        };
        bell.inspect(LogBell::ring);
        Ok(lsn)
    }

    /// Is this a forked child of the process in which the log is open? Nothing is appended there.
    pub(crate) fn is_forked(&self) -> bool {
        self.shared.born.is_over()
    }

    /// Everything below is durable, but what an earlier crash has lost ([`Recovered`](super::Recovered) tells: from `end` to
    /// `next`): a record with this LSN or a later one may not be.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.shared.durable())
    }

    /// An LSN above those of all records that have been appended, and not above that of the next.
    #[must_use]
    pub fn end_lsn(&self) -> Lsn {
        Lsn(self.shared.lock().next_lsn())
    }

    /// The oldest LSN that is kept.
    #[must_use]
    pub fn head_lsn(&self) -> Lsn {
        Lsn(self.shared.lock().head)
    }

    /// Is the record with this LSN durable, and with it its whole group and all before? Else the waker hears when it is worth to ask
    /// again. The key keeps the place among those who wait; its drop gives it up.
    ///
    /// # Errors
    /// `Failed` when it will never be acknowledged, `Lost` when the crash before this opening has lost it, `Closed` when the log was closed before such a record came.
    pub fn poll_durable(&self, lsn: Lsn, key: &mut WaitKey, waker: &Waker) -> Poll<Result<(), LogError>> {
        if self.shared.is_durable(lsn.0) {
            key.forget();
            return Poll::Ready(Ok(()));
        }
        let place = match &key.waits {
            Some((shared, Waiting::Durable(place))) if Arc::ptr_eq(shared, &self.shared) => Some(*place),
            _ => {
                key.forget();
                None
            }
        };
        let copy = waker.clone(); // Without the lock: a clone may run anybody's code, and so may the drop of one.
        let left = {
            let mut front = self.shared.lock();
            let lsn = front.gap.wanted(lsn.0);
            if let Some(result) = front.told(lsn, self.shared.durable()) {
                drop(front);
                key.forget();
                return Poll::Ready(result);
            }
            if place.is_some_and(|place| front.waits.is_waiting(lsn, place, waker)) {
                return Poll::Pending;
            }
            let old = place.and_then(|place| front.waits.forget_durable(place));
            let (place, left) = front.waits.wait_durable(lsn, copy);
            match &mut key.waits {
                Some((_, waiting)) => *waiting = Waiting::Durable(place),
                none => *none = Some((Arc::clone(&self.shared), Waiting::Durable(place))),
            }
            [old, left]
        };
        drop(left);
        Poll::Pending
    }

    /// Sleeps until the record with this LSN is durable, and with it its whole group and all before; or until the deadline: then it is
    /// pending. For threads that do not drive the log: who drives it would wait for itself. Nobody waits for a log that has gone.
    ///
    /// # Errors
    /// As [`Appender::poll_durable`].
    pub fn wait_durable(&self, lsn: Lsn, deadline: Option<Instant>) -> Poll<Result<(), LogError>> {
        let shared = &self.shared;
        loop {
            // Who is woken mostly finds it so, and needs no lock, which all others want at the same moment.
            if shared.is_durable(lsn.0) {
                return Poll::Ready(Ok(()));
            }
            let bed = {
                let mut front = shared.lock();
                let lsn = front.gap.wanted(lsn.0);
                if let Some(told) = front.told(lsn, shared.durable()) {
                    return Poll::Ready(told);
                }
                front.waits.sleepers.bed(lsn, &shared.beds)
            };
            if !shared.beds.sleep(bed, deadline) {
                return Poll::Pending;
            }
        }
    }

    /// Calls back, in the driver's thread, when the record with this LSN is durable, or never will be; in this one when the log has gone.
    pub fn when_durable(&self, lsn: Lsn, callback: WhenDurable) {
        let bell = {
            let mut front = self.shared.lock();
            let lsn = front.gap.wanted(lsn.0);
            if let Some(result) = front.told(lsn, self.shared.durable()) {
                if !front.is_driven {
                    drop(front);
                    return callback(result);
                }
                front.waits.fired.push(Fired::Call(callback, result));
                if self.is_quiet { None } else { front.bell.clone() }
            } else {
                front.waits.call_when_durable(lsn, callback);
                None
            }
        };
        bell.inspect(LogBell::ring);
    }

    /// Would a record of so many bytes find room now? Else the waker hears when it is worth to try again. Room goes to those who wait
    /// in their order. Who was woken has it until its key is dropped or asks again: what it leaves then is for the next.
    ///
    /// # Errors
    /// Those that an append would meet, but for `WouldBlock` and `Full`.
    pub fn poll_room(&self, bytes: usize, key: &mut WaitKey, waker: &Waker) -> Poll<Result<(), LogError>> {
        let old = match &key.waits {
            Some((shared, Waiting::Room(number))) if Arc::ptr_eq(shared, &self.shared) => Some(*number),
            _ => {
                key.forget();
                None
            }
        };
        let copy = waker.clone(); // As in `poll_durable`.
        let mut front = self.shared.lock();
        match front.has_room(bytes as u64) {
            Ok(false) => {
                let (number, gone, fired) = front.wait_room(old, bytes, copy);
                drop(front);
                let fired = FireAll(fired); // Also if the drop of a waker panics.
                key.waits = Some((Arc::clone(&self.shared), Waiting::Room(number)));
                drop(gone);
                drop(fired);
                Poll::Pending
            }
            Ok(true) => {
                // Not passed on before it could be taken.
                let gone = old.and_then(|number| front.waits.come_for_room(number));
                drop(front);
                drop(gone);
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                drop(front);
                key.forget();
                Poll::Ready(Err(error))
            }
        }
    }

    /// The batch in which this LSN lies, or the next one, if it is durable and among the latest, which are kept in memory while
    /// somebody reads: without the driver. Nothing: [`LogRequest::Read`](super::LogRequest::Read) tells whether there is more.
    #[must_use]
    pub fn recent(&self, from: Lsn) -> Option<Arc<Batches>> {
        // The driver may have held that lock at the fork.
        if self.is_forked() {
            return None;
        }
        self.shared.recent().take(from.0)
    }

    /// Keeps records from this LSN on (or from the head, when that is further) until the answer is dropped or advanced.
    pub fn retain(&self, from: Lsn) -> Retained {
        Retained::new(&self.shared, from)
    }

    /// Whom to wake when a batch begins while the driver may sleep.
    pub fn set_bell(&self, bell: impl Into<LogBell>) {
        let bell = bell.into();
        let old = self.shared.lock().bell.replace(bell);
        drop(old);
    }
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    Durable(WaitPlace),
    Room(u64),
}

/// A place among those who wait; its drop gives it up.
#[derive(Debug, Default)]
pub struct WaitKey {
    waits: Option<(Arc<Shared>, Waiting)>,
}

impl WaitKey {
    fn forget(&mut self) {
        let Some((shared, waiting)) = self.waits.take() else {
            return;
        };
        let (waker, fired) = {
            let mut front = shared.lock();
            match waiting {
                Waiting::Durable(place) => (front.waits.forget_durable(place), Vec::new()),
                Waiting::Room(number) => front.leave_room(number),
            }
        };
        let fired = FireAll(fired); // Also if the drop of the waker panics.
        drop(waker);
        drop(fired);
    }
}

impl Drop for WaitKey {
    fn drop(&mut self) {
        self.forget();
    }
}
