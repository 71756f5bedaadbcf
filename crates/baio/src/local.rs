//! The core in the caller's own thread: no hop at all.
//!
//! Nothing runs in the background, so somebody has to reap completions. That is a role: [`Local::block_on`],
//! [`Local::wait`](crate::Link::wait), [`Local::drive`] and the tokio adapter take it while they run. A future that is
//! polled with nobody in the role gives an error instead of waiting for ever.
//!
//! The core is borrowed only inside the functions of this file and of those below it, and never while anybody else's code runs: wakers are woken,
//! and wakers that are not needed any more are dropped, after the borrow has ended. So a waker may do anything, even drop
//! other requests of the same link.

mod driving;
#[cfg(test)]
mod tests;
mod transport;
mod watched;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::task::Waker;

use baio_broker::control::{Doing, Reply};
use baio_client::WaitPlace;
use baio_engine::{Completion, Doorbell, Errno, Time, Wait};
use baio_process::fork::Life;
use baio_storage::{Core, Error, Fault, Identity, Result};

use self::watched::Watched;
use crate::alarm::Alarm;
use crate::fired::Fired;
use crate::options::LinkOptions;
use crate::ours::{CalledOff, Ours};
use crate::room::Room;
use crate::trace;
use crate::transport::{Facts, Notice, Transport};

pub use driving::Drive;

/// A link that works in this thread: for plain files, or for a volume that this process opens. Take it for one thread, or one for each core, and
/// all the speed; otherwise take [`Remote`](crate::Remote). Clones are the same link.
///
/// Requests go out and come back while somebody drives the link: inside [`block_on`](crate::Link::block_on) and `.wait()`, beside another runtime
/// in [`Local::drive`] or an adapter for tokio or compio. A future that is polled when nobody does fails with
/// [`NobodyDrives`](crate::Fault::NobodyDrives).
///
/// ```
/// use baio::{File, Link, Local};
/// # fn main() -> baio::Result<()> {
/// # let path = std::env::temp_dir().join(format!("baio-local-doc-{}", std::process::id()));
/// let link = Local::new()?;
/// let bytes = link.block_on(async {
///     let file = File::options().write().create().truncate().open(&link, &path).await?;
///     file.write_all_at(0, b"one thread".to_vec()).await?;
///     file.size().await
/// })??;
/// assert_eq!(bytes, 10);
/// # std::fs::remove_file(&path).unwrap();
/// link.close()
/// # }
/// ```
///
/// Neither a `Local` nor anything opened on it can go to another thread. This does not compile:
///
/// ```compile_fail
/// fn needs_send<T: Send>() {}
/// needs_send::<baio::Segment<baio::Local>>();
/// ```
#[derive(Clone)]
pub struct Local(Rc<Inner>);

struct Inner {
    /// In a forked child it is over.
    life: Life,
    /// `None` once closed.
    core: RefCell<Option<Core>>,
    doorbell: Doorbell,
    facts: Facts,
    /// How many have the role of reaping.
    reapers: Cell<u32>,
    /// The last of them left while the core was borrowed: those who wait have yet to hear of it.
    left: Cell<bool>,
    /// Those who drive the link from outside loops, to be woken when there is something new to submit.
    drivers: RefCell<Vec<Waker>>,
    /// Futures that found every place of the table taken.
    room: Room,
    /// Streams and timers that found every slot of the engine taken.
    slots: Room,
    /// Kept for the next turn, so that turns allocate nothing.
    wakers: Cell<Vec<Waker>>,
    /// The same of those who are called for what a borrow has made free.
    called: Cell<Vec<Waker>>,
    /// Sockets, pipes and timers.
    ours: Ours,
    /// What was said while the core was borrowed.
    told: RefCell<Vec<Notice<Question>>>,
    /// For a loop of the program's own.
    watched: OnceCell<Watched>,
}

/// A command that was begun on the core.
pub enum Question {
    /// Its answer, until it is taken.
    Answered(Cell<Option<Result<Reply>>>),
    /// It takes turns.
    Doing(Doing),
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local")
    }
}

