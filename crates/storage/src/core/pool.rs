//! The buffer pool of a core: pages of files and segments held in its cache, read and changed where they lie; and the hints.
//!
//! What is there is pinned at once, without a request. What is not comes with the outcome of a request like any other. The rest is
//! [`crate::cache::pool`]'s and its gate's; here handles become objects of the cache, and what is wrong becomes an [`Error`].

use std::ops::Range;
use std::task::Poll;

use baio_engine::{Memory, Wait};

use super::Core;
use super::lane::Lane;
use super::ways::Coming;
use crate::cache::eviction::{Eviction, Hint};
use crate::cache::window::Pattern;
use crate::cache::{Cache, CacheError, CacheOp, CacheOptions, CacheRequest, GateId, Keeper, ObjectId, PAGE_BYTES};
use crate::error::{Error, Fault, Result};
use crate::identity::Access;
use crate::object::ObjectState;
use crate::request::{Handle, Mode, Outcome, Owner, PinnedPage, SegmentOp, SegmentRequest, Ticket};

/// What came of asking for a page.
#[derive(Debug)]
#[must_use = "the page may be held"]
pub enum Pinning {
    /// It is there.
    Held(PinnedPage),
    /// It is being brought in: the outcome of this ticket has the pin.
    Coming(Ticket),
}

impl Core {
    /// Gives the core a page cache with an eviction policy of the caller's own, made for `config.bytes` / 4096 frames.
    ///
    /// A policy sees frame numbers, and is told what came, was used and went. It may be wrong: who may not go stays, and the cache
    /// takes another (`victims_refused` in its counters).
    ///
    /// ```
    /// use baio_engine::EngineOptions;
    /// use baio_storage::cache::{CacheOptions, eviction::{Eviction, Hint}};
    ///
    /// /// Last in, first out: of a cycle over more than fits, most is found again.
    /// #[derive(Debug, Default)]
    /// struct Newest(Vec<u32>);
    ///
    /// impl Eviction for Newest {
    ///     fn inserted(&mut self, frame: u32, _key: u64, _hint: Hint) {
    ///         self.removed(frame);
    ///         self.0.push(frame);
    ///     }
    ///     fn hit(&mut self, _frame: u32) {}
    ///     fn removed(&mut self, frame: u32) {
    ///         self.0.retain(|held| *held != frame);
    ///     }
    ///     fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
    ///         let at = self.0.iter().rposition(|frame| may_go(*frame))?;
    ///         Some(self.0.remove(at))
    ///     }
    ///     fn name(&self) -> &'static str {
    ///         "newest"
    ///     }
    /// }
    ///
    /// let mut core = baio_storage::Core::new(&EngineOptions::default())?;
    /// let config = CacheOptions { bytes: 8 << 20, ..CacheOptions::default() };
    /// core.use_cache_with(&config, Box::new(Newest::default()))?;
    /// # Ok::<(), baio_storage::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Core::use_cache`].
    pub fn use_cache_with(&mut self, config: &CacheOptions, eviction: Box<dyn Eviction>) -> Result<()> {
        let cache = Cache::with_eviction(self.lane.engine.arena(), *config, eviction);
        self.lane.give_cache(config, cache)
    }

    /// Pins a page, of 4 KiB: number 0 is the first of the file or segment. One that is there costs no request and no ticket.
    ///
    /// ```
    /// use baio_engine::{EngineOptions, Open};
    /// use baio_storage::{Core, Pinning, cache::CacheOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("baio-pin-{}", std::process::id()));
    /// # std::fs::write(&path, vec![0; 1 << 20])?;
    /// let mut core = Core::new(&EngineOptions::default())?;
    /// core.use_cache(&CacheOptions { bytes: 8 << 20, ..CacheOptions::default() })?;
    /// let table = core.open_file(&path, &Open::write())?;
    /// core.prefetch(table, &[7..8, 100..104])?;
    ///
    /// let pin = match core.pin(table, 7)? {
    ///     Pinning::Held(pin) => pin,
    ///     Pinning::Coming(ticket) => {
    ///         let outcome = core.wait(ticket)?.ok_or("somebody else took it")?;
    ///         outcome.result?;
    ///         outcome.pin.ok_or("a pin comes with success")?
    ///     }
    /// };
    /// assert_eq!(core.page(&pin)?[0], 0);
    /// let lsn = 1; // The log record that says what is changed now.
    /// core.change_now(&pin, lsn)?[0] = 42;
    /// core.unpin(pin);
    ///
    /// // The log is written and safe as far as that record; before, the page was not written by anybody.
    /// core.set_durable_lsn(lsn)?;
    /// let flush = core.flush_to(table, lsn)?;
    /// core.wait(flush)?.ok_or("somebody else took it")?.result?;
    /// assert_eq!(core.oldest_recovery_lsn(), None);
    /// core.close()?;
    /// assert_eq!(std::fs::read(&path)?[7 * 4096], 42);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// There is no cache, the handle is stale, or every slot is taken: take outcomes, turn, and try again. What is wrong with
    /// the page itself is told by the outcome, or here if it is known at once.
    pub fn pin(&mut self, handle: Handle, page: u64) -> Result<Pinning> {
        self.lane.may_be_pinned(handle, page)?;
        if let Some(pin) = self.lane.pin_hit(handle, page) {
            return Ok(Pinning::Held(pin));
        }
        self.lane
            .pin_by(handle, SegmentOp::Read { offset: byte(page) }, CacheOp::Pin { page })
    }

