//! Counters: a plain snapshot.

/// What the cache has done since it was made, and what its frames hold now. Ratios are the reader's: device writes by requests, or
/// read ahead and wasted by read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Requests that have ended, however.
    pub requests: u64,
    /// Iterations of requests (seed 001 §2); at most one a page and one more, not counting waits for shared resources.
    pub iterations: u64,
    /// Iterations that could do nothing (seed 001 §7.2): a bug if it is not 0.
    pub spurious_wakeups: u64,
    /// Waits for something that all share: a frame, room below the dirty limit, a reserved range.
    pub parked: u64,
    /// Of those, waits for a frame: none could be had, or others waited already.
    pub waits_for_frame: u64,
    /// Of those, waits of writers at the dirty limit.
    pub waits_for_room: u64,
    /// Uses of a page that was there.
    pub pages_hit: u64,
    /// Uses of a page that the request had to read or wait for.
    pub pages_missed: u64,
    /// Pages pinned at once, because they were there.
    pub pins_hit: u64,
    /// Uses of pages that were lent and not copied.
    pub pages_lent: u64,
    /// Lent pages that were copied, because they were changed.
    pub lent_copied: u64,
    /// Reads of the device.
    pub fills: u64,
    /// Of those the ones that went past the frames, straight into their callers' memory: cold random reads.
    pub bypasses: u64,
    /// Pages that they brought, or were to bring.
    pub pages_filled: u64,
    /// Pages of reads that failed.
    pub failed_fills: u64,
    /// Pages read ahead of a sequential reader, before anybody asked for them.
    pub pages_ahead: u64,
    /// Pages read ahead or prefetched that were used later: readahead used.
    pub ahead_hit: u64,
    /// Pages read ahead or prefetched that left without having been used: readahead wasted.
    pub ahead_wasted: u64,
    /// Pages that a prefetch began to read; they count with `ahead_hit` and `ahead_wasted` too.
    pub pages_prefetched: u64,
    /// Pages that a hint dropped.
    pub pages_dropped: u64,
    /// Writes to the device, whoever wanted them.
    pub writes: u64,
    /// Of those the durable ones: of durable writes, and of what makes way for direct ones.
    pub durable_writes: u64,
    /// Of those the ones that went to the device from their callers' memory, before they were copied.
    pub writes_through: u64,
    /// Pages of all writes.
    pub pages_written: u64,
    /// Pages of writes that failed.
    pub failed_writes: u64,
    /// Writes that the cleaner began of itself: because few frames were clean, a change had grown old, or the log long.
    pub cleaner_writes: u64,
    /// Of those the foreground writes: begun while somebody who wanted a frame had to wait for a dirty one. 0 is the aim.
    pub foreground_writes: u64,
    /// Pages that were gone over because a flush had ended or the log had come further, or to make way for direct writes: of these
    /// and of a flush's a slice a call, and what a run of a write has more.
    pub pages_gone_over: u64,
    /// Objects that were looked at to find those that have something to be written or flushed.
    pub objects_looked_at: u64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Of those, the failed ones.
    pub failed_flushes: u64,
    /// Pages that left to make room for others.
    pub evictions: u64,
    /// Victims that a policy named and that could not go, or that it did not find.
    pub victims_refused: u64,
    /// Now: frames in all.
    pub frames: u32,
    /// Now: without a page.
    pub frames_free: u32,
    /// Now: as on the device, and safe there.
    pub frames_clean: u32,
    /// Now: being read.
    pub frames_filling: u32,
    /// Now: changed.
    pub frames_dirty: u32,
    /// Now: changed, and the last write or flush failed.
    pub frames_failed: u32,
    /// Now: changed, and the log must be written first.
    pub frames_gated: u32,
    /// Now: being written.
    pub frames_write_back: u32,
    /// Now: written, and waiting for a flush.
    pub frames_unflushed: u32,
    /// Now: lost to I/Os that were given up on.
    pub frames_lost: u32,
    /// Now: held by borrowers of pages that were changed or have left since.
    pub frames_lent: u32,
}