impl Local {
    /// A link without a volume, for plain files.
    ///
    /// # Errors
    /// No backend can be started.
    pub fn new() -> Result<Local> {
        Local::new_with(&LinkOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Local::new`]; there is no memory for the cache.
    pub fn new_with(options: &LinkOptions) -> Result<Local> {
        let opened = options.start().map(|core| Local::around(core, options.identity));
        trace::link_opened(|| "plain files", opened.as_ref().map(drop));
        opened
    }

    /// Opens the volume at `path`, which this process then owns.
    ///
    /// # Errors
    /// The volume is in use by another process, which the error names; it is not a volume, or damaged; or the system's error.
    pub fn open(path: impl AsRef<Path>) -> Result<Local> {
        Local::open_with(path, &LinkOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Local::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &LinkOptions) -> Result<Local> {
        let path = path.as_ref();
        let opened = options.open(path).map(|core| Local::around(core, options.identity));
        trace::link_opened(|| baio_engine::path_name(path), opened.as_ref().map(drop));
        opened
    }

    /// Opens the volume to read segments of it, beside other readers; nothing is ever written ([`Core::open_to_read`]).
    ///
    /// # Errors
    /// As [`Local::open`].
    pub fn open_to_read(path: impl AsRef<Path>, options: &LinkOptions) -> Result<Local> {
        let core = options.open_by(|config| Core::open_to_read(path.as_ref(), config))?;
        Ok(Local::around(core, options.identity))
    }

    /// A link around a core made elsewhere: a simulated one, for instance.
    #[must_use]
    pub fn around(core: Core, identity: Identity) -> Local {
        let doorbell = core.engine().doorbell();
        let facts = Facts::new(identity, core.volume_name(), true);
        Local(Rc::new(Inner {
            life: Life::now(),
            core: RefCell::new(Some(core)),
            doorbell,
            facts,
            reapers: Cell::new(0),
            left: Cell::new(false),
            drivers: RefCell::default(),
            room: Room::default(),
            slots: Room::default(),
            wakers: Cell::new(Vec::new()),
            called: Cell::new(Vec::new()),
            ours: Ours::default(),
            told: RefCell::default(),
            watched: OnceCell::new(),
        }))
    }

    /// Submits, and sleeps until something ends or another thread wakes the future.
    fn sleep_till_rung(&self, alarm: &Alarm) -> Result<()> {
        let sleeps = alarm.fall_asleep() && !self.call_the_next();
        let mut core = self.enter()?;
        let wait = match sleeps {
            true => self.wait_for_next(u32::from(core.in_flight() > 0)),
            false => Wait::No,
        };
        let turned = core.turn(wait);
        alarm.wake_up(); // Before it is woken itself: nobody has to ring for it.
        self.leave_waking(core);
        self.wake_late();
        turned.map(drop)
    }

    /// Borrows the core for the length of one call. Foreign code runs inside of [`Link::with_pool`](crate::Link::with_pool) only: there the link
    /// is refused.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let mut core = self.enter()?;
        let done = act(&mut core);
        self.leave_core(core);
        done
    }

    /// The same, and whoever waits for what has ended in it is woken.
    fn with_waking<T>(&self, act: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let mut core = self.enter()?;
        let done = act(&mut core);
        self.leave_waking(core);
        done
    }

    fn enter(&self) -> std::result::Result<RefMut<'_, Core>, Shut> {
        #[cfg(test)]
        tests::BORROWS.set(tests::BORROWS.get() + 1);
        self.check_life()?;
        let borrowed = self.0.core.try_borrow_mut().map_err(|_| Shut::Inside)?;
        RefMut::filter_map(borrowed, Option::as_mut).map_err(|_| Shut::Closed)
    }

    /// A forked child has a copy of the link. It touches nothing that it shares with its parent, and its writes would reach no device.
    fn check_life(&self) -> std::result::Result<(), Shut> {
        match self.0.life.is_over() {
            true => Err(Shut::Forked),
            false => Ok(()),
        }
    }

    /// Ends a borrow. What it has made free is for those who wait for that.
    #[inline]
    fn leave_core(&self, core: RefMut<'_, Core>) {
        if self.nobody_waits() {
            drop(core);
            return self.clear_up();
        }
        self.leave_to_waiters(core);
    }

    #[cold]
    fn leave_to_waiters(&self, core: RefMut<'_, Core>) {
        let (freed, free) = core.places_freed();
        let (free_slots, taken) = core.engine().free_slots();
        drop(core);
        let (places, slots) = (
            self.0.room.free_for_waiters(freed, free),
            self.0.slots.free_for_waiters(taken, free_slots),
        );
        // Before anybody's code runs: if that panics, they are woken all the same.
        let called = (places > 0 || slots > 0).then(|| self.who_is_called(places, slots));
        self.clear_up();
        if let Some(called) = called {
            self.0.called.set(called.fire());
        }
    }

    /// Those who stand in front of so many free places and slots. Whoever drives the link is called with them while others stand behind: if nobody
    /// comes who was called, it calls those.
    fn who_is_called(&self, places: usize, slots: usize) -> Fired {
        let mut called = self.0.called.take();
        self.0.room.take_next(places, &mut called);
        self.0.slots.take_next(slots, &mut called);
        if !self.nobody_waits() {
            called.append(&mut self.0.drivers.borrow_mut());
        }
        Fired::all(called)
    }

    /// The same. Then those are woken who wait for what has ended, and wakers that are not needed any more dropped: both may run anybody's code.
    #[inline]
    fn leave_waking(&self, core: RefMut<'_, Core>) {
        match core.leaves_something() {
            true => self.leave_with_something(core),
            false => self.leave_core(core),
        }
    }

    #[inline(never)]
    fn leave_with_something(&self, mut core: RefMut<'_, Core>) {
        let mut wakers = self.0.wakers.take();
        core.take_fired(&mut wakers);
        let mut foreign: Vec<Completion> = std::iter::from_fn(|| core.next_foreign()).collect();
        // Before anybody is woken: who is may wait for one of these at once.
        self.0.ours.note(&mut foreign, &mut wakers);
        let count = wakers.len();
        core.take_displaced(&mut wakers);
        let fired = Fired::first(wakers, count);
        self.leave_core(core);
        drop(foreign);
        self.0.wakers.set(fired.fire());
    }

    /// Says what was said while the core was borrowed.
    #[inline]
    fn clear_up(&self) {
        let called_off = &self.0.ours.called_off;
        if !called_off.borrow().is_empty() {
            self.end_early(called_off.take());
        }
        if !self.0.told.borrow().is_empty() {
            self.say_what_was_told();
        }
        if self.0.left.take() && !self.is_driven() {
            self.leave_role();
        }
    }

    /// Has a stream's request or a timer end early: now, or when the borrow has ended.
    pub(crate) fn call_off(&self, what: CalledOff) {
        if self.is_inside() {
            self.0.ours.called_off.borrow_mut().push(what);
            return;
        }
        self.end_early([what]);
    }

    fn end_early(&self, all: impl IntoIterator<Item = CalledOff>) {
        let _calls = CallsDriver(self); // To submit that.
        let _ = self.with(|core| {
            all.into_iter().for_each(|what| what.tell(core.engine_mut()));
            Ok(())
        });
    }

    #[cold]
    fn say_what_was_told(&self) {
        let mut unsaid = Unsaid {
            link: self,
            notices: self.0.told.take().into_iter(),
        };
        for notice in unsaid.notices.by_ref() {
            self.tell_link(notice);
        }
    }

    /// Of what is the core's.
    fn tell_core(&self, notice: Notice<Question>) {
        let calls = matches!(notice, Notice::Cancel(_) | Notice::Logged { .. });
        let _calls = calls.then(|| CallsDriver(self));
        let left = self.with_waking(|core| {
            match notice {
                Notice::Cancel(ticket) => core.cancel(ticket),
                Notice::Abandon(ticket) => core.abandon(ticket),
                Notice::Close(handle) => core.close_handle(handle),
                Notice::Leave(Question::Doing(doing)) => return Ok(doing.abandon(core)),
                Notice::Logged { .. } => core.hear_logs(),
                Notice::Leave(Question::Answered(_))
                | Notice::Named(..)
                | Notice::LeftLine { .. }
                | Notice::MemoryCame => {}
            }
            Ok(None)
        });
        drop(left); // What is left of a command goes when the core is free.
    }

    /// Is somebody's code running inside of a borrow? What it drops is kept until that has ended.
    fn is_inside(&self) -> bool {
        self.0.core.try_borrow_mut().is_err()
    }

    /// Is every slot taken?
    fn is_full(&self) -> bool {
        self.with(|core| Ok(core.is_full())).unwrap_or(false)
    }

    /// Those who wait for a slot of the engine.
    pub(crate) fn slots(&self) -> &Room {
        &self.0.slots
    }

    /// Waits for one.
    pub(crate) fn wait_for_slot(&self, place: &mut Option<WaitPlace>, waker: Waker, until: Option<Time>) {
        let taken = self.with(|core| Ok(core.engine().free_slots().1));
        self.0.slots.wait(place, waker, until, taken.unwrap_or_default());
    }

    /// Does nobody wait for a place or a slot, as mostly?
    fn nobody_waits(&self) -> bool {
        self.0.room.is_empty() && self.0.slots.is_empty()
    }

    pub(crate) fn ours(&self) -> &Ours {
        &self.0.ours
    }
}

/// What was said while the core was borrowed, and is being said now. If somebody's code panics meanwhile, the rest is kept for the end of the
/// next borrow.
struct Unsaid<'a> {
    link: &'a Local,
    notices: std::vec::IntoIter<Notice<Question>>,
}

impl Drop for Unsaid<'_> {
    fn drop(&mut self) {
        self.link.0.told.borrow_mut().extend(self.notices.by_ref());
    }
}

/// Calls whoever drives the link from outside at its end, also if somebody else's waker panics before.
struct CallsDriver<'a>(&'a Local);

impl Drop for CallsDriver<'_> {
    fn drop(&mut self) {
        self.0.call_driver();
    }
}

/// Why the core is not to be had.
enum Shut {
    /// Somebody's code runs inside of a borrow.
    Inside,
    /// It was closed.
    Closed,
    /// It is the parent's of this process.
    Forked,
}

impl From<Shut> for Error {
    fn from(shut: Shut) -> Error {
        match shut {
            Shut::Inside => inside(),
            Shut::Closed => Error::new("use", "a closed link", Fault::Stale),
            Shut::Forked => Error::new("use", "a link of the parent process", baio_engine::Error::Forked),
        }
    }
}

/// Why a link is refused to what runs on its core.
pub(crate) fn inside() -> Error {
    Error::new("use", "a link in code that one of its calls runs", Errno::EDEADLK)
}
