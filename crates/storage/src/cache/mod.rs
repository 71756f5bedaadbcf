//! # The page cache
//!
//! Cached reads and writes over anything that reads and writes blocks, in memory of our own with direct I/O below: so write-back,
//! errors and eviction are ours. **It does no I/O.** It is a deterministic state machine over a fixed budget of frames: it says
//! which reads, writes and flushes it wants, and is told how they ended. Whoever drives it does, in this order:
//!
//! 1. [`Cache::start`] (or [`cancel`](Cache::cancel), [`release`](Cache::release), [`tick`](Cache::tick)): all that can be done
//!    now is done at once, a hit to its end.
//! 2. [`Cache::next_io`] until it gives none: carry these out, in any order.
//! 3. [`Cache::io_ended`] for each that ended. Then 2 again, and:
//! 4. [`Cache::next_done`] until it gives none: exactly one end per request.
//!
//! What is about many pages at once is done in slices: [`Cache::go_on`] does the next, while [`Cache::is_put_off`] says that there is
//! one. For who never asks [`Cache::next_io`] does one a call, and all at once when nothing else is on its way.
//!
//! | file | what it holds |
//! |---|---|
//! | `request` | what is asked, what is told, what is kept in between |
//! | `read`, `write` | one iteration of a read, a write (seed 001 §3, §5.2, §7.1) |
//! | `start` | how a request comes in |
//! | `hit`, `lend` | a read that finds everything there; one that borrows it |
//! | `bypass`, `write_through` | a cold random read, past the frames; a large durable write, before its copy |
//! | `sync`, `write_back`, `log_distance` | passes over dirty pages, flushes; the cleaner (§5.3, §6, §8), for the log too |
//! | `accounts` | whose dirty pages they are: no owner takes all the room |
//! | `rounds` | which objects have something to be written or flushed |
//! | `reserve` | direct writes beside cached ones (§4) |
//! | `hints`, `kept` | prefetch, drop, keep; whom a policy of the caller's own may evict |
//! | [`pool`], `page_pin`, `gate`, `gates`, `pooled` | a buffer pool of the caller's own: pins; pages wait for their log |
//! | `change` | objects that grow, shrink, go away |
//! | `wait`, `settle`, `end` | who waits for what; how waking goes on (§7.2); how requests end |
//! | `flight` | I/Os on their way |
//! | `frames`, `pages`, `object` | frames and their states; pages come, change and leave; the pages of one object |
//! | `tree`, [`eviction`], [`window`] | tagged tree, eviction policies, readahead: pure parts |
//! | `caller`, `ranges` | the caller's memory; ranges of pages |
//!
//! What it promises: a read gives the last completed writes. A sync, or a durable write, that succeeded holds over a power
//! cut; none succeeds after a failed write or flush before the pages concerned have been written and flushed well. A plain
//! write is done after the copy: until a sync, a power cut, or the end of the process, takes it away. Writes that overlap
//! while both are under way may mix, page by page.

mod accounts;
mod bypass;
mod caller;
mod change;
mod durable_waiting;
mod end;
pub mod eviction;
mod flight;
mod frames;
mod gate;
mod gates;
mod hints;
mod hit;
mod kept;
mod lend;
mod log_distance;
mod object;
mod page_pin;
mod pages;
pub mod pool;
mod pooled;
mod ranges;
mod read;
mod request;
mod reserve;
mod rounds;
mod settle;
mod start;
mod stats;
mod sync;
pub mod tree;
mod wait;
pub mod window;
mod write;
mod write_back;
mod write_through;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use baio_engine::{Arena, Durability, Time};

use accounts::Accounts;
use eviction::{Eviction, Policy};
use flight::Flights;
use frames::Frames;
use gates::Gates;
pub(crate) use hit::Started;
use lend::Loans;
use object::CachedObject;
use request::Requests;
use rounds::{Ages, Round};
use settle::PutOff;
use wait::List;

