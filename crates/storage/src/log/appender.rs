//! Appending: from any thread, without waiting and without I/O.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use baio_engine::{Arena, Doorbell};
use baio_process::fork::Life;

use super::Lsn;
use super::error::LogError;
use super::front::{self, Front};
use super::read::Batches;
use super::recent::Recent;
use super::retain::Retained;
use super::sleepers::Beds;
use super::waits::{Fired, WaitPlace, WhenDurable};

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

/// What both halves of a log share.
pub(super) struct Shared {
    /// Everything below is durable, in whole groups.
    durable: AtomicU64,
    /// First LSN of this epoch: some below may be lost, which the front knows.
    epoch_first: AtomicU64,
    /// A forked child has a copy that nobody drives, and whose lock a thread that is not there may hold: it has a front of its own.
    born: Life,
    arena: Arc<Arena>,
    front: Mutex<Front>,
    childs: OnceLock<Mutex<Front>>,
    /// Where threads sleep, without the lock.
    pub(super) beds: Beds,
    /// Locked before the front, never while that is held.
    recent: Mutex<Recent>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log(durable {})", self.durable())
    }
}

impl Shared {
    pub(super) fn new(front: Front, recent: Recent) -> Shared {
        Shared {
            durable: AtomicU64::new(0),
            epoch_first: AtomicU64::new(0),
            born: Life::now(),
            arena: Arc::clone(front.arena()),
            front: Mutex::new(front),
            childs: OnceLock::new(),
            beds: Beds::new(),
            recent: Mutex::new(recent),
        }
    }

    /// The latest batches. No appender waits for this lock: the driver and those who read take it, for a moment.
    pub(super) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic under the lock leaves numbers behind that are whole: nothing there is half-way when it calls out.
    pub(super) fn lock(&self) -> MutexGuard<'_, Front> {
        let front = match self.born.is_over() {
            false => &self.front,
            true => self.childs.get_or_init(|| {
                let lsn = Lsn(self.durable());
                Mutex::new(Front::of_a_child(&self.arena, lsn))
            }),
        };
        front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn durable(&self) -> u64 {
        // Acquire: whoever sees this LSN sees what the driver did before it said so.
        self.durable.load(Ordering::Acquire)
    }

    /// Is it durable, without a look at what may be lost?
    pub(super) fn is_durable(&self, lsn: u64) -> bool {
        // Relaxed: stored once, before an LSN of its epoch is durable.
        lsn < self.durable() && lsn >= self.epoch_first.load(Ordering::Relaxed)
    }

    /// Before `set_durable` says so.
    pub(super) fn set_epoch_first(&self, lsn: u64) {
        self.epoch_first.store(lsn, Ordering::Relaxed);
    }

    /// The driver alone stores, under the lock, so that nobody begins to wait in between.
    pub(super) fn set_durable(&self, lsn: u64) {
        // Release: pairs with the load in `durable`.
        self.durable.store(lsn, Ordering::Release);
    }
}

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

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
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
        let old = {
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
            let place = front.waits.wait_durable(lsn, waker);
            match &mut key.waits {
                Some((_, waiting)) => *waiting = Waiting::Durable(place),
                none => *none = Some((Arc::clone(&self.shared), Waiting::Durable(place))),
            }
            old
        };
        drop(old);
        Poll::Pending
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
        let mut front = self.shared.lock();
        match front.has_room(bytes as u64) {
            Ok(false) => {
                let (number, gone, fired) = front.wait_room(old, bytes, waker);
                drop(front);
                key.waits = Some((Arc::clone(&self.shared), Waiting::Room(number)));
                drop(gone);
                fired.into_iter().for_each(Fired::fire);
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

impl Front {
    /// What who waits for this LSN is told at once: that it is durable, never will be, or is nobody's yet. Else he waits, for the next
    /// record at most.
    pub(super) fn told(&self, lsn: u64, durable: u64) -> Option<Result<(), LogError>> {
        let end = self.next_lsn();
        if matches!(self.life, front::Life::Open | front::Life::Paused) && lsn > end {
            return Some(Err(LogError::NotYet { end: Lsn(end) }));
        }
        (lsn < durable || lsn >= self.lost_from).then(|| self.lost(lsn))
    }

    fn lost(&self, lsn: u64) -> Result<(), LogError> {
        self.gap.check(lsn)?;
        if lsn < self.lost_from {
            return Ok(());
        }
        match &self.life {
            front::Life::Failed(error) => Err(error.clone()),
            _ => Err(LogError::Closed),
        }
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
        drop(waker);
        fired.into_iter().for_each(Fired::fire);
    }
}

impl Drop for WaitKey {
    fn drop(&mut self) {
        self.forget();
    }
}
