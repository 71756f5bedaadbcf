//! How a link is opened.

use std::fmt;
use std::path::Path;

use baio_engine::Config;
use baio_storage::cache::CacheConfig;
use baio_storage::cache::eviction::Eviction;
use baio_storage::{Core, Identity, Result};

/// Makes an eviction policy for a cache like this.
pub type MakeEviction = fn(&CacheConfig) -> Box<dyn Eviction>;

/// How a link is opened.
#[derive(Clone)]
pub struct Options {
    /// Who asks. Embedded, this guards against mistakes only: whoever may open the volume's file can do anything to it.
    pub identity: Identity,
    /// Size and backend of the engine.
    pub config: Config,
    /// A page cache for [`Mode::Cached`](crate::Mode::Cached), if there is to be one. Its memory comes on top of the arena's.
    /// What was written through it and not synced is lost when the link is dropped without [`Link::close`](crate::Link::close).
    pub cache: Option<CacheConfig>,
    /// Makes the cache's eviction policy, where that is the caller's own. It runs on the core's thread.
    pub eviction: Option<MakeEviction>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("identity", &self.identity)
            .field("config", &self.config)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// With a page cache of so many bytes.
    #[must_use]
    pub fn with_cache(mut self, bytes: usize) -> Options {
        self.cache = Some(CacheConfig {
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

    pub(crate) fn open_by(&self, open: impl FnOnce(&Config) -> Result<Core>) -> Result<Core> {
        let mut config = self.config;
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

impl Default for Options {
    fn default() -> Options {
        Options {
            identity: Identity::effective(),
            config: Config::default(),
            cache: None,
            eviction: None,
        }
    }
}