    /// Pins a page and makes it zero, without reading it. It counts as changed under this LSN; see [`Core::change`].
    ///
    /// # Errors
    /// As [`Core::pin`]; and `ReadOnly`.
    pub fn pin_new(&mut self, handle: Handle, page: u64, lsn: u64) -> Result<Pinning> {
        self.lane.may_be_pinned(handle, page)?;
        let write = SegmentOp::Write { offset: byte(page) };
        self.lane.pin_by(handle, write, CacheOp::PinNew { page, lsn })
    }

    /// Pins a page, and turns the core until it is there: for those who have nothing else to do meanwhile.
    ///
    /// # Errors
    /// As [`Core::pin`]; what its read said; `LogFirst`, when no frame can be had before the log has gone on.
    pub fn pin_now(&mut self, handle: Handle, page: u64) -> Result<PinnedPage> {
        match self.pin(handle, page)? {
            Pinning::Held(pin) => Ok(pin),
            Pinning::Coming(ticket) => self.await_pin(ticket),
        }
    }

    /// The same for [`Core::pin_new`].
    ///
    /// # Errors
    /// As [`Core::pin_new`].
    pub fn pin_new_now(&mut self, handle: Handle, page: u64, lsn: u64) -> Result<PinnedPage> {
        match self.pin_new(handle, page, lsn)? {
            Pinning::Held(pin) => Ok(pin),
            Pinning::Coming(ticket) => self.await_pin(ticket),
        }
    }

    fn await_pin(&mut self, ticket: Ticket) -> Result<PinnedPage> {
        let outcome = self.drive(ticket)?;
        outcome.result?;
        outcome.pin.ok_or_else(nothing)
    }

    /// Pins a page if it is in the cache; none if it is not. Begins no I/O.
    ///
    /// # Errors
    /// There is no cache, the handle is stale, or what it stands for cannot be cached.
    pub fn pin_there(&mut self, handle: Handle, page: u64) -> Result<Option<PinnedPage>> {
        self.lane.may_be_pinned(handle, page)?;
        match self.lane.pin_hit(handle, page) {
            Some(pin) => Ok(Some(pin)),
            None => self
                .lane
                .pool_object(handle, SegmentOp::Read { offset: byte(page) })
                .map(|_| None),
        }
    }

    /// The bytes of a pinned page.
    ///
    /// # Errors
    /// `StalePin`, when the page has gone with its segment.
    pub fn page(&self, pin: &PinnedPage) -> Result<&[u8]> {
        match &self.lane.cached {
            Some(cached) if pin.handle.core == self.lane.objects.core() => {
                cached.cache.page(&pin.pin).map_err(|error| wrong("read", pin, error))
            }
            _ => Err(wrong("read", pin, CacheError::StalePin)),
        }
    }

    /// The bytes of a pinned page to be changed, which is logged under this LSN; 0 for what is not logged. The page is written, by
    /// the cleaner or for a sync, once the log is durable as far as its last LSN ([`Core::set_durable_lsn`]); never before.
    ///
    /// # Errors
    /// Nothing was changed. `BeingWritten`, `NoRoom`, `LogFirst`: [`Core::change_later`] waits until it can be. Once the log has failed,
    /// that ends with `LogFirst` too. Else `StalePin`, `ReadOnly`, or why the page cannot be written any more.
    pub fn change(&mut self, pin: &PinnedPage, lsn: u64) -> Result<&mut [u8]> {
        if pin.access == Access::Read {
            return Err(failed("change", pin, Fault::ReadOnly));
        }
        self.lane.date_change();
        match &mut self.lane.cached {
            Some(cached) if pin.handle.core == self.lane.objects.core() => {
                let changed = cached.cache.change(&pin.pin, lsn);
                changed.map_err(|error| wrong("change", pin, error))
            }
            _ => Err(wrong("change", pin, CacheError::StalePin)),
        }
    }