pub use flight::{Io, IoId, IoKind};
pub use frames::PAGE_BYTES;
pub use gate::GateId;
pub use kept::Keeper;
pub use lend::{Borrower, LentPages};
pub use object::ObjectId;
pub use page_pin::PagePin;
pub use request::{CacheDone, CacheError, CacheOp, CacheRequest, RequestId};
pub use stats::CacheStats;

/// Options of a page cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Its memory in bytes: at least four pages of 4 KiB. A part of a page is not used.
    pub bytes: usize,
    /// Which page is evicted when memory for another is needed.
    pub eviction: Policy,
    /// How many per cent of the pages may be dirty (changed and not written yet); writers wait above it. At least one page, and all but one
    /// at most. The cleaner begins to write at two thirds of it.
    pub dirty_percent_max: u8,
    /// Bytes of one merged write of the cleaner or of a sync.
    pub write_bytes_max: usize,
    /// How many writes of the cleaner and of syncs are in flight at once, as long as there is something to write. Durable
    /// writes of the program are not counted.
    pub cleaner_depth: u32,
    /// How long a page may be dirty before the cleaner writes it.
    pub age_max: Duration,
    /// How much of the log, in LSNs, a restart may have to read: the cleaner writes old changes of the buffer pool before the oldest of
    /// them lies further behind the latest. `u64::MAX` for no such bound. Other gates have their own ([`Cache::add_gate`]).
    pub log_distance_max: u64,
}

impl CacheOptions {
    /// A cache with a budget of so many bytes.
    #[must_use]
    pub fn of_size(bytes: usize) -> CacheOptions {
        CacheOptions {
            bytes,
            ..CacheOptions::default()
        }
    }
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            bytes: 64 << 20,
            eviction: Policy::default(),
            dirty_percent_max: 75,
            write_bytes_max: 256 << 10,
            cleaner_depth: 32,
            age_max: Duration::from_secs(5),
            log_distance_max: u64::MAX,
        }
    }
}

fn frames_of(arena: &Arc<Arena>, config: &CacheOptions) -> Result<Frames, CacheError> {
    let count = u32::try_from(config.bytes / PAGE_BYTES).map_err(|_| CacheError::NoMemory)?;
    if count < 4 {
        return Err(CacheError::NoFrame);
    }
    Frames::new(arena, count).ok_or(CacheError::NoMemory)
}

/// Pages that one request brings in or makes safe at once: 1 MiB.
const WINDOW_PAGES: u64 = 256;

/// Pages that one call goes over for a reservation or a flush: an eighth of the frames, within these bounds.
const SLICE_MIN: u32 = 8;
const SLICE_MAX: u32 = 512;

/// A page cache. See the module.
#[derive(Debug)]
pub struct Cache {
    config: CacheOptions,
    dirty_max: u32,
    /// Frames that may be anything but clean: changed, or written and not flushed.
    unsafe_max: u32,
    window: u64,
    frames: Frames,
    eviction: Box<dyn Eviction>,
    objects: Vec<CachedObject>,
    free_objects: Vec<u32>,
    requests: Requests,
    /// Requests whose wake-up has come.
    ready: VecDeque<u32>,
    /// Durable writes whose pages are copied, to be written by `next_io`.
    copied: VecDeque<u32>,
    /// What is about many pages, and goes on slice by slice.
    put_off: VecDeque<PutOff>,
    /// Pages of a slice.
    slice: u32,
    /// Reservations that will flush what they write.
    clearing: u32,
    frame_waiters: List,
    /// Whose dirty pages there are, and who waits for room for one.
    accounts: Accounts,
    flights: Flights,
    gates: Gates,
    outgoing: VecDeque<Io>,
    /// I/Os on callers' own memory, which need not wait for others.
    bypasses: VecDeque<Io>,
    /// A write that the device has, and whose pages have not got their bytes.
    uncopied: Option<u32>,
    done: VecDeque<CacheDone>,
    /// Objects that have a pass.
    passing: Vec<u32>,
    /// Objects that may want a flush; and by age.
    flush_round: Round,
    ages: Ages,
    /// Too few frames are clean, and the cleaner writes.
    is_cleaning: bool,
    /// It fills its depth up.
    filling_depth: bool,
    loans: Loans,
    /// Where the last frame was found that no policy had named.
    hand: u32,
    /// Pages, and ranges of kept ones, that hints have gone over.
    hinted: u64,
    /// Grows with every change of a page.
    version: u64,
    arrivals: u64,
    /// Grows with everything that is done; an iteration that leaves it alone was spurious.
    progress: u64,
    now: Time,
    stats: CacheStats,
}

