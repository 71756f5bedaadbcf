//! Counters: a plain snapshot.

/// What the cache has done, and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names say it; each counts since the beginning unless it says `now`"
)]
#[non_exhaustive]
pub struct CacheStats {
    /// Requests that have ended.
    pub requests: u64,
    /// Pages that a request found readable, and that it had to read or wait for.
    pub pages_hit: u64,
    pub pages_missed: u64,
    /// Reads of the device, and the pages they brought.
    pub fills: u64,
    pub pages_filled: u64,
    pub failed_fills: u64,
    /// Pages read ahead; those of them that were asked for later; those that left without.
    pub pages_ahead: u64,
    pub ahead_hit: u64,
    pub ahead_wasted: u64,
    /// Writes to the device, of those the durable ones, and the pages of all.
    pub writes: u64,
    pub durable_writes: u64,
    pub pages_written: u64,
    pub failed_writes: u64,
    /// Writes begun by the cleaner of itself, because few frames were clean or the log had grown long; of those the foreground
    /// writes, that is, such as somebody who wanted a frame had to wait for.
    pub cleaner_writes: u64,
    pub foreground_writes: u64,
    pub flushes: u64,
    pub failed_flushes: u64,
    pub evictions: u64,
    pub iterations: u64,
    /// Iterations that could do nothing (seed 001 §7.2): a bug if it is not 0.
    pub spurious_wakeups: u64,
    /// Waits for something that all share: a frame, room below the dirty limit, a reserved range.
    pub parked: u64,
    /// Pages that a prefetch began to read, and that a hint dropped. Those of the first count with `ahead_hit` and
    /// `ahead_wasted` too.
    pub pages_prefetched: u64,
    pub pages_dropped: u64,
    /// Victims that a policy named and that could not go, or that it did not find.
    pub victims_refused: u64,
    /// Pages pinned at once, because they were there.
    pub pins_hit: u64,
    /// Now: frames in all, without a page, clean, being read, changed, changed and failed, changed and waiting for the log,
    /// being written, not flushed, lost.
    pub frames: u32,
    pub frames_free: u32,
    pub frames_clean: u32,
    pub frames_filling: u32,
    pub frames_dirty: u32,
    pub frames_failed: u32,
    pub frames_gated: u32,
    pub frames_write_back: u32,
    pub frames_unflushed: u32,
    pub frames_lost: u32,
}
