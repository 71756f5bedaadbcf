//! The core in the caller's own thread: no hop at all.
//!
//! Nothing runs in the background, so somebody has to reap completions. That is a role: [`Local::block_on`],
//! [`Local::wait`](crate::Link::wait), [`Local::drive`] and the tokio adapter take it while they run. A future that is
//! polled with nobody in the role gives an error instead of waiting for ever.
//!
//! The core is borrowed only inside the functions of this file, and never while anybody else's code runs: wakers are woken,
//! and wakers that are not needed any more are dropped, after the borrow has ended. So a waker may do anything, even drop
//! other requests of the same link.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use baio_engine::{Buffer, Config, Doorbell, Stats, Time, Wait};
use baio_storage::cache::{CacheConfig, CacheStats};
use baio_storage::{
    Access, Core, CreateOptions, Error, Fault, Handle, Identity, Outcome, ResizeOptions, Result, SegmentInfo,
    SegmentRequest, Ticket, VolumeView,
};

use crate::alarm::Alarm;
use crate::link::Link;
use crate::room::Room;
use crate::segment::Segment;

/// How a volume is opened in this process.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Who asks. Embedded, this guards against mistakes only: whoever may open the volume's file can do anything to it.
    pub identity: Identity,
    /// Size and backend of the engine.
    pub config: Config,
    /// A page cache for [`Mode::Cached`](crate::Mode::Cached), if there is to be one. Its memory comes on top of the arena's.
    pub cache: Option<CacheConfig>,
}

impl Options {
    /// Opens a core so.
    pub(crate) fn open(&self, path: &Path) -> Result<Core> {
        self.open_by(|config| Core::open(path, config))
    }

    fn open_by(&self, open: impl FnOnce(&Config) -> Result<Core>) -> Result<Core> {
        let mut config = self.config;
        let Some(cache) = &self.cache else {
            return open(&config);
        };
        config.arena_bytes = config.arena_bytes.saturating_add(cache.bytes);
        let mut core = open(&config)?;
        match core.use_cache(cache) {
            Ok(()) => Ok(core),
            Err(error) => {
                // The first failure is the one to tell.
                let _ = core.close();
                Err(error)
            }
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            identity: Identity::effective(),
            config: Config::default(),
            cache: None,
        }
    }
}

/// A volume opened in this thread. Clones are the same volume; neither `Send` nor `Sync`, as the ring is not.
///
/// ```compile_fail
/// fn needs_send<T: Send>() {}
/// needs_send::<baio::Segment<baio::Local>>();
/// ```
#[derive(Clone)]
pub struct Local(Rc<Inner>);

struct Inner {
    /// `None` once closed.
    core: RefCell<Option<Core>>,
    doorbell: Doorbell,
    identity: Identity,
    /// How many have the role of reaping.
    reapers: Cell<u32>,
    /// Whoever drives the link from an outside loop, to be woken when there is something new to submit.
    driver: Cell<Option<Waker>>,
    /// Futures that found every slot taken.
    room: Room,
    /// Kept for the next turn, so that turns allocate nothing.
    fired: Cell<Vec<Waker>>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local")
    }
}

/// The role of reaping, given back when dropped.
pub(crate) struct Role(Local);

impl Drop for Role {
    fn drop(&mut self) {
        let left = self.0.0.reapers.get().saturating_sub(1);
        self.0.0.reapers.set(left);
        if left == 0 {
            self.0.leave();
        }
    }
}