impl Cache {
    /// A cache whose frames are taken from the arena now, all of them.
    ///
    /// # Errors
    /// `NoMemory` when the arena does not hold the budget; `NoFrame` for a budget below four pages.
    pub fn new(arena: &Arc<Arena>, config: CacheOptions) -> Result<Cache, CacheError> {
        // The frames first: a budget that the arena does not hold must not cost a policy's memory.
        let frames = frames_of(arena, &config)?;
        let eviction = config
            .eviction
            .build(frames.total())
            .map_err(|_| CacheError::NoMemory)?;
        Ok(Cache::of(config, frames, eviction))
    }

    /// The same with a policy of the caller's own, made for `config.bytes` / 4096 frames; `config.eviction` says nothing then. It
    /// may be wrong: a victim that may not go is refused, and another one taken (`victims_refused`).
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub fn with_eviction(
        arena: &Arc<Arena>,
        config: CacheOptions,
        eviction: Box<dyn Eviction>,
    ) -> Result<Cache, CacheError> {
        Ok(Cache::of(config, frames_of(arena, &config)?, eviction))
    }

    fn of(config: CacheOptions, frames: Frames, eviction: Box<dyn Eviction>) -> Cache {
        let count = frames.total();
        let part = u64::from(count) * u64::from(config.dirty_percent_max.min(100)) / 100;
        let dirty_max = (part as u32).clamp(1, count - 1);
        Cache {
            config,
            dirty_max,
            unsafe_max: dirty_max.max(count - (count / 8).max(1)),
            window: u64::from(count / 4).clamp(1, WINDOW_PAGES),
            frames,
            eviction,
            objects: Vec::new(),
            free_objects: Vec::new(),
            requests: Requests::default(),
            ready: VecDeque::new(),
            copied: VecDeque::new(),
            put_off: VecDeque::new(),
            slice: (count / 8).clamp(SLICE_MIN, SLICE_MAX),
            clearing: 0,
            frame_waiters: List::default(),
            accounts: Accounts::new(dirty_max, config.cleaner_depth),
            flights: Flights::default(),
            gates: Gates::new(config.log_distance_max),
            outgoing: VecDeque::new(),
            bypasses: VecDeque::new(),
            uncopied: None,
            done: VecDeque::new(),
            passing: Vec::new(),
            flush_round: Round::default(),
            ages: Ages::default(),
            is_cleaning: false,
            filling_depth: true,
            loans: Loans::default(),
            hand: 0,
            hinted: 0,
            version: 1,
            arrivals: 0,
            progress: 0,
            now: Time(0),
            stats: CacheStats::default(),
        }
    }

    /// An object of this many bytes, of which nothing is cached; reads ahead at most `readahead_bytes_max` of it.
    pub fn add(&mut self, size_bytes: u64, readahead_bytes_max: usize) -> ObjectId {
        let slot = self.free_objects.pop().unwrap_or_else(|| {
            self.objects.push(CachedObject::default());
            self.objects.len() as u32 - 1
        });
        let object = &mut self.objects[slot as usize];
        object.live = true;
        (object.size, object.grows) = (size_bytes, false);
        object.readahead_pages = (readahead_bytes_max / PAGE_BYTES) as u64;
        ObjectId {
            slot,
            generation: object.generation,
        }
    }

