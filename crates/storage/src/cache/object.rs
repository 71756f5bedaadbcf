//! One object: the pages of a file or a segment, and what is under way on it as a whole.

use std::ops::Range;

use baio_engine::{Durability, Errno, Time};

use super::durable_waiting::DurableWaiting;
use super::frames::PAGE;
use super::kept::Kept;
use super::ranges::overlap;
use super::tree::Tree;
use super::wait::List;
use super::window::Streams;

/// Names an object of the cache. Carries a generation: a stale one is an error, never another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl ObjectId {
    /// A small number, of which another object may have been the owner before.
    pub(crate) fn index(self) -> usize {
        self.slot as usize
    }
}

/// A walk that writes the pages that were dirty when it began, in offset order: a sync, or the cleaner for what has grown old.
/// Pages that became dirty later are passed over, so writers cannot keep it from ending (seed 001 §5.3, §6).
#[derive(Debug)]
pub(super) struct Pass {
    /// Who waits for it; none for the cleaner.
    pub(super) request: Option<u32>,
    /// Pages still to be looked at.
    pub(super) pages: Range<u64>,
    /// Pages that it covers.
    pub(super) covers: Range<u64>,
    /// Only changes up to this version.
    pub(super) version: u64,
    /// Pages of it whose write has not ended.
    pub(super) left: u64,
    /// Does a flush follow, and how much must it make safe?
    pub(super) flush: Option<Durability>,
}

/// A range that a direct write has, or will have, for itself.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) request: u32,
    pub(super) generation: u32,
    /// When it was asked for, in the order of all requests.
    pub(super) arrived: u64,
    pub(super) pages: Range<u64>,
    pub(super) granted: bool,
}

/// A flush on its way.
#[derive(Debug)]
pub(super) struct Flush {
    /// Which flush of the object it is; covers writes that ended before it began.
    pub(super) number: u64,
    /// The syncs that end with it, and reservations that go on then.
    pub(super) syncs: Vec<u32>,
    /// It has ended well, and all pages before this one know it.
    pub(super) settled: u64,
}

/// The state of one object. What a hit looks at stands together, in the first two lines of memory, which processors fetch as a
/// pair: with many objects each line is a wait for memory.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct CachedObject {
    pub(super) streams: Streams,
    pub(super) live: bool,
    /// A write past its end makes it longer.
    pub(super) grows: bool,
    pub(super) generation: u32,
    pub(super) size: u64,
    pub(super) readahead_pages: u64,
    pub(super) tree: Tree,
    /// Requests that have not ended.
    pub(super) requests: u32,
    /// Pages that stay once they are in.
    pub(super) kept: Vec<Kept>,
    /// I/Os that have not ended, or whose memory is not back.
    pub(super) flights: u32,
    /// Whose dirty pages are.
    pub(super) account: u32,
    pub(super) dirty: u32,
    pub(super) failed: u32,
    pub(super) gated: u32,
    pub(super) unflushed: u32,
    /// The gate behind which its logged changes wait.
    pub(super) gate: u32,
    /// Pages with a change under an LSN that is not safe.
    pub(super) logged: u32,
    /// Pages that pins of the pool hold.
    pub(super) lent: u32,
    /// Why the last write or flush failed.
    pub(super) errno: Option<Errno>,
    /// Writes that were given up on and whose memory is not back.
    pub(super) stuck: u32,
    /// Where the cleaner's last write ended (seed 001 §6).
    pub(super) resume: u64,
    /// Since when there has been a dirty page that no pass of the cleaner has begun to write.
    pub(super) dirty_since: Option<Time>,
    /// It stands among those that take turns with the cleaner, or with flushes.
    pub(super) in_clean_round: bool,
    pub(super) in_flush_round: bool,
    pub(super) passes: Vec<Pass>,
    /// How many flushes have begun.
    pub(super) flushes: u64,
    /// How many have failed: writes that ran meanwhile are not trusted.
    pub(super) failed_flushes: u64,
    pub(super) flush: Option<Flush>,
    /// A pass that nobody waits for has ended since it began: another follows.
    pub(super) flush_again: bool,
    /// Syncs that wait for the next flush, with what they need of it.
    pub(super) next_flush: Vec<(u32, Durability)>,
    pub(super) reservations: Vec<Reservation>,
    /// Who waits for a reservation to end.
    pub(super) waiters: List,
    /// The page behind the last of the last durable write.
    pub(super) durable_end: u64,
    /// Durable writes that wait for another's write-back of their pages: what overlaps them is written durably.
    pub(super) durable_waiting: DurableWaiting,
}

impl CachedObject {
    /// What is left of it when it has gone. If it is in a round of turns, it is kept until its turn comes, and dropped then.
    pub(super) fn emptied(&self, generation: u32) -> CachedObject {
        CachedObject {
            generation,
            in_clean_round: self.in_clean_round,
            in_flush_round: self.in_flush_round,
            ..CachedObject::default()
        }
    }

    /// Bytes of this page that belong to the object.
    pub(super) fn valid(&self, page: u64) -> usize {
        self.size.saturating_sub(page.saturating_mul(PAGE)).min(PAGE) as usize
    }

    /// Pages that hold its bytes.
    pub(super) fn pages(&self) -> u64 {
        self.size.div_ceil(PAGE)
    }

    /// Pages that were changed and are not safe, and that no I/O has.
    pub(super) fn not_safe(&self) -> u64 {
        let counts = [self.dirty, self.failed, self.gated, self.unflushed];
        counts.map(u64::from).iter().sum()
    }

    /// Is it a page that stays?
    pub(super) fn keeps(&self, page: u64) -> bool {
        self.kept.iter().any(|kept| kept.holds(page))
    }

    /// May a request that arrived at `arrived` start something at this page? A granted reservation stops everybody, one that
    /// still waits only those who came later: so neither side is kept out by newcomers.
    pub(super) fn is_open(&self, page: u64, arrived: u64) -> bool {
        if crate::seeded_bug("reserve-lets-newcomers-in") {
            return true;
        }
        !self
            .reservations
            .iter()
            .any(|held| held.pages.contains(&page) && (held.granted || held.arrived < arrived))
    }

    /// May this reservation be granted, as far as others go?
    pub(super) fn is_first(&self, request: u32) -> bool {
        let mut before = self
            .reservations
            .iter()
            .take_while(|held| held.request != request || held.granted);
        let Some(own) = self
            .reservations
            .iter()
            .find(|held| held.request == request && !held.granted)
        else {
            return true;
        };
        !before.any(|held| overlap(&held.pages, &own.pages))
    }
}
