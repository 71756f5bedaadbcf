//! What names what: handles name objects, tickets name requests.
//!
//! A name is a place in a table and which use of it, so a stale one is refused and never another's. The count of uses is 32 bits
//! and wraps: a name that somebody keeps while its place is used 2^32 times more (2^30 times for a core's tickets) names what is
//! there then. For the ticket of one place that is used 100,000 times a second that is half a day (3 hours on a core), for a
//! handle 2^32 opens. Take outcomes, or drop their tickets, long before.

use std::sync::atomic::{AtomicU32, Ordering};

/// Names an opened segment or file. Valid on the core that gave it, until it is closed or its segment is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Which core gave it: on another one it is a stranger. 0 is no core's.
    pub core: u32,
    /// Its place there.
    pub index: u32,
    /// Which use of that place; wraps after 2^32.
    pub generation: u32,
}

/// The number of the next one who gives handles: of cores and of whatever else is served in this process, so that none takes
/// another's handle for its own.
#[must_use]
pub fn next_number() -> u32 {
    static NUMBERS: AtomicU32 = AtomicU32::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

impl Handle {
    /// A handle as a peer names it: the core's number, its place there, and which use of that place. Naming gives no
    /// rights: a core refuses what it did not give.
    #[must_use]
    pub fn from_parts(core: u32, index: u32, generation: u32) -> Handle {
        Handle {
            core,
            index,
            generation,
        }
    }

    /// Its three parts, in this order.
    #[must_use]
    pub fn parts(self) -> (u32, u32, u32) {
        (self.core, self.index, self.generation)
    }
}

/// Names a request in flight, until its outcome has been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Its place in the table of requests.
    pub index: u32,
    /// Which use of that place; wraps after 2^32, a core's after 2^30.
    pub generation: u32,
}

impl Ticket {
    /// A core's generations are below this: they fit beside the index and the owner's mark in an engine tag.
    pub const GENERATION_MASK: u32 = (1 << 30) - 1;

    /// A ticket of a link that keeps the table of its requests itself.
    #[must_use]
    pub fn from_parts(index: u32, generation: u32) -> Ticket {
        Ticket { index, generation }
    }

    /// Its place in the table, and which use of that place.
    #[must_use]
    pub fn parts(self) -> (u32, u32) {
        (self.index, self.generation)
    }
}