    /// The outcome of this ticket says that the pinned page counts as changed under this LSN: [`Core::change`] under the same
    /// then gives its bytes, unless it is being written already, which can only be if the log is durable so far.
    ///
    /// # Errors
    /// As [`Core::change`] but for those that it waits for; and when every slot is taken.
    pub fn change_later(&mut self, pin: &PinnedPage, lsn: u64) -> Result<Ticket> {
        if pin.access == Access::Read {
            return Err(failed("change", pin, Fault::ReadOnly));
        }
        if pin.handle.core != self.lane.objects.core() {
            return Err(wrong("change", pin, CacheError::StalePin));
        }
        let page = pin.pin.page();
        let op = SegmentOp::Write { offset: byte(page) };
        self.lane
            .ask_object(pin.handle, pin.pin.object(), op, CacheOp::Change { page, lsn })
    }

    /// [`Core::change`], turning the core until it can be done.
    ///
    /// # Errors
    /// As [`Core::change`]; `LogFirst`, when only the log can go on, and that is the caller's.
    pub fn change_now(&mut self, pin: &PinnedPage, lsn: u64) -> Result<&mut [u8]> {
        loop {
            let error = match self.change(pin, lsn) {
                Ok(_) => return self.change(pin, lsn), // Once more: the borrow would last over the loop.
                Err(error) => error,
            };
            let can_wait = match error.fault {
                Fault::Cache(CacheError::BeingWritten | CacheError::NoRoom) => true,
                Fault::Cache(CacheError::LogFirst(lsn)) => self.lane.is_driven_to(pin, lsn),
                _ => false,
            };
            if !can_wait {
                return Err(error);
            }
            let ticket = self.change_later(pin, lsn)?;
            self.drive(ticket)?.result?;
        }
    }

    /// Turns the core until the ticket's request has ended, or only the log could bring that about.
    fn drive(&mut self, ticket: Ticket) -> Result<Outcome> {
        loop {
            if let Poll::Ready(outcome) = self.poll(ticket, None) {
                self.lane.note_what_waits();
                return outcome.ok_or_else(nothing);
            }
            let is_idle = self.is_engine_idle() && !self.has_news();
            // The engine may be busy with what has nothing to do with it: deadlines, others' requests.
            if let Some(lsn) = self.lane.only_caller_helps(is_idle) {
                self.cancel(ticket);
                self.abandon(ticket);
                let fault = Fault::Cache(CacheError::LogFirst(lsn));
                return Err(Error::new("wait for", "a page", fault));
            }
            self.turn(Wait::one())?;
        }
    }

    /// Gives a pin back.
    pub fn unpin(&mut self, pin: PinnedPage) {
        self.lane.unpin(pin);
    }

    /// The log is durable up to this LSN, itself included: pages may be written whose last change is no later. It never goes back.
    /// Without this, what was changed under an LSN stays in memory. It is the log of the default gate, under which everything is that
    /// was put under no other ([`Core::set_gate`]).
    ///
    /// # Errors
    /// There is no cache.
    pub fn set_durable_lsn(&mut self, lsn: u64) -> Result<()> {
        self.set_durable_lsn_of(GateId::default(), lsn)
    }

    /// The oldest LSN of a change that may not be safe in its page: the log from there on is needed at a restart.
    #[must_use]
    pub fn oldest_recovery_lsn(&self) -> Option<u64> {
        self.oldest_recovery_lsn_of(GateId::default())
    }

    /// How far the log must be durable for all to go on that waits for it now: syncs, durable and direct writes, those who want room.
    #[must_use]
    pub fn lsn_wanted(&self) -> Option<u64> {
        self.lsn_wanted_of(GateId::default())
    }

    /// Makes safe the pages whose first change since they were clean is no later than this LSN, as a sync does: when all files
    /// of a database have done so, [`Core::oldest_recovery_lsn`] has passed it. It waits for the log where it must.
    ///
    /// # Errors
    /// As [`Core::pin`].
    pub fn flush_to(&mut self, handle: Handle, lsn: u64) -> Result<Ticket> {
        self.lane.ask_pool(handle, SegmentOp::Sync, CacheOp::FlushTo { lsn })
    }