impl Local {
    /// Opens the volume at `path`, which this process then owns.
    ///
    /// # Errors
    /// In use by another process (named), not a volume, damaged; or what the system said.
    pub fn open(path: impl AsRef<Path>) -> Result<Local> {
        Local::open_with(path, &Options::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Local::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Local> {
        options
            .open(path.as_ref())
            .map(|core| Local::around(core, options.identity))
    }

    /// Opens the volume to read segments of it, beside other readers; nothing is ever written ([`Core::open_to_read`]).
    ///
    /// # Errors
    /// As [`Local::open`].
    pub fn open_to_read(path: impl AsRef<Path>, options: &Options) -> Result<Local> {
        let core = options.open_by(|config| Core::open_to_read(path.as_ref(), config))?;
        Ok(Local::around(core, options.identity))
    }

    /// A link around a core made elsewhere: a simulated one, for instance.
    #[must_use]
    pub fn around(core: Core, identity: Identity) -> Local {
        let doorbell = core.engine().doorbell();
        Local(Rc::new(Inner {
            core: RefCell::new(Some(core)),
            doorbell,
            identity,
            reapers: Cell::new(0),
            driver: Cell::new(None),
            room: Room::default(),
            fired: Cell::new(Vec::new()),
        }))
    }

    /// Makes a segment of the caller's own; returns when it is durable.
    ///
    /// # Errors
    /// The name is taken or bad, there is no space; or what the system said.
    pub fn create_segment(&self, name: &str, options: &CreateOptions) -> Result<SegmentInfo> {
        self.create_segment_of(self.0.identity.uid, name, options)
    }

    /// Makes a segment for another owner; only uid 0 may.
    ///
    /// # Errors
    /// As [`Local::create_segment`], and `Access`.
    pub fn create_segment_of(&self, owner_uid: u32, name: &str, options: &CreateOptions) -> Result<SegmentInfo> {
        self.operate(|core| core.create(self.0.identity, owner_uid, name, options))
    }

    /// Opens a segment of the caller's own.
    ///
    /// # Errors
    /// There is none; or what the system said.
    pub fn open_segment(&self, name: &str, access: Access) -> Result<Segment<Local>> {
        self.open_segment_of(self.0.identity.uid, name, access)
    }

    /// Opens somebody's segment, if its mode allows it.
    ///
    /// # Errors
    /// As [`Local::open_segment`], and `Access`.
    pub fn open_segment_of(&self, owner_uid: u32, name: &str, access: Access) -> Result<Segment<Local>> {
        let (handle, info) = self.operate(|core| core.open_segment(self.0.identity, owner_uid, name, access))?;
        Ok(Segment::new(self.clone(), handle, info))
    }

    /// Deletes a segment of the caller's own, when the requests under way on it have ended.
    ///
    /// # Errors
    /// There is none; or what the system said.
    pub fn delete_segment(&self, name: &str) -> Result<()> {
        self.operate(|core| core.delete(self.0.identity, self.0.identity.uid, name))
            .map(drop)
    }

    /// Gives a segment of the caller's own another size; open handles see it at once. What it gains reads as zero. It is moved
    /// where neither its reserve nor free blocks behind it are enough, and is served meanwhile.
    ///
    /// # Errors
    /// There is none, there is no space, it is over quota; or what the system said.
    pub fn resize_segment(&self, name: &str, options: &ResizeOptions) -> Result<SegmentInfo> {
        self.operate(|core| core.resize(self.0.identity, self.0.identity.uid, name, options))
    }

    /// Gives a segment of the caller's own another name; open handles stay valid.
    ///
    /// # Errors
    /// There is none, the new name is taken or bad; or what the system said.
    pub fn rename_segment(&self, old: &str, new: &str) -> Result<SegmentInfo> {
        self.operate(|core| core.rename(self.0.identity, self.0.identity.uid, old, new))
    }

    /// The segments that the caller may see.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn list(&self) -> Result<Vec<SegmentInfo>> {
        self.operate(|core| core.list(self.0.identity))
    }

    /// The volume as it is now, as far as this user may see it.
    ///
    /// # Errors
    /// The link is closed.
    pub fn info(&self) -> Result<VolumeView> {
        self.with(|core| core.volume_view(self.0.identity))
    }

    /// Counters of the engine.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.with(|core| Ok(core.stats())).unwrap_or_default()
    }

