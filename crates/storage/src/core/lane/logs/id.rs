//! The name of an open log.

use crate::slot_map::SlotKey;

/// Names an open log of a core. A stale one names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId {
    pub(in crate::core) core: u32,
    pub(in crate::core) key: SlotKey,
}

impl LogId {
    /// A log that somebody else keeps, of the core with this number, under a number of its own.
    #[must_use]
    pub fn elsewhere(core: u32, number: u32) -> LogId {
        let (index, generation) = (number, u32::MAX);
        let key = SlotKey { index, generation };
        LogId { core, key }
    }
}
