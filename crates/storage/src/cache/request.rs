//! Requests to the cache, their results, and their state in between.
//!
//! A request runs as iterations (seed 001 §2). Each does all that can be done now, and leaves. A request waits for one condition, whose
//! wake-up begins the next iteration. A request never runs twice at once.

use std::ops::Range;

use baio_engine::{Durability, Memory};
pub use baio_words::CacheError;

use super::caller::Caller;
use super::eviction::Hint;
use super::object::ObjectId;
use super::page_pin::PagePin;
use super::wait::{Links, Wait};

/// Names a request. Carries a generation: a stale one names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOp {
    /// Reads at this offset, in bytes. Ends at the object's end.
    Read {
        /// Where it begins.
        offset: u64,
    },
    /// Writes at this offset, in bytes. Must lie inside the object.
    Write {
        /// Where it begins.
        offset: u64,
        /// When it is done: after the copy, or when the bytes are safe.
        durability: Durability,
    },
    /// Makes safe what was written to these bytes before it started. `0..u64::MAX` is the whole object.
    Sync {
        /// First byte.
        start: u64,
        /// Byte behind the last.
        end: u64,
        /// What the flush must cover; `None` counts as `Data`.
        durability: Durability,
    },
    /// Writes what is dirty in these bytes to the device, without a flush: what a direct read needs before it starts.
    WriteOut {
        /// First byte.
        start: u64,
        /// Byte behind the last.
        end: u64,
    },
    /// Takes these bytes for a direct write: what is cached of them is made safe and dropped, and nobody brings it in again until
    /// [`Cache::release`](super::Cache::release) of this request's id.
    Reserve {
        /// First byte.
        start: u64,
        /// Byte behind the last.
        end: u64,
    },
    /// The same for all from this byte on, which is about to be cut off: pages of which nothing will be left are thrown away if they
    /// cannot be written.
    Cut {
        /// First byte that is cut off.
        from: u64,
    },
    /// Brings a page in if it is not there, and holds it: the pin comes with the end (see [`pool`](super::pool)).
    Pin {
        /// Which page.
        page: u64,
    },
    /// The same for a page that is to be zero: nothing is read, and it counts as changed under this LSN.
    PinNew {
        /// Which page.
        page: u64,
        /// The LSN of this change; 0 for what is not logged.
        lsn: u64,
    },
    /// Marks a pinned page as changed under this LSN, as soon as that can be done.
    Change {
        /// Which page.
        page: u64,
        /// The LSN of this change; 0 for what is not logged.
        lsn: u64,
    },
    /// Makes safe the pages whose recovery LSN is no later than this.
    FlushTo {
        /// The LSN.
        lsn: u64,
    },
}

/// A request.
#[derive(Debug)]
pub struct CacheRequest {
    /// On which object.
    pub object: ObjectId,
    /// What to do.
    pub op: CacheOp,
    /// The caller's memory: read into, or written from. None for syncs and reservations.
    pub memory: Memory,
    /// What is known about the pages' use.
    pub hint: Hint,
}

/// The end of a request: exactly one each.
#[derive(Debug)]
pub struct CacheDone {
    /// Which request.
    pub id: RequestId,
    /// The caller's name for it.
    pub owner: u64,
    /// Bytes read or written; 0 for the others.
    pub result: Result<u32, CacheError>,
    /// Bytes copied, also when an error ended it half-way.
    pub bytes_done: u32,
    /// The caller's memory. `None` where the request ended early while the device was at it: a read straight into it, or a
    /// durable write from it. Then it goes back to its arena when the device lets go of it.
    pub memory: Memory,
    /// How many iterations it ran: at most one per page and one more, not counting those that `parked` explains and, for
    /// a durable write, one for each write-back of its pages that others had begun. A sync runs none: whoever finds its pages safe ends it.
    pub iterations: u32,
    /// How often it waited in a queue for something that all share: a frame, room below the dirty limit, a reserved range.
    pub parked: u32,
    /// Device writes that it started itself.
    pub writes: u32,
    /// The page, for [`CacheOp::Pin`] and [`CacheOp::PinNew`] that ended well: to be given back by
    /// [`Cache::unpin`](super::Cache::unpin).
    pub pin: Option<PagePin>,
    /// Pages that it held at most at once, beside those that others held: a window.
    pub held_max: u32,
}

/// How far a write has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its bytes are copied.
    #[default]
    Copy,
    /// A durable write's pages are made safe.
    Safe,
}

