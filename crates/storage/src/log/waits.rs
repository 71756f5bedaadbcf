//! Who waits for what: for an LSN to be durable, or for room.
//!
//! Ordered by LSN, so that an end of a batch touches only those whose time has come. One task often waits for many LSNs: its waker
//! is kept once, and woken once for all of them.
//!
//! A waker is others' code, and all of this stands behind the log's lock. So whoever waits brings a clone, and one that is not needed any
//! more is given back, to be dropped without the lock.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::error::LogError;
use super::sleepers::Sleepers;

/// What is called when an LSN is durable, or never will be.
pub type WhenDurable = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// Who is to hear now; to be let go outside of every borrow.
pub enum Fired {
    /// A waker.
    Wake(Waker),
    /// A callback, and what it is told.
    Call(WhenDurable, Result<(), LogError>),
}

impl Fired {
    /// Wakes, or calls.
    pub fn fire(self) {
        match self {
            Fired::Wake(waker) => waker.wake(),
            Fired::Call(callback, result) => callback(result),
        }
    }
}

impl std::fmt::Debug for Fired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fired::Wake(_) => "Wake",
            Fired::Call(..) => "Call",
        })
    }
}

/// Several who are to hear now: its drop lets them go. If one of them panics, the others hear all the same, and the panic goes on behind them;
/// but not where another one is under way, as a second would end the process.
pub(super) struct FireAll(pub(super) Vec<Fired>);

impl Drop for FireAll {
    fn drop(&mut self) {
        let (is_quiet, mut first) = (std::thread::panicking(), None);
        for fired in self.0.drain(..) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| fired.fire())) {
                first = first.or(Some(panic));
            }
        }
        if let (false, Some(panic)) = (is_quiet, first) {
            resume_unwind(panic);
        }
    }
}

/// A place among those who wait: its LSN (or bytes), and a number that is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitPlace {
    pub(super) lsn: u64,
    number: u64,
}

/// The waker of somebody who waits, in a place that may be shared without cloning it. `None` while nobody waits by it.
#[derive(Debug)]
struct Theirs(Option<Waker>);

impl Wake for Theirs {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(waker) = &self.0 {
            waker.wake_by_ref();
        }
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// The place stays for the next one, so that waiting allocates nothing.
    waker: Option<Arc<Theirs>>,
    waiters: u32,
    /// In which round it was woken last.
    round: u64,
}

/// Wakers, each with how many wait by it.
#[derive(Debug, Default)]
struct Wakers {
    kept: Vec<Kept>,
    free: Vec<u32>,
    /// Of all that are kept, by what [`Waker::will_wake`] compares.
    known: HashMap<(usize, usize), u32>,
    round: u64,
    /// Woken in this round, with others who waited on by the same waker then.
    due: Vec<u32>,
}

/// Two wakers that are kept wake the same when this is the same.
fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data() as usize, std::ptr::from_ref(waker.vtable()) as usize)
}

impl Wakers {
    /// Gives the waker back when one that wakes the same is kept already.
    fn keep(&mut self, waker: Waker) -> (u32, Option<Waker>) {
        let identity = identity(&waker);
        if let Some(index) = self.known.get(&identity) {
            self.kept[*index as usize].waiters += 1;
            return (*index, Some(waker));
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.kept.push(Kept::default());
            self.kept.len() as u32 - 1
        });
        let kept = &mut self.kept[index as usize];
        (kept.waiters, kept.round) = (1, 0);
        match kept.waker.as_mut().and_then(Arc::get_mut) {
            Some(place) => place.0 = Some(waker),
            None => kept.waker = Some(Arc::new(Theirs(Some(waker)))),
        }
        self.known.insert(identity, index);
        (index, None)
    }

    fn is(&self, index: u32, waker: &Waker) -> bool {
        let known = self.kept[index as usize].waker.as_ref();
        known.is_some_and(|known| known.0.as_ref().is_some_and(|known| known.will_wake(waker)))
    }

    /// One waiter less; the waker when it was the last.
    fn forget(&mut self, index: u32) -> Option<Waker> {
        let kept = &mut self.kept[index as usize];
        kept.waiters -= 1;
        if kept.waiters > 0 {
            return None;
        }
        let identity = identity(kept.waker.as_ref()?.0.as_ref()?);
        let waker = match kept.waker.as_mut().and_then(Arc::get_mut) {
            Some(place) => place.0.take(),
            // Somebody is being woken by it.
            None => kept.waker.take().map(Waker::from),
        };
        self.known.remove(&identity);
        self.free.push(index);
        waker
    }

    /// One waiter is woken: once for all of a round. If others wait on by its waker, that is decided when the round ends.
    fn fire(&mut self, index: u32, into: &mut Vec<Fired>) {
        let is_first = self.kept[index as usize].round != self.round;
        self.kept[index as usize].round = self.round;
        match self.forget(index) {
            Some(last) => into.push(Fired::Wake(last)),
            None if is_first => self.due.push(index),
            None => {}
        }
    }

    /// Those by whose wakers others wait on are woken: by the same place, since a clone would be others' code under the lock.
    fn end_round(&mut self, into: &mut Vec<Fired>) {
        for index in self.due.drain(..) {
            let kept = &self.kept[index as usize];
            into.extend(kept.shared().map(Fired::Wake));
        }
    }
}

