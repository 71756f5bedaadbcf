//! Through which cache a request goes, and how safe it is when it completes.

/// Through which cache a request goes; the choice is per request (seed 004 §5). The numbers are those of the ring's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Past every cache.
    #[default]
    Direct = 0,
    /// Through our own page cache; who serves must have one (`Core::use_cache`). A plain write is done after the copy, and
    /// safe after a sync. A plain file keeps the size that it had at its first cached request, and that must be a multiple of
    /// 4 KiB; whoever else writes it is not seen in cached pages.
    Cached = 1,
    /// Through the kernel's page cache; on plain files only.
    Kernel = 2,
    /// The same, dropped behind the request; on plain files only.
    Uncached = 3,
}

/// Through which of the kernel's caches the engine goes, and which one really carried a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Caching {
    /// The kernel's page cache.
    Kernel,
    /// The kernel's page cache, dropped behind the request (`RWF_DONTCACHE`).
    Uncached,
    /// Past it (`O_DIRECT`).
    #[default]
    Direct,
}

impl Caching {
    /// The word used in every message and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Caching::Kernel => "kernel",
            Caching::Uncached => "uncached",
            Caching::Direct => "direct",
        }
    }
}

/// What a completed write, or a sync, has made safe against a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Nothing: it is in the file, but perhaps only in volatile memory.
    #[default]
    None,
    /// The bytes and what is needed to find them (`RWF_DSYNC`, fdatasync(2)).
    Data,
    /// All of the inode too (`RWF_SYNC`, fsync(2)).
    Full,
}
