//! The page cache of a core: requests through it, and what it asks of the device.
//!
//! The cache does no I/O ([`crate::cache`]): here its reads, writes and flushes become direct requests like any caller's, under
//! tickets of their own and on a handle of the cache's own, so that everything else in the core treats them as such: holds,
//! moves, the end of a segment. Their entries in the table of requests say that they are the cache's ([`Owner`](crate::request::Owner)), and some
//! are kept for them: a table full of callers who wait for the cache cannot stop it.
//!
//! ```text
//! caller --start--> cache --I/O--> start --> engine       a direct request on what is cached:
//!   ^                 |  ^                     |            start --> the cache lets go of the range, or writes it out,
//!   +----- end -------+  +---- its end --------+            --> engine --> the range is the cache's again
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | making it, turning it, syncing all of it |
//! | `objects.rs` | what is cached; what becomes of that when a segment grows, shrinks, goes |
//! | `requests.rs` | callers' requests: through the cache, beside it, their deadlines |
//! | `io.rs` | the cache's own |

mod io;
mod objects;
mod requests;

use std::collections::VecDeque;

use baio_engine::{Durability, Memory, Wait};

use self::io::Join;
use self::objects::{Cached, Cut, Memo};
pub(in crate::core) use self::objects::{Known, whole_sectors};
use crate::cache::eviction::Hint;
use crate::cache::{Cache, CacheError, CacheOp, CacheOptions, CacheRequest, CacheStats, ObjectId};
use crate::core::Core;
use crate::core::drivers::Drivers;
use crate::core::lane::Lane;
use crate::core::tags::NOBODY;
use crate::error::{Error, Fault, Result};
use crate::object::ObjectState;
use crate::request::CacheIo;
use crate::slot_map::SlotMap;

/// Entries of the table of requests that are the cache's own.
const ENTRIES: u32 = 64;

/// The page cache of a core.
#[derive(Debug)]
pub(crate) struct PageCache {
    pub(in crate::core) cache: Cache,
    objects: Vec<Cached>,
    /// Where in the list above an object of the cache was found last, by its index.
    places: Vec<usize>,
    /// Which of them a handle means, by the handle's index; valid as long as the list above has not changed.
    memo: Vec<Memo>,
    epoch: u64,
    /// Files of which the last handle was closed: each is forgotten when nothing of it is under way, unsafe or pinned.
    left: Vec<ObjectId>,
    /// What operations keep the cache out of.
    cuts: Vec<Cut>,
    /// Syncs that a freeze waits for.
    pub(in crate::core) syncs: Vec<crate::cache::RequestId>,
    /// I/Os, or parts of them, for which the engine had no room, or that must be tried again.
    delayed: VecDeque<(CacheIo, Memory)>,
    /// I/Os that were made two.
    joins: SlotMap<Join>,
    /// The first failure of what nobody waits for.
    failed: Option<CacheError>,
    /// The write gates that follow logs of the core's.
    pub(in crate::core) drivers: Drivers,
    /// Everything that the cache wants has been started.
    pub(in crate::core) is_served: bool,
    /// Bytes of requests since then.
    gathered: u64,
    /// Ends told so far.
    told: u64,
}

impl PageCache {
    /// The cache, to be changed: it may want something then.
    pub(in crate::core) fn cache_mut(&mut self) -> &mut Cache {
        self.is_served = false;
        &mut self.cache
    }
}

/// A cache that is full one day has taken all its memory, and the kernel kills who goes beyond the limit of his cgroup: so it is refused
/// before it is made. Below this size nobody has a cgroup in which that would matter, and nothing is read.
const LIMITED_BYTES: u64 = 16 << 20;

fn fits(bytes: u64) -> Result<()> {
    let limit = || baio_process::memory_limit::of_cgroup().filter(|limit| bytes >= *limit);
    match (bytes >= LIMITED_BYTES).then(limit).flatten() {
        None => Ok(()),
        Some(limit) => {
            let why = format!(
                "a cache of {bytes} bytes in a memory cgroup that allows {limit} to the whole process: choose a smaller one, or raise the limit"
            );
            Err(Error::new("make", "the page cache", Fault::BadSize(why)))
        }
    }
}

impl Core {
    /// Gives the core a page cache: from now on requests of [`Mode::Cached`](crate::Mode::Cached) are served, on segments and
    /// plain files. Its memory is taken from the core's arena at once, and kept.
    ///
    /// # Errors
    /// There is one already; `NoMemory` when the arena does not hold it; a budget below four pages.
    pub fn use_cache(&mut self, config: &CacheOptions) -> Result<()> {
        let cache = Cache::new(self.lane.engine.arena(), *config);
        self.lane.give_cache(config, cache)
    }