    /// Begins to read pages that will be wanted, wherever they lie; the next turn sends the reads off. Gives how many pages of
    /// the ranges it went over: it stops at a quarter of the cache, and where the device has enough to do. Says nothing when a
    /// read fails.
    ///
    /// # Errors
    /// There is no cache, the handle is stale, or what it stands for cannot be cached.
    pub fn prefetch(&mut self, handle: Handle, pages: &[Range<u64>]) -> Result<u64> {
        self.lane
            .hint(handle, "prefetch", |cache, object| cache.prefetch(object, pages))
    }

    /// How many pages, kept ranges and keepers hints have gone over so far; 0 without a cache. Whoever serves several users can tell by it what
    /// one of theirs has cost.
    #[must_use]
    pub fn pages_hinted(&self) -> u64 {
        self.lane
            .cached
            .as_ref()
            .map_or(0, |cached| cached.cache.pages_hinted())
    }

    /// Pages that will not be wanted again leave the cache: at once those that are clean and that nobody holds, the others before any
    /// other page as soon as they may. Gives how many left at once: none by a handle for reading on another user's segment, whose pages
    /// they are.
    ///
    /// # Errors
    /// As [`Core::prefetch`].
    pub fn drop_cached(&mut self, handle: Handle, pages: Range<u64>) -> Result<u64> {
        if !self.lane.objects.may_drop(handle) {
            return self.lane.hint(handle, "drop", |_, _| Ok(0));
        }
        self.lane
            .hint(handle, "drop", |cache, object| cache.drop_pages(object, pages))
    }

    /// Pages of this range stay in the cache once they are in, until the handle is closed: a quarter of it at most for one user, half of it for
    /// all.
    ///
    /// # Errors
    /// As [`Core::prefetch`]; `KeptFull` when it is too much.
    pub fn keep_cached(&mut self, handle: Handle, pages: Range<u64>) -> Result<()> {
        let keeper = self.lane.keeper(handle);
        self.lane
            .hint(handle, "keep", |cache, object| cache.keep(object, keeper, pages))
    }

    /// Ends [`Core::keep_cached`] by the same handle for these pages.
    ///
    /// # Errors
    /// As [`Core::prefetch`].
    pub fn keep_cached_no_more(&mut self, handle: Handle, pages: Range<u64>) -> Result<()> {
        let keeper = self.lane.keeper(handle);
        self.lane.hint(handle, "keep", |cache, object| {
            cache.keep_no_more(object, keeper, pages)
        })
    }

    /// How cached reads of this file or segment will go, by whichever handle: in order, at random, or to be found out.
    ///
    /// # Errors
    /// As [`Core::prefetch`].
    pub fn read_pattern(&mut self, handle: Handle, pattern: Pattern) -> Result<()> {
        self.lane
            .hint(handle, "hint", |cache, object| cache.hint(object, pattern))
    }
}

impl Lane {
    fn pin_hit(&mut self, handle: Handle, page: u64) -> Option<PinnedPage> {
        let object = self
            .objects
            .get(handle)
            .filter(|object| object.state == ObjectState::Open)?;
        let access = object.access;
        let cached = self.cached.as_mut()?;
        // Who may change the page must find that it can be written: the cache's own handle may be one for reading only.
        let id = match cached.object_for_mode(&self.objects, handle, access == Access::Write) {
            Some(id) => id,
            None => self.pool_object(handle, SegmentOp::Read { offset: byte(page) }).ok()?,
        };
        let pin = self.cached.as_mut()?.cache.pin_hit(id, page)?;
        Some(PinnedPage { handle, access, pin })
    }

    fn pin_by(&mut self, handle: Handle, op: SegmentOp, pool: CacheOp) -> Result<Pinning> {
        // It is checked as the read or write that it may become; who has asked for a pin hears of a pin.
        let of_pin = |error: Error| error.during("pin");
        let ticket = self.ask_pool(handle, op, pool).map_err(of_pin)?;
        let Some(outcome) = self.requests.take(ticket) else {
            return Ok(Pinning::Coming(ticket));
        };
        outcome.result.map_err(of_pin)?;
        outcome.pin.map(Pinning::Held).ok_or_else(nothing)
    }

    /// Will a log that the core drives come as far as this page needs?
    fn is_driven_to(&self, pin: &PinnedPage, lsn: u64) -> bool {
        let gate = self
            .cached
            .as_ref()
            .and_then(|cached| cached.cache.gate(pin.pin.object()));
        gate.is_some_and(|gate| self.log_comes_to(gate, lsn))
    }

