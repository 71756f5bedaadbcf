//! What a simulated disk records.

use std::sync::Arc;

/// One thing that happened to a disk, or that its owner was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Bytes reached the disk's cache: a write has ended.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
        /// Durable by itself when it completed (a data-durable write, FUA).
        durable: bool,
        /// It began so many records before this one: a power cut among them may find some of it.
        under_way: u32,
    },
    /// Every write before this is durable.
    Sync,
    /// The same, but for the last `late` writes before this: they ended while the flush ran, and it promises them nothing.
    LateSync {
        /// How many.
        late: u32,
    },
    /// The workload's own note: what it has acknowledged up to here.
    Mark(u64),
}