    /// Counters of the page cache, if there is one.
    #[must_use]
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.lane.cached.as_ref().map(|cached| cached.cache.stats())
    }

    /// Makes everything durable that was written through the cache, but for segments that are being deleted.
    pub(in crate::core) fn sync_cache(&mut self) -> Result<()> {
        let Some(cached) = &mut self.lane.cached else {
            return Ok(());
        };
        cached.failed = None;
        for known in &cached.objects {
            let object = self.lane.objects.get(known.handle);
            if object.is_none_or(|object| object.state != ObjectState::Open) {
                continue;
            }
            let asked = CacheRequest {
                object: known.object,
                op: CacheOp::whole(Durability::Full),
                memory: Memory::None,
                hint: Hint::Normal,
            };
            cached.cache.start(NOBODY, asked);
        }
        self.lane.serve_cache();
        let under_way = |core: &Core| {
            core.lane
                .cached
                .as_ref()
                .map_or(0, |cached| cached.cache.requests_under_way())
        };
        while under_way(self) > 0 {
            self.turn(Wait::one())?;
        }
        match self.lane.cached.as_mut().and_then(|cached| cached.failed.take()) {
            Some(error) => Err(Error::new("write back", "the page cache", Fault::Cache(error))),
            None => Ok(()),
        }
    }
}

impl Lane {
    pub(in crate::core) fn give_cache(
        &mut self,
        config: &CacheOptions,
        cache: std::result::Result<Cache, CacheError>,
    ) -> Result<()> {
        fits(config.bytes as u64)?;
        let fail = |fault| Error::new("make", "the page cache", fault);
        if self.cached.is_some() {
            return Err(fail(Fault::Occupied("this core has one".into())));
        }
        let cache = cache.map_err(|error| match error {
            CacheError::NoMemory => fail(Fault::NoMemory {
                asked: config.bytes as u64,
            }),
            error => fail(Fault::Cache(error)),
        })?;
        self.requests.keep_entries(ENTRIES);
        self.cached = Some(Box::new(PageCache {
            cache,
            objects: Vec::new(),
            places: Vec::new(),
            memo: Vec::new(),
            epoch: 1,
            left: Vec::new(),
            cuts: Vec::new(),
            syncs: Vec::new(),
            delayed: VecDeque::new(),
            joins: SlotMap::default(),
            failed: None,
            drivers: Drivers::default(),
            is_served: true,
            gathered: 0,
            told: 0,
        }));
        Ok(())
    }

    /// Requests that the cache has; and whether the next turn has something to carry out for it.
    pub(in crate::core) fn in_cache(&self) -> (usize, bool) {
        self.cached.as_ref().map_or((0, false), |cached| {
            (cached.cache.requests_under_way(), !cached.is_served)
        })
    }

    /// What has grown old is written; what the engine had no room for is tried again; what was put off goes on. Has anybody been
    /// told of an end, or is something put off still? Then whoever turns the core may not want to sleep any more.
    pub(in crate::core) fn turn_cache(&mut self) -> bool {
        let is_still = self.is_frozen();
        let Some(cached) = &mut self.cached else {
            return false;
        };
        let told = cached.told;
        if let Some(at) = cached.cache.next_tick().filter(|_| !is_still) {
            let now = self.engine.now();
            cached.cache.set_now(now);
            if at <= now {
                cached.cache.tick(now);
            }
        }
        if let Some(cached) = &mut self.cached {
            if cached.cache.is_put_off() {
                cached.cache.go_on();
            }
        }
        // What has just become clean may have been the last of a file: there may be no turn after this one.
        self.forget_left();
        self.serve_cache();
        let cached = self.cached.as_ref();
        cached.is_some_and(|cached| cached.told != told || cached.cache.is_put_off())
    }

    /// What waits for a log may wait for a write that waits for the end of the freeze: so it is not waited for.
    pub(in crate::core) fn call_off_syncs(&mut self) {
        let cached = self.cached.as_mut().filter(|cached| !cached.syncs.is_empty());
        if let Some(cached) = cached.filter(|cached| cached.cache.lsns_awaited().next().is_some()) {
            for id in std::mem::take(&mut cached.syncs) {
                cached.cache_mut().cancel(id);
            }
            self.take_done();
        }
    }

    /// Before something is changed: if nothing was, the cache has not been told the time for long, and would take the change for
    /// an old one.
    pub(in crate::core) fn date_change(&mut self) {
        if let Some(cached) = &mut self.cached {
            if cached.cache.next_tick().is_none() {
                cached.cache.set_now(self.engine.now());
            }
        }
    }
}
