//! Through which cache a request goes, and how safe it is when it completes.

/// Through which cache a request goes. Each request may say another one. What really carried it is a [`Caching`].
// The numbers are those of the ring's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Past every cache: for data that is read once, and for programs that cache by themselves. Offset, length and memory are multiples of
    /// the device's block; 4 KiB always is one. Segments are opened so.
    #[default]
    Direct = 0,
    /// Through baio's own page cache, which the link must have (`LinkOptions::with_cache`). A plain write ends when it is copied, and is
    /// safe after a sync. What other programs, or other links, write to the same file is not seen in cached pages.
    Cached = 1,
    /// Through the kernel's page cache; on plain files only, which are opened so unless something else is asked for.
    Kernel = 2,
    /// The same, and dropped from the kernel's cache behind the request; on plain files only.
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

/// What a completed write, or a sync, has made safe against a power cut. Without a word it is nothing: say it of the write
/// (`write_at(..).durable(Durability::Data)`), or sync later, which covers every write that has ended by then.
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