/// One request under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) owner: u64,
    pub(super) object: u32,
    pub(super) op: CacheOp,
    pub(super) caller: Caller,
    pub(super) hint: Hint,
    /// In the order of all requests.
    pub(super) arrived: u64,
    /// First byte in the object.
    pub(super) start: u64,
    /// Bytes to do, and done.
    pub(super) len: usize,
    pub(super) done: usize,
    pub(super) phase: Phase,
    /// First page of the window of a durable write that is not known to be safe.
    pub(super) window: u64,
    /// All changes that must be safe are at most this version.
    pub(super) version: u64,
    /// Pages that are held for it.
    pub(super) pinned: Range<u64>,
    /// Pages to read ahead when the request itself has been started.
    pub(super) ahead: Range<u64>,
    /// A read that is no step of a stream and has no frame yet.
    pub(super) may_bypass: bool,
    /// A durable write that has not been looked at.
    pub(super) may_go_through: bool,
    pub(super) wait: Wait,
    /// How far a reservation has come.
    pub(super) clearing: Clearing,
    /// A frame that was handed over with a wake-up.
    pub(super) granted: Option<u32>,
    /// May make one page dirty: granted with a wake-up.
    pub(super) credit: bool,
    /// It stands among its object's `durable_waiting`, from this page on.
    pub(super) listed_at: Option<u64>,
    /// What it waited for went wrong.
    pub(super) told: Option<CacheError>,
    pub(super) iterations: u32,
    pub(super) parked: u32,
    pub(super) writes: u32,
    /// What it ends with.
    pub(super) pin: Option<PagePin>,
    pub(super) held_max: u32,
}

impl Request {
    /// The byte of the object at which it goes on.
    pub(super) fn at(&self) -> u64 {
        self.start + self.done as u64
    }

    /// The byte behind its last.
    pub(super) fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

/// All requests under way, by slot.
#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<(u32, Option<Box<Request>>)>,
    free: Vec<u32>,
    /// Emptied boxes would be freed and made again for each request.
    #[allow(clippy::vec_box, reason = "it is the boxes that are kept")]
    spare: Vec<Box<Request>>,
    pub(super) links: Links,
}

impl Requests {
    pub(super) fn insert(&mut self, request: Request) -> RequestId {
        let boxed = match self.spare.pop() {
            Some(mut spare) => {
                *spare = request;
                spare
            }
            None => Box::new(request),
        };
        let slot = self.free_slot();
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(boxed);
        RequestId {
            slot,
            generation: entry.0,
        }
    }

    /// The request with this id, if it is still under way.
    pub(super) fn find(&self, id: RequestId) -> Option<u32> {
        let (generation, request) = self.slots.get(id.slot as usize)?;
        (*generation == id.generation && request.is_some()).then_some(id.slot)
    }

    pub(super) fn id(&self, slot: u32) -> RequestId {
        let generation = self.slots[slot as usize].0;
        RequestId { slot, generation }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Request> {
        self.slots.get(slot as usize)?.1.as_deref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Request> {
        self.slots.get_mut(slot as usize)?.1.as_deref_mut()
    }

    /// Takes it out for an iteration; the slot stays its own.
    pub(super) fn take(&mut self, slot: u32) -> Option<Box<Request>> {
        self.slots.get_mut(slot as usize)?.1.take()
    }

    pub(super) fn put_back(&mut self, slot: u32, request: Box<Request>) {
        self.slots[slot as usize].1 = Some(request);
    }

    /// An id for what has ended already: it names nothing.
    pub(super) fn spent(&mut self) -> RequestId {
        let slot = self.free_slot();
        let id = self.id(slot);
        self.free(slot);
        id
    }

    fn free_slot(&mut self) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        self.links.cover(slot);
        slot
    }

    fn free(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(slot);
    }

    /// Its slot is free, and its id names nothing any more.
    pub(super) fn retire(&mut self, slot: u32, mut request: Box<Request>) -> Caller {
        self.free(slot);
        let caller = std::mem::take(&mut request.caller);
        self.spare.push(request);
        caller
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slots of all requests on an object.
    pub(super) fn on(&self, object: u32) -> Vec<u32> {
        let its = |slot: &u32| self.get(*slot).is_some_and(|request| request.object == object);
        (0..self.slots.len() as u32).filter(its).collect()
    }
}

/// How far a reservation has come: the page from which on each has yet to be done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clearing {
    /// All before are safe, or written.
    pub(super) safe: u64,
    /// Writes of all before have been started, where they could be.
    pub(super) started: u64,
    /// All before have been dropped.
    pub(super) dropped: u64,
    /// There is more to do than one write: a flush follows.
    pub(super) flushes: bool,
}