    /// How far a log of the caller's own must go on before anything can; none while a log goes on that the core drives. Of a core that
    /// has nothing to do it is enough that somebody waits for that.
    fn only_caller_helps(&self, is_idle: bool) -> Option<u64> {
        let cache = &self.cached.as_ref()?.cache;
        let idle = is_idle.then(|| cache.lsns_wanted()).into_iter().flatten();
        let mut first = None;
        for (gate, lsn) in cache.lsns_awaited().chain(idle) {
            if self.log_comes_to(gate, lsn) {
                return None;
            }
            first = first.or(Some(lsn));
        }
        first
    }

    pub(in crate::core) fn unpin(&mut self, pin: PinnedPage) {
        if pin.handle.core != self.objects.core() {
            return;
        }
        let Some(cached) = &mut self.cached else { return };
        if cached.cache.unpin(pin.pin) {
            cached.is_served = false;
            self.take_done();
        }
    }

    /// Who keeps pages by this handle.
    fn keeper(&self, handle: Handle) -> Keeper {
        Keeper {
            id: keeper_of(handle),
            uid: self.objects.get(handle).map_or(0, |object| object.opened_by),
        }
    }

    /// What was kept by a handle is so no more: it is closed.
    pub(super) fn keeper_gone(&mut self, handle: Handle) {
        if let Some(cached) = &mut self.cached {
            cached.cache_mut().keeper_gone(keeper_of(handle));
        }
    }

    fn hint<T>(
        &mut self,
        handle: Handle,
        what: &'static str,
        act: impl FnOnce(&mut Cache, ObjectId) -> std::result::Result<T, CacheError>,
    ) -> Result<T> {
        let object = self.pool_object(handle, SegmentOp::Read { offset: 0 })?;
        let cached = self.cached.as_mut().ok_or_else(no_cache)?;
        let done = act(cached.cache_mut(), object);
        self.take_done();
        done.map_err(|error| Error::new(what, self.name_of(handle), Fault::Cache(error)))
    }

    /// The cache's object behind a handle, which is cached from now on if it was not.
    pub(super) fn pool_object(&mut self, handle: Handle, op: SegmentOp) -> Result<ObjectId> {
        let mut request = SegmentRequest {
            mode: Mode::Cached,
            ..SegmentRequest::new(handle, op, Memory::None)
        };
        self.check(&mut request, Coming::First)?;
        self.object_for(&request)
    }

    fn ask_pool(&mut self, handle: Handle, op: SegmentOp, pool: CacheOp) -> Result<Ticket> {
        let object = self.pool_object(handle, op)?;
        self.ask_object(handle, object, op, pool)
    }

    /// A request of the pool, under a ticket like any other.
    fn ask_object(&mut self, handle: Handle, object: ObjectId, op: SegmentOp, pool: CacheOp) -> Result<Ticket> {
        self.take_returned(); // Its frame may be among them.
        let full = |core: &Lane| {
            let fault = Fault::Io(baio_engine::Error::Full);
            Error::new(op.name(), core.name_of(handle), fault)
        };
        if self.requests.is_full() {
            return Err(full(self));
        }
        let Some(ticket) = self
            .requests
            .insert(Owner::Caller, &SegmentRequest::new(handle, op, Memory::None))
        else {
            return Err(full(self));
        };
        self.objects.begin(handle);
        self.date_change();
        let asked = CacheRequest {
            object,
            op: pool,
            memory: Memory::None,
            hint: Hint::Normal,
        };
        self.start_in_cache(ticket, asked);
        Ok(ticket)
    }

    pub(super) fn name_of(&self, handle: Handle) -> String {
        let object = self.objects.get(handle);
        object.map_or_else(|| "a closed handle".into(), |object| object.name.clone())
    }
}

pub(super) fn byte(page: u64) -> u64 {
    page.saturating_mul(PAGE_BYTES as u64)
}

pub(super) fn no_cache() -> Error {
    Error::new("use", "the buffer pool", Fault::NoCache)
}

/// Somebody else has taken the outcome.
fn nothing() -> Error {
    Error::new("pin", "a page", Fault::Stale)
}

fn wrong(operation: &'static str, pin: &PinnedPage, error: CacheError) -> Error {
    failed(operation, pin, Fault::Cache(error))
}

fn failed(operation: &'static str, pin: &PinnedPage, fault: Fault) -> Error {
    Error::new(operation, "a pinned page", fault).at(byte(pin.page()))
}

fn keeper_of(handle: Handle) -> u64 {
    u64::from(handle.generation) << 32 | u64::from(handle.index)
}