impl Kept {
    /// Wakes whoever waits by it.
    fn shared(&self) -> Option<Waker> {
        let place = self.waker.as_ref().filter(|_| self.waiters > 0)?;
        Some(Waker::from(Arc::clone(place)))
    }
}

/// Everybody who waits.
#[derive(Default)]
pub(super) struct Waits {
    wakers: Wakers,
    durable: BTreeMap<WaitPlace, u32>,
    callbacks: BTreeMap<WaitPlace, WhenDurable>,
    /// By their numbers: the bytes in batches that each wants, and its waker.
    room: BTreeMap<u64, (u64, u32)>,
    /// Who was woken for so many bytes, and has not come since.
    told: BTreeMap<u64, u64>,
    told_bytes: u64,
    /// Those have been handed out, and may have come without a word.
    are_told_out: bool,
    number: u64,
    /// Threads that sleep.
    pub(super) sleepers: Sleepers,
    /// Whose time has come.
    pub(super) fired: Vec<Fired>,
}

impl Waits {
    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Does who has this place wait for this LSN by this waker?
    pub(super) fn is_waiting(&self, lsn: u64, place: WaitPlace, waker: &Waker) -> bool {
        let index = self.durable.get(&place);
        place.lsn == lsn && index.is_some_and(|index| self.wakers.is(*index, waker))
    }

    /// Waits for this LSN. Gives back a waker that is not needed.
    pub(super) fn wait_durable(&mut self, lsn: u64, waker: Waker) -> (WaitPlace, Option<Waker>) {
        let place = WaitPlace {
            lsn,
            number: self.number(),
        };
        let (index, left) = self.wakers.keep(waker);
        self.durable.insert(place, index);
        (place, left)
    }

    /// Its waker, when nobody else waits by it: to be dropped when the lock is free, as dropping it may end a task that waits here.
    #[must_use]
    pub(super) fn forget_durable(&mut self, place: WaitPlace) -> Option<Waker> {
        let index = self.durable.remove(&place)?;
        self.wakers.forget(index)
    }

    pub(super) fn call_when_durable(&mut self, lsn: u64, callback: WhenDurable) {
        let number = self.number();
        self.callbacks.insert(WaitPlace { lsn, number }, callback);
    }

    /// Everything below this LSN is durable.
    pub(super) fn durable_to(&mut self, durable: u64) {
        self.end_below(durable, &Ok(()));
    }

    /// Who waits for an LSN below this one is told so.
    pub(super) fn end_below(&mut self, durable: u64, result: &Result<(), LogError>) {
        self.sleepers.end_below(durable);
        self.wakers.round += 1;
        while let Some(entry) = self.durable.first_entry() {
            if entry.key().lsn >= durable {
                break;
            }
            let index = entry.remove();
            self.wakers.fire(index, &mut self.fired);
        }
        self.wakers.end_round(&mut self.fired);
        while let Some(entry) = self.callbacks.first_entry() {
            if entry.key().lsn >= durable {
                break;
            }
            self.fired.push(Fired::Call(entry.remove(), result.clone()));
        }
    }

    /// Nothing from this LSN on will be durable.
    pub(super) fn fail_from(&mut self, lsn: u64, error: &LogError) {
        self.sleepers.rouse();
        self.wakers.round += 1;
        let from = WaitPlace { lsn, number: 0 };
        for index in self.durable.split_off(&from).into_values() {
            self.wakers.fire(index, &mut self.fired);
        }
        for callback in self.callbacks.split_off(&from).into_values() {
            self.fired.push(Fired::Call(callback, Err(error.clone())));
        }
        self.forget_told();
        for (_, index) in std::mem::take(&mut self.room).into_values() {
            self.wakers.fire(index, &mut self.fired);
        }
        self.wakers.end_round(&mut self.fired);
    }