    /// The backend that was chosen.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.with(|core| Ok(core.engine().explain().backend)).unwrap_or("none")
    }

    /// Submits what is queued, sleeps as long as `wait` allows, and reaps. Returns how many requests of the engine ended.
    ///
    /// # Errors
    /// The backend itself is broken, or the link is closed.
    pub fn turn(&self, wait: Wait) -> Result<usize> {
        let ended = self.with(|core| core.turn(wait));
        self.wake();
        ended
    }

    /// Has anything ended that [`Local::next_outcome`] would give?
    #[must_use]
    pub fn has_outcomes(&self) -> bool {
        self.with(|core| Ok(core.has_outcomes())).unwrap_or(false)
    }

    /// Takes the next outcome of requests started by ticket that nobody polls for, in the order of completion. Reaps nothing
    /// by itself.
    pub fn next_outcome(&self) -> Option<Outcome> {
        let outcome = self.with(|core| Ok(core.next_outcome())).ok().flatten();
        if outcome.is_some() {
            self.0.room.wake();
        }
        outcome
    }

    /// Runs a future to its end in this thread, driving the link meanwhile. Other threads may wake it.
    ///
    /// # Errors
    /// The backend itself is broken, or the link is closed.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        let _role = self.take_role();
        let mut future = std::pin::pin!(future);
        let alarm = Arc::new(Alarm::new(self.0.doorbell.clone()));
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        loop {
            if alarm.take()
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                return Ok(output);
            }
            self.sleep(&alarm)?;
        }
    }

    /// Submits, and sleeps until something ends or another thread wakes the future.
    fn sleep(&self, alarm: &Alarm) -> Result<()> {
        let wait = if alarm.fall_asleep() {
            self.wait_for_next(u32::from(self.in_flight() > 0))
        } else {
            Wait::No
        };
        let turned = self.with(|core| core.turn(wait));
        alarm.wake_up();
        self.wake();
        self.wake_late();
        turned.map(drop)
    }

    /// Drives the link from inside any executor: the returned future never ends; run it beside the work (`select`, or a
    /// task of its own). It has the role of reaping from now on until it is dropped.
    ///
    /// It is the place where the executor's thread sleeps: each poll submits what is queued and waits for one completion.
    /// Where other tasks of the thread must not be kept waiting so long, use an adapter for the executor's own reactor.
    #[must_use = "the link is driven only while this is polled"]
    pub fn drive(&self) -> Drive {
        Drive {
            link: self.clone(),
            _role: self.take_role(),
        }
    }

    /// Ends everything under way, marks the volume as closed properly, and gives it back. Segments and futures of the
    /// link give `Stale` from now on; whoever waits for one is woken.
    ///
    /// # Errors
    /// What the system said; the next open then heals the volume.
    pub fn close(self) -> Result<()> {
        // Refused when another clone has closed it: then nothing is under way.
        let _ = self.with(|core| {
            core.wind_down();
            Ok(())
        });
        while self.in_flight() > 0 {
            self.turn(Wait::one())?;
        }
        let core = self.0.core.borrow_mut().take();
        self.0.room.wake();
        self.call_driver();
        core.map_or(Ok(()), Core::close)
    }

    pub(crate) fn take_role(&self) -> Role {
        self.0.reapers.set(self.0.reapers.get() + 1);
        Role(self.clone())
    }

    /// The moment `duration` after the last turn, for a request's deadline. A request that is not done by then completes as
    /// indeterminate: it may or may not take effect.
    #[must_use]
    pub fn deadline(&self, duration: Duration) -> Time {
        self.now().after(duration)
    }

    /// Nobody reaps any more: whoever waits is woken, to be told so.
    fn leave(&self) {
        drop(self.0.driver.take());
        let mut waiting = Vec::new();
        let _ = self.with(|core| {
            core.take_wakers(&mut waiting);
            Ok(())
        });
        waiting.into_iter().for_each(Waker::wake);
        self.0.room.wake();
    }

    /// Buffer memory that nobody holds, in bytes.
    #[must_use]
    pub fn arena_free_bytes(&self) -> usize {
        self.with(|core| Ok(core.engine().arena().free_bytes())).unwrap_or(0)
    }

    /// Counters of the page cache, if there is one.
    #[must_use]
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.with(|core| Ok(core.cache_stats())).unwrap_or_default()
    }

    /// Requests that have not ended, or whose end the next turn reads.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.with(|core| Ok(core.in_flight())).unwrap_or(0)
    }

    /// Is there anything that a turn would find or submit without waiting?
    #[cfg(feature = "tokio")]
    pub(crate) fn has_news(&self) -> bool {
        self.with(|core| Ok(core.has_news())).unwrap_or(false)
    }

    /// Has whoever drives the link from outside look again.
    fn call_driver(&self) {
        if let Some(driver) = self.0.driver.take() {
            driver.wake();
        }
    }

    pub(crate) fn set_driver(&self, waker: &Waker) {
        self.0.driver.set(Some(waker.clone()));
    }

    /// Borrows the core for the length of one call. No foreign code runs inside, so the borrow cannot be taken already.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        match self.0.core.borrow_mut().as_mut() {
            Some(core) => act(core),
            None => Err(Error::new("use", "a closed link", Fault::Stale)),
        }
    }

    /// The same for what turns the core on its way: other requests may end meanwhile, and whoever waits for them is woken.
    fn operate<T>(&self, act: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let result = self.with(act);
        self.wake();
        result
    }

    /// Wakes whoever waits for what the last turn has ended. The core is not borrowed here.
    pub(crate) fn wake(&self) {
        let mut fired = self.0.fired.take();
        let _ = self.with(|core| {
            core.take_fired(&mut fired);
            Ok(())
        });
        let room = !fired.is_empty();
        fired.drain(..).for_each(Waker::wake);
        self.drop_displaced(&mut fired);
        self.0.fired.set(fired);
        if room {
            self.0.room.wake();
        }
    }

    /// Until so many requests have completed, or somebody who waits for a slot gives up.
    fn wait_for_next(&self, count: u32) -> Wait {
        Wait::Until {
            count,
            min_wait: Duration::ZERO,
            deadline: self.0.room.until(),
        }
    }

    /// Until when a loop that is not the engine's may sleep: then a request is overdue, or somebody who waits for a slot gives up, or
    /// the cache has something to write.
    #[cfg(feature = "tokio")]
    pub(crate) fn next_wake(&self) -> Option<Time> {
        let of_core = self.with(|core| Ok(core.next_wake())).ok().flatten();
        of_core.into_iter().chain(self.0.room.until()).min()
    }

    /// Wakes whoever has waited for a slot long enough.
    pub(crate) fn wake_late(&self) {
        if self.0.room.until().is_some_and(|at| at <= self.now()) {
            self.0.room.wake();
        }
    }

    fn drop_displaced(&self, into: &mut Vec<Waker>) {
        let _ = self.with(|core| {
            core.take_displaced(into);
            Ok(())
        });
        into.clear();
    }

    /// Drops the wakers that are not needed any more. The core is not borrowed here: a drop may run anybody's code.
    fn drop_all_displaced(&self) {
        let mut list = self.0.fired.take();
        self.drop_displaced(&mut list);
        self.0.fired.set(list);
    }
}

