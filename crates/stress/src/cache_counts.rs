//! What our own cache has done, as results show it.

use baio::CacheStats;
use serde::{Deserialize, Serialize};

/// The counters that are shown, each with its name in the cache's own.
macro_rules! counters {
    ($($(#[$said:meta])* $name:ident: $of:ident,)*) => {
        /// What our own cache has done.
        #[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct CacheCounts {
            $($(#[$said])* pub $name: u64,)*
            /// By all requests of a section.
            pub device_reads_per_request: f64,
            /// The same of writes.
            pub device_writes_per_request: f64,
        }

        impl CacheCounts {
            /// What lies between two looks.
            pub fn between(before: &CacheStats, after: &CacheStats) -> CacheCounts {
                CacheCounts {
                    $($name: after.$of - before.$of,)*
                    ..CacheCounts::default()
                }
            }

            /// Both together.
            pub fn and(self, other: CacheCounts) -> CacheCounts {
                CacheCounts {
                    $($name: self.$name + other.$name,)*
                    ..CacheCounts::default()
                }
            }
        }
    };
}

counters! {
    /// Pages that requests found.
    hits: pages_hit,
    /// Pages that they had to wait for.
    misses: pages_missed,
    /// Pages read ahead.
    readahead: pages_ahead,
    /// Of those, the ones asked for later.
    readahead_used: ahead_hit,
    /// Those that left the cache without.
    readahead_wasted: ahead_wasted,
    /// Reads of the device.
    device_reads: fills,
    /// What they brought.
    pages_read: pages_filled,
    /// Writes of the device, whoever wanted them.
    device_writes: writes,
    /// What they carried.
    pages_written: pages_written,
    /// Of the device's writes those that the cleaner began of itself.
    cleaner_writes: cleaner_writes,
    /// Of those the ones that somebody who wanted a frame waited for.
    foreground_writes: foreground_writes,
    /// How often writers waited at the dirty limit.
    waits_for_room: waits_for_room,
    /// How often anybody waited for a frame.
    waits_for_frame: waits_for_frame,
    /// Flushes of the device.
    flushes: flushes,
    /// Pages that left to make room.
    evictions: evictions,
    /// Tries of requests.
    iterations: iterations,
    /// Iterations that could do nothing.
    spurious_wakeups: spurious_wakeups,
}

impl CacheCounts {
    /// With the ratios, to so many requests.
    pub(crate) fn per_request(self, requests: f64) -> CacheCounts {
        CacheCounts {
            device_reads_per_request: self.device_reads as f64 / requests,
            device_writes_per_request: self.device_writes as f64 / requests,
            ..self
        }
    }
}