    /// Waits for room for so many bytes in batches; who waits already keeps its place. Gives back a waker that is not needed.
    pub(super) fn wait_room(&mut self, old: Option<u64>, bytes: u64, waker: Waker) -> (u64, Option<Waker>) {
        let number = old.unwrap_or_else(|| self.number());
        let (index, left) = self.wakers.keep(waker);
        self.room.insert(number, (bytes, index));
        (number, left)
    }

    /// Its waker, as with [`Waits::forget_durable`]; and whether it had been told of room.
    #[must_use]
    pub(super) fn forget_room(&mut self, number: u64) -> (Option<Waker>, bool) {
        if let Some((_, index)) = self.room.remove(&number) {
            return (self.wakers.forget(index), false);
        }
        self.told_bytes -= self.told.remove(&number).unwrap_or(0);
        (None, true)
    }

    /// Everybody who waits by a waker is to look again, and waits on meanwhile.
    pub(super) fn stir(&mut self) {
        let wakers = self.wakers.kept.iter().filter_map(Kept::shared);
        self.fired.extend(wakers.map(Fired::Wake));
    }

    pub(super) fn has_room_waiters(&self) -> bool {
        !self.room.is_empty()
    }

    /// It has seen that there is room. Treat it as notified, whether or not it was.
    #[must_use]
    pub(super) fn come_for_room(&mut self, number: u64) -> Option<Waker> {
        let (bytes, index) = self.room.remove(&number)?;
        self.told.insert(number, bytes);
        self.told_bytes += bytes;
        self.wakers.forget(index)
    }

    /// The next who waits for room behind the one with this number, and how much it wants.
    pub(super) fn next_room(&self, after: u64) -> Option<(u64, u64)> {
        let next = self.room.range(after + 1..).next();
        next.map(|(number, (bytes, _))| (*number, *bytes))
    }

    /// Somebody is told of room, until [`Waits::end_telling`]. So many bytes are for those who were told before.
    pub(super) fn begin_to_tell(&mut self) -> u64 {
        self.wakers.round += 1;
        self.told_bytes
    }

    /// There is room for this one.
    pub(super) fn tell_room(&mut self, number: u64) {
        if let Some((bytes, index)) = self.room.remove(&number) {
            self.wakers.fire(index, &mut self.fired);
            self.told.insert(number, bytes);
            self.told_bytes += bytes;
        }
    }

    pub(super) fn end_telling(&mut self) {
        self.wakers.end_round(&mut self.fired);
    }

    /// Who was woken before has taken what it wanted, or does so like anybody: nobody waits for it any longer. Its place still passes room
    /// on when it gives it up.
    pub(super) fn told_have_come(&mut self) {
        if std::mem::take(&mut self.are_told_out) {
            self.forget_told();
        }
    }

    fn forget_told(&mut self) {
        self.told.clear();
        self.told_bytes = 0;
    }

    /// Whose time has come is let go.
    pub(super) fn take_fired(&mut self, into: &mut Vec<Fired>) {
        into.append(&mut self.fired);
        self.are_told_out = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// As many as are given hear, and those that are true panic.
    fn told(panics: &[bool], heard: &Arc<AtomicU32>) -> FireAll {
        let fired = panics.iter().map(|panics| {
            let (panics, heard) = (*panics, Arc::clone(heard));
            let callback = move |_: Result<(), LogError>| {
                heard.fetch_add(1, Ordering::Relaxed);
                assert!(!panics, "the test wants a callback to panic");
            };
            Fired::Call(Box::new(callback), Ok(()))
        });
        FireAll(fired.collect())
    }

    #[test]
    fn all_hear_whoever_panics() {
        let heard = Arc::new(AtomicU32::new(0));
        let all = told(&[true, true, false], &heard);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(all))).is_err());
        assert_eq!(heard.swap(0, Ordering::Relaxed), 3);
        // A panic is under way already: a second one would end the process.
        let cut_short = || {
            let _all = told(&[true, false], &heard);
            assert!(heard.load(Ordering::Relaxed) > 0, "the test wants a panic");
        };
        assert!(catch_unwind(AssertUnwindSafe(cut_short)).is_err());
        assert_eq!(heard.load(Ordering::Relaxed), 2);
    }
}
