//! Options of a link.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use baio_engine::EngineOptions;
use baio_storage::cache::CacheOptions;
use baio_storage::cache::eviction::Eviction;
use baio_storage::{Core, Identity, Result};

/// Makes an eviction policy for a cache like this.
pub type MakeEviction = fn(&CacheOptions) -> Box<dyn Eviction>;

/// What a link to a broker does when the broker has ended: killed, crashed, or stopped for a new version.
///
/// The default is never, as with qemu's `reconnect-delay` and SPDK's `ctrlr_loss_timeout_sec`. The program must choose to wait for
/// another broker, because only the program knows what to do about a write that may or may not have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reconnect {
    /// Every request under way ends with `EPIPE`, and the link takes nothing any more.
    #[default]
    Never,
    /// It goes on with another broker, if one serves the same volume on the same socket within this time; requests wait meanwhile. After that
    /// time it is as with `Never`. Reads that were under way are repeated; writes and syncs end as indeterminate. Requests fail on a handle
    /// with cached writes that were not synced, and on a segment that is gone.
    Within(Duration),
}

/// Options of a link: its engine, its page cache, who asks. Name what you set, and take the rest from the default.
///
/// ```
/// use baio::{Backend, EngineOptions, Link, LinkOptions, Local};
/// # fn main() -> baio::Result<()> {
/// let options = LinkOptions {
///     engine: EngineOptions { slots: 256, backend: Backend::Threads, ..EngineOptions::default() },
///     ..LinkOptions::default()
/// };
/// let link = Local::new_with(&options.with_cache(8 << 20))?; // A page cache of 8 MiB.
/// assert_eq!(link.backend().wait()?, "threads");
/// link.close()
/// # }
/// ```
#[derive(Clone)]
pub struct LinkOptions {
    /// The user for whom permissions and quotas are checked. On a volume that this process opens itself this guards against mistakes only:
    /// whoever may open the volume's file can do anything to it.
    pub identity: Identity,
    /// How many requests can be in flight, with how much buffer memory, by which backend.
    pub engine: EngineOptions,
    /// A page cache for [`Mode::Cached`](crate::Mode::Cached), if there is to be one. Its memory comes on top of the buffer memory.
    /// If the link is dropped without [`Link::close`](crate::Link::close), cached writes that were not synced are lost.
    pub cache: Option<CacheOptions>,
    /// What a link to a broker does when the broker has ended. Other links ignore it.
    pub reconnect: Reconnect,
    /// Makes an eviction policy of your own for the page cache. The policy runs on the core's thread.
    pub eviction: Option<MakeEviction>,
}

impl fmt::Debug for LinkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkOptions")
            .field("identity", &self.identity)
            .field("engine", &self.engine)
            .field("cache", &self.cache)
            .field("reconnect", &self.reconnect)
            .finish_non_exhaustive()
    }
}

impl LinkOptions {
    /// With a page cache of so many bytes.
    #[must_use]
    pub fn with_cache(mut self, bytes: usize) -> LinkOptions {
        self.cache = Some(CacheOptions {
            bytes,
            ..self.cache.unwrap_or_default()
        });
        self
    }

    /// Opens a volume so.
    pub(crate) fn open(&self, path: &Path) -> Result<Core> {
        self.open_by(|config| Core::open(path, config))
    }

    /// The same without a volume.
    pub(crate) fn start(&self) -> Result<Core> {
        self.open_by(Core::new)
    }

    pub(crate) fn open_by(&self, open: impl FnOnce(&EngineOptions) -> Result<Core>) -> Result<Core> {
        let mut config = self.engine;
        let Some(cache) = &self.cache else {
            return open(&config);
        };
        config.arena_bytes = config.arena_bytes.saturating_add(cache.bytes);
        let mut core = open(&config)?;
        let given = match self.eviction {
            Some(make) => core.use_cache_with(cache, make(cache)),
            None => core.use_cache(cache),
        };
        match given {
            Ok(()) => Ok(core),
            Err(error) => {
                // The first failure is the one to tell.
                let _ = core.close();
                Err(error)
            }
        }
    }
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            identity: Identity::effective(),
            engine: EngineOptions::default(),
            cache: None,
            reconnect: Reconnect::Never,
            eviction: None,
        }
    }
}