    /// Begins to write what is not safe of an object, and flushes it, as if it had grown old.
    pub fn write_soon(&mut self, id: ObjectId) {
        let Some(slot) = self.object(id) else { return };
        let object = &self.objects[slot as usize];
        if object.not_safe() == 0 || object.passes.iter().any(|pass| pass.request.is_none()) {
            return; // What that pass does not cover grows old.
        }
        self.set_dirty_since(slot, None);
        self.start_pass(slot, None, 0..u64::MAX, Some(Durability::Data));
        self.settle();
    }

    fn object(&self, id: ObjectId) -> Option<u32> {
        let object = self.objects.get(id.slot as usize)?;
        (object.live && object.generation == id.generation).then_some(id.slot)
    }

    /// Ends a request as `Cancelled`, unless it has ended: then nothing happens. Its I/Os go on for the pages' sake. A write may
    /// have been done in part, or wholly.
    pub fn cancel(&mut self, id: RequestId) {
        self.copy_late();
        if let Some(slot) = self.requests.find(id) {
            self.stop_waiting(slot);
            self.copied.retain(|&copied| copied != slot);
            self.finish_slot(slot, Err(CacheError::Cancelled));
            self.settle();
        }
    }

    /// How many bytes of a request are done so far: copied or, of a durable write, known to be safe. `None` when it has ended, or
    /// was none.
    #[must_use]
    pub fn progress(&self, id: RequestId) -> Option<u64> {
        let request = self.requests.find(id).and_then(|slot| self.requests.get(slot))?;
        let done = request.done as u64;
        Some(match request.op {
            CacheOp::Write { durability, .. } if durability != Durability::None => {
                done.min((request.window * PAGE_BYTES as u64).saturating_sub(request.start))
            }
            _ => done,
        })
    }

    /// The same for all requests under way whose operation is meant.
    pub(super) fn cancel_those(&mut self, which: impl Fn(CacheOp) -> bool) {
        for slot in 0..self.requests.slots() {
            if self.requests.get(slot).is_some_and(|request| which(request.op)) {
                self.cancel(self.requests.id(slot));
            }
        }
    }

    /// The next request that has ended.
    pub fn next_done(&mut self) -> Option<CacheDone> {
        self.done.pop_front()
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn requests_under_way(&self) -> usize {
        self.requests.len()
    }

    /// Tells the time without anything being done for it: from now on what is changed counts as changed now.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Tells the time: the cleaner begins to write what has grown older than `age_max`, failed pages too.
    pub fn tick(&mut self, now: Time) {
        self.now = now;
        // Who is looked at once may come again, as young as now.
        let mut left = self.ages.len();
        while let Some(&(since, slot)) = self.ages.first().filter(|_| left > 0) {
            if now < since.after(self.config.age_max) {
                break;
            }
            left -= 1;
            self.stats.objects_looked_at += 1;
            if self.objects[slot as usize]
                .passes
                .iter()
                .any(|pass| pass.request.is_none())
            {
                self.set_dirty_since(slot, Some(now)); // The device is slower than pages grow old: one pass after the other.
                continue;
            }
            self.set_dirty_since(slot, None);
            self.start_pass(slot, None, 0..u64::MAX, Some(Durability::Data));
        }
        self.settle();
    }

    /// When [`Cache::tick`] has something to do next.
    #[must_use]
    pub fn next_tick(&self) -> Option<Time> {
        let (oldest, _) = self.ages.first()?;
        Some(oldest.after(self.config.age_max))
    }

    /// Counters, and what the frames hold now.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        use frames::FrameState;
        CacheStats {
            frames: self.frames.total(),
            frames_free: self.frames.count(FrameState::Free),
            frames_clean: self.frames.count(FrameState::Clean),
            frames_filling: self.frames.count(FrameState::Filling),
            frames_dirty: self.frames.count(FrameState::Dirty),
            frames_failed: self.frames.count(FrameState::Failed),
            frames_gated: self.frames.count(FrameState::Gated),
            frames_write_back: self.frames.count(FrameState::WriteBack),
            frames_unflushed: self.frames.count(FrameState::Unflushed),
            frames_lost: self.frames.count(FrameState::Lost),
            frames_lent: self.frames.count(FrameState::Lent),
            ..self.stats
        }
    }
}