impl Link for Local {
    fn buffer(&self, len: usize) -> Result<Buffer> {
        self.with(|core| core.buffer(len))
    }

    fn start(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        let started = match self.0.core.borrow_mut().as_mut() {
            Some(core) => core.start(request),
            None => Err(request),
        };
        self.call_driver();
        started
    }

    fn poll(&self, ticket: Ticket, waker: &Waker) -> Poll<Option<Outcome>> {
        let waker = waker.clone(); // Not under the borrow: a clone may run anybody's code.
        let polled = self.with(|core| Ok(core.poll(ticket, Some(waker))));
        self.drop_all_displaced();
        match polled {
            Ok(polled) => {
                if polled.is_ready() {
                    self.0.room.wake();
                }
                polled
            }
            Err(_) => Poll::Ready(None),
        }
    }

    fn wake_when_room(&self, waker: &Waker, until: Option<Time>) {
        self.0.room.add(waker.clone(), until);
    }

    fn now(&self) -> Time {
        self.with(|core| Ok(core.engine().now())).unwrap_or_default()
    }

    fn refusal(&self) -> Option<Fault> {
        self.0.core.borrow().is_none().then_some(Fault::Stale)
    }

    fn is_driven(&self) -> bool {
        self.0.reapers.get() > 0
    }

    fn wait(&self, ticket: Ticket) -> Result<Option<Outcome>> {
        let _role = self.take_role();
        let waited = self.with(|core| core.wait(ticket));
        self.wake();
        waited
    }

    fn abandon(&self, ticket: Ticket) {
        let _ = self.with(|core| {
            core.abandon(ticket);
            Ok(())
        });
        self.drop_all_displaced();
    }

    fn size(&self, handle: Handle) -> Result<u64> {
        self.with(|core| core.size(handle))
    }

    fn close_handle(&self, handle: Handle) {
        let _ = self.with(|core| {
            core.close_handle(handle);
            Ok(())
        });
    }
}

/// See [`Local::drive`].
pub struct Drive {
    link: Local,
    _role: Role,
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive")
    }
}

impl Future for Drive {
    /// Only ever an error: the backend is broken, or the link was closed.
    type Output = Error;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        self.link.set_driver(context.waker());
        let in_flight = self.link.in_flight() > 0;
        if !in_flight && self.link.0.room.until().is_none() {
            return Poll::Pending; // Woken by the next request.
        }
        match self.link.turn(self.link.wait_for_next(u32::from(in_flight))) {
            Ok(_) => {
                self.link.wake_late();
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(error),
        }
    }
}
